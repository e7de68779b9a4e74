"""Everything on this machine's GPU, beside the processor: make check-gpu.

    run.py [--build BUILD] [--quick] [--json FILE] [--parts PART,...] [--budget S] [--torch-device cuda|cpu]

The parts, in this order, so that what comes first is worth most should time run out:

    cases       every kernel and codec beside the processor's plain code (tests/gpu/check)
    one         jobs of one rank on GPU 0 beside the processor, and with CUDA graphs beside without
    models      tokens/s of three models at one length, beside PyTorch's
    rates       kernels, codecs, products, attention, memory and ways to the host
    checkpoint  what a checkpoint every ten steps costs
    longer      the models at longer sequences
    layouts     ranks that share the GPU, in f32 and bf16
    moves       a job that goes from one rank to two and back, and one that is killed and resumed
    sanitizer   cases again, small, under compute-sanitizer where it is found

One table, with a line of JSON each. Exit status: 0, 1 when something is wrong, 77 without a library, a driver or a GPU.
Takes Python's own modules alone; PyTorch is run beside where some python3 has it (MUSTER_TORCH_PYTHON names it)."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import speeds

PARTS = ["cases", "one", "models", "rates", "checkpoint", "longer", "layouts", "moves", "sanitizer"]
BUDGET_S = 470  # for all of it; what would begin later is left out, and said to be
RUN_S = 90      # for one job
F32, BF16, CPU = 1e-4, 2e-2, 1e-3  # how far losses of layouts, and of GPU and processor, may be apart

ROWS = []
SPEEDS = []
BEGAN = time.monotonic()
BUDGET = [BUDGET_S]


class Failed(Exception):
    """words say what is wrong"""


def left(most):
    """Seconds for what begins now: most, or what the budget leaves."""
    return max(5, min(most, BUDGET[0] - (time.monotonic() - BEGAN)))


def library_folders(args):
    """Where libraries are that a kit brings; NVIDIA's are found by who loads them."""
    return [args.build / "lib/kit"] if (args.build / "lib/kit").is_dir() else []


def environment(args, **more):
    library = os.environ.get("MUSTER_CUDA_BACKEND") or str(args.build / "lib/muster/muster-cuda.so")
    paths = [str(f) for f in args.folders] + list(filter(None, [os.environ.get("LD_LIBRARY_PATH")]))
    if paths:
        more.setdefault("LD_LIBRARY_PATH", ":".join(paths))
    python = os.environ.get("MUSTER_TORCH_PYTHON") or shutil.which("python3")
    if python:  # whose packages may have cuBLASLt
        more.setdefault("MUSTER_CUDA_PYTHON", python)
    return dict(os.environ, MUSTER_CUDA_BACKEND=library, **more)


def call(argv, env, seconds, partial=False):
    """Exit status and output of a program with all that it starts; both end in time. partial: what it said until its
    time was over is enough."""
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        try:
            out = p.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired as e:
            kill_tree(p)
            out = p.communicate()[0]
            if not partial:
                print(out[-4000:], flush=True)
                raise Failed(f"did not end in {seconds:.0f} s") from e
    return p.returncode, out


def descendants(pid):
    found = []
    for child in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for one in child.read_text().split():
            found += [int(one), *descendants(int(one))]
    return found


def kill_tree(p):
    """SIGKILL for a program we started and for what it started."""
    for pid in [p.pid, *descendants(p.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.wait()


# --- the jobs ---------------------------------------------------------------------------------------------------------

class Jobs:
    def __init__(self, args, folder):
        self.args, self.folder, self.n = args, pathlib.Path(folder), 0
        words = random.Random(7)
        text = " ".join(words.choice("the of and to in is that it was for on are as with at be".split())
                        for _ in range(60000))
        (self.folder / "text").write_text(text)

    def spec(self, precision="f32", steps=4, devices=1, compress=None, **parallel):
        small = self.args.quick
        model = {"family": "gpt2", "layers": 2 if small else 6, "hidden": 16 if small else 384,
                 "heads": 2 if small else 6, "context": 16 if small else 512, "vocab": 256, "dropout": 0.1}
        return {"name": "check-gpu", "devices": {"min": devices, "max": devices}, "train": {
            "model": model, "data": {"path": str(self.folder / "text")}, "steps": steps, "precision": precision,
            "batch": {"sequences": 4, "micro": 1}, "init": {"seed": 5},
            "optimizer": {"lr": 1e-3, "schedule": "constant", "warmup": 0}},
            "parallel": {"virtual_workers": 2, **parallel}, "compress": compress or {},
            "checkpoint": {"every_steps": 2, "keep": 8}}

    def argv(self, spec, folder, resume=False):
        self.n += 1
        path = self.folder / f"spec-{self.n}.json"
        path.write_text(json.dumps(spec))
        return [str(self.args.build / "bin/muster"), "run", str(path), "--devices", str(spec["devices"]["max"]),
                "--dir", str(folder)] + (["--resume"] if resume else [])

    def environment(self, kernels="cuda", **more):
        return environment(self.args, MUSTER_KERNELS=kernels, **more)

    def train(self, spec, name, resume=False, within=RUN_S, **env):
        folder = self.folder / name
        code, out = call(self.argv(spec, folder, resume), self.environment(**env), left(within))
        if code != 0:
            logs = "".join(f.read_text(errors="replace")[-2000:] for f in sorted(folder.rglob("*.log")))
            raise Failed(f"{name} ended with {code}: {' '.join((out + logs).split())[-600:]}")
        return folder

    def losses(self, *args, **kwargs):
        lines = (self.train(*args, **kwargs) / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def expect_same(self, a, b, step):
        path = [str(f / "checkpoints" / f"step-{step:08d}") for f in (a, b)]
        code, out = call([str(self.args.build / "bin/muster"), "checkpoint", "diff", "-o", "json", *path],
                         environment(self.args), RUN_S)
        said = json.loads(out[out.index("{"):out.rindex("}") + 1]) if "{" in out else {}
        if code not in (0, 1) or "tensors" not in said:
            raise Failed(f"checkpoints cannot be compared: {out[:300]}")
        if said["equal"] != said["tensors"]:
            raise Failed(f"{said['tensors'] - said['equal']} of {said['tensors']} tensors have other bits")


def apart(some, others):
    if len(some) != len(others):
        raise Failed(f"{len(some)} steps instead of {len(others)}")
    return max(abs(a - b) / abs(b) for a, b in zip(some, others))


LAYOUTS = [(2, {}), (2, {"pp": 2}), (2, {"tp": 2}), (2, {"cp": 2}), (4, {"tp": 2, "pp": 2})]


def compare(jobs, alone, name, devices=1, kernels="cuda", limit=0.0, precision="f32", **parallel):
    error = apart(jobs.losses(jobs.spec(precision, devices=devices, **parallel), name, kernels=kernels), alone)
    if not error <= limit:
        raise Failed(f"losses are {error:.2g} apart")
    return error, limit


def one_rank(jobs):
    """Losses of one rank by precision."""
    alone = {}
    for precision, limit in (("f32", CPU), ("bf16", BF16)):
        def run(p=precision):
            alone[p] = jobs.losses(jobs.spec(p), f"{p}-1")

        step(f"training in {precision}, one rank", run)
        if precision in alone:
            step(f"training in {precision}, GPU against processor",
                 lambda p=precision, m=limit: compare(jobs, alone[p], f"{p}-cpu", kernels="cpu", limit=m, precision=p))
    for precision in ("f32", "bf16"):
        step(f"the same bits with CUDA graphs and without, {precision}", lambda p=precision: graphs(jobs, p))
    return alone


def layouts(jobs, alone):
    for precision, limit in (("f32", F32), ("bf16", BF16)):
        if precision not in alone:
            continue
        for devices, parallel in LAYOUTS[:1 if jobs.args.quick else None]:
            words = " ".join(f"{k} {v}" for k, v in parallel.items()) or f"dp {devices}"
            step(f"training in {precision}, {words} on one GPU",
                 lambda d=devices, l=parallel, w=words, p=precision, m=limit: compare(
                     jobs, alone[p], f"{p}-{w.replace(' ', '')}", d, limit=m, precision=p, **l))
        step(f"training in {precision}, dp 2 with coded gradients on one GPU",
             lambda p=precision: compare(jobs, alone[p], f"{p}-coded", 2, limit=BF16, precision=p,
                                         compress={"dp": "sdp4bit"}))


def graphs(jobs, precision):
    """With CUDA graphs in place of calls, and with the calls."""
    spec = jobs.spec(precision, steps=4)
    one = jobs.train(spec, f"{precision}-graphs")
    logs = "".join(f.read_text(errors="replace") for f in one.rglob("*.log"))
    if not re.search(r"[1-9]\d* CUDA graphs, launched", logs) or "cannot be recorded" in logs:
        raise Failed(" ".join(line for line in logs.splitlines() if "CUDA graph" in line) or "no graphs were made")
    other = jobs.train(spec, f"{precision}-no-graphs", MUSTER_CUDA_GRAPHS="off")
    jobs.expect_same(one, other, 4)
    rate, reference = (json.loads((f / "metrics.jsonl").read_text().splitlines()[-1])["tokens_per_s"]
                       for f in (one, other))
    figure(f"a small step with CUDA graphs, {precision}", rate, "tokens/s", "calls one by one", rate / reference)


def rescale(jobs):
    whole = jobs.train(jobs.spec(steps=6, exact="strict"), "whole")
    for steps, devices in ((2, 1), (4, 2), (6, 1)):
        moved = jobs.train(jobs.spec(steps=steps, devices=devices, exact="strict"), "moved", resume=steps > 2)
    jobs.expect_same(whole, moved, 6)
    return whole


def killed(jobs, whole):
    """The job of rescale() again, killed once it has saved something."""
    folder, spec = jobs.folder / "killed", jobs.spec(steps=6, exact="strict")
    deadline = time.monotonic() + RUN_S
    with subprocess.Popen(jobs.argv(spec, folder), env=jobs.environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as p:
        while not list(folder.glob("checkpoints/step-*/MANIFEST")) and p.poll() is None:
            if time.monotonic() > deadline:
                kill_tree(p)
                raise Failed(f"no checkpoint in {RUN_S} s")
            try:
                p.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        kill_tree(p)
    jobs.expect_same(whole, jobs.train(spec, "killed", resume=True), 6)


# --- the whole --------------------------------------------------------------------------------------------------------

def figure(metric, value, unit, reference, ratio):
    """A line of the table of speeds."""
    SPEEDS.append({"bench": "gpu", "metric": metric, "value": float(f"{value:.6g}"), "unit": unit,
                   "reference": reference, "ratio": None if ratio is None else round(ratio, 4)})
    share = f"{ratio:8.3f} of " if ratio is not None else "  beside "
    print(f"{metric:64} {value:10.4g} {unit:8} {share}{reference}", flush=True)


def step(what, fn):
    """A row of the table: fn gives (error, limit), or nothing, or raises. False: it is left out or failed."""
    row = {"check": what, "ok": True}
    at = time.monotonic()
    if at - BEGAN > BUDGET[0]:
        row.update(ok=None, words=f"left out: {BUDGET[0]} s are over")
    else:
        try:
            row.update(zip(("error", "limit"), fn() or ()))
        except (Failed, OSError, ValueError, KeyError) as e:
            row.update(ok=False, words=str(e) or repr(e))
    row["seconds"] = round(time.monotonic() - at, 1)
    ROWS.append(row)
    state = {True: "ok", False: "FAILED", None: ""}[row["ok"]]
    print(f"{what:64} {row['seconds']:8.1f} s  {state} {row.get('words', '')}".rstrip(), flush=True)
    return row["ok"] is True


def leave_out(what, why):
    ROWS.append({"check": what, "ok": None, "words": why})
    print(f"{what}: left out: {why}", flush=True)


def check(args, lines, only, seconds):
    """Exit status of the program that checks kernels and codecs, or their speeds; its JSON goes to lines."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as f:
        argv = [str(args.build / "tests/gpu/check"), only, "--json", f.name] + (["--quick"] if args.quick else [])
        code, out = call(argv, environment(args), left(seconds), partial=True)
        print(out, flush=True)
        lines += f.read().splitlines()
    return code


def check_fragments(args):
    """What attention on tensor cores counts on. It asks the GPU itself, so over the emulation it finds none."""
    code, out = call([str(args.build / "tests/gpu/fragments")], environment(args), left(60))
    print(out, flush=True)
    if code not in (0, 77):
        raise Failed(f"ended with {code}, as above")


def check_cases(args, lines):
    code = check(args, lines, "--cases", 150)
    if code == 77:
        raise SystemExit(77)
    if code != 0:
        raise Failed(f"ended with {code}, as above" if code > 0 else "did not end in time, as above")


def check_rates(args, lines, s):
    code = check(args, lines, "--bench", 120)
    if code != 0:
        raise Failed(f"ended with {code}, as above")
    figures = {one["metric"]: one["value"] for one in map(json.loads, lines) if "metric" in one}
    if "product bf16 8192^3" in figures:
        s.know_product(figures["product bf16 8192^3"] * 1e12)
    if s.torch.version:
        step("attention and product beside PyTorch's", lambda: s.attention(figures))


def sanitize(args):
    argv = ["compute-sanitizer", "--error-exitcode", "9", str(args.build / "tests/gpu/check"), "--quick"]
    code, out = call(argv, environment(args), left(150))
    if code != 0:
        raise Failed(" ".join(out.split())[-600:])


def start_torch(args, folder):
    torch = speeds.Torch(args.torch_device, args.quick)
    if not torch.version:
        leave_out("PyTorch beside", f"it is not there with {args.torch_device}: {torch.why}; MUSTER_TORCH_PYTHON names "
                  "a python3 that has it")
    else:
        torch.warm(speeds.Speeds(sys.modules[__name__], args, folder, torch).all_rows(), pathlib.Path(folder) / "warm")
    return torch


def models(jobs, s, lengths):
    for length in lengths:
        for name in s.models():
            step(f"{name}, T {length}", lambda n=name, t=length: s.train(jobs, n, t))
        step(f"PyTorch's models, T {length}", lambda t=length: s.beside(t))


def go(args, folder, lines):
    jobs, wanted = Jobs(args, folder), set(args.parts)
    timed = wanted & {"models", "rates", "checkpoint", "longer"}
    if "cases" in wanted:
        if (args.build / "tests/gpu/fragments").exists(): # made where nvcc is
            step("instructions of tensor cores, as above", lambda: check_fragments(args))
        step("kernels and codecs, as above", lambda: check_cases(args, lines))
    torch = start_torch(args, folder) if timed else speeds.Torch(None, False)
    s = speeds.Speeds(sys.modules[__name__], args, folder, torch)
    try:
        alone = one_rank(jobs) if wanted & {"one", "layouts"} else {}
    finally: # nothing runs beside what is timed
        s.wait_for_torch(left(90) if timed else 0)
    if "models" in wanted:
        models(jobs, s, s.lengths()[:1])
    if "rates" in wanted:
        step("speeds, as above", lambda: check_rates(args, lines, s))
    if "checkpoint" in wanted:
        step("checkpoints every ten steps", lambda: s.checkpoints(jobs))
    if "longer" in wanted:
        models(jobs, s, s.lengths()[1:])
    if "layouts" in wanted:
        layouts(jobs, alone)
    if "moves" in wanted:
        whole = []
        step("the same bits on 1, 2 and 1 ranks", lambda: whole.append(rescale(jobs)))
        if whole:
            step("the same bits after a kill and a resume", lambda: killed(jobs, whole[0]))
    if "sanitizer" in wanted and shutil.which("compute-sanitizer"):
        step("kernels and codecs under compute-sanitizer", lambda: sanitize(args))
    elif "sanitizer" in wanted:
        leave_out("kernels and codecs under compute-sanitizer", "it is not found")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="where bin/ and lib/ are: beside this file in a kit")
    parser.add_argument("--quick", action="store_true", help="small jobs, no benchmarks of kernels")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="seconds for all of it")
    parser.add_argument("--torch-device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    args.parts = args.parts.split(",")
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.build = args.build.resolve()
    return args


def main():
    args = read_arguments()
    BUDGET[0] = args.budget
    args.folders = library_folders(args)
    lines = []
    with tempfile.TemporaryDirectory(prefix="muster-check-gpu.") as folder:
        try:
            go(args, folder, lines)
        finally:
            if args.json:
                args.json.write_text("".join(line + "\n" for line in [*lines, *map(json.dumps, ROWS + SPEEDS)]))
    failed = [row for row in ROWS if row["ok"] is False]
    print("\nfigures of training:" if SPEEDS else "")
    for one in SPEEDS:
        print(f"{one['metric']:64} {one['value']:10.4g} {one['unit']:8} {one['ratio'] or '-'} of {one['reference']}")
    print(f"\n{len(ROWS)} parts, {len(failed)} failed, {sum(row['ok'] is None for row in ROWS)} left out, "
          f"{time.monotonic() - BEGAN:.0f} s")
    for row in failed:
        print(f"FAILED {row['check']}: {row.get('words', '')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
