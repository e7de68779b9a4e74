"""How far the planner's times and memory are off for jobs that nothing was calibrated on.

    plan_accuracy.py [--quick] [--specs N] [--seed S] [--rounds N] [--steps N] [--profile FILE]

`muster profile run` measures this machine first (or FILE is what it printed before). Then N specs are drawn from the
seed, which is printed: models, batches, precisions and layouts of one or two ranks. Each is planned by the profile
alone, and run for some steps in each of the rounds, all specs in turns, without the first of each. Of the steps of all
rounds the median of those near the shortest counts, as in the profile: a rank that is put off the processor for a while
says nothing of its layout. Memory is resident memory at its highest, of the rank that has most. One JSON object a line
and tables; needs a machine that does nothing else, or to go before what it does (nice -n -20)."""
import argparse
import array
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.integration import ranks  # noqa: E402

MUSTER = os.path.join(ranks.BUILD, "bin", "muster")
DEVICES, SKIP, WAIT_S = 2, 2, 120
NEAR = 1.2  # times the shortest step: what took longer was disturbed
STEP_FLOPS = (2e9, 4e10)  # of a step that is drawn, about: tens to hundreds of milliseconds


def draw(rng):
    """A model, a batch and a layout."""
    while True:
        heads, dim = rng.choice([2, 4, 6, 8]), rng.choice([16, 32, 48, 64])
        family = rng.choice(["gpt2", "llama"])
        model = {"family": family, "layers": rng.randint(2, 8), "hidden": heads * dim, "heads": heads,
                 "vocab": rng.choice([256, 1000, 4000, 8000]), "context": 1024}
        if family == "llama":
            model["ffn"] = 64 * rng.randint(max(1, heads * dim // 48), max(2, heads * dim // 20))
            model["kv_heads"] = rng.choice([k for k in (1, 2, heads) if heads % k == 0])
        length = rng.choice([64, 128, 192, 256, 512])
        leaves, micro, micros = rng.choice([1, 2, 4]), rng.choice([1, 2, 4]), rng.choice([1, 2])
        layout = rng.choice([{}, {}, {"dp": 2}, {"tp": 2}, {"pp": 2}])
        recompute = rng.choice(["none", "none", "none", "selective", "full"])
        if layout.get("dp", 1) > leaves or (layout.get("tp") and model.get("kv_heads") == 1):
            continue
        if layout.get("pp") and leaves * micros < 2:
            continue
        tokens = leaves * micro * micros * length
        weights = model["layers"] * (12 if family == "gpt2" else 4) * model["hidden"] ** 2
        weights += model["layers"] * 3 * model.get("ffn", 0) * model["hidden"] + model["vocab"] * model["hidden"]
        if STEP_FLOPS[0] <= 6 * tokens * weights <= STEP_FLOPS[1]:
            break
    return {"model": model, "length": length, "micro": micro, "sequences": leaves * micro * micros, "leaves": leaves,
            "layout": layout, "recompute": recompute, "precision": rng.choice(["f32", "f32", "bf16"])}


def spec_of(folder, d):
    tokens = os.path.join(folder, f"tokens-{d['model']['vocab']}.bin")
    if not os.path.exists(tokens):
        rng = random.Random(1)
        with open(tokens, "wb") as f:
            array.array("H", [rng.randrange(d["model"]["vocab"]) for _ in range(64 * 1024 + 1)]).tofile(f)
    layout = d["layout"]
    n = DEVICES if layout else 1
    return {"name": "bench", "devices": {"min": n, "max": n},
            "train": {"model": d["model"], "init": {"seed": 1},
                      "data": {"path": tokens, "format": "tokens", "order": "sequential", "holdout": 0},
                      "batch": {"sequences": d["sequences"], "micro": d["micro"], "length": d["length"]},
                      "steps": 100000, "precision": d["precision"], "eval": {"every_steps": 0}},
            "parallel": {"virtual_workers": d["leaves"], "tp": layout.get("tp", 1), "pp": layout.get("pp", 1),
                         "recompute": d["recompute"]},
            "checkpoint": {"every_steps": 0}}


def plan(folder, spec, profile):
    cluster = {"classes": {"cpu": {"nodes": 1, "devices_per_node": DEVICES, "kind": "cpu", "profile": profile}}}
    paths = [os.path.join(folder, name) for name in ("spec.json", "cluster.json")]
    for path, doc in zip(paths, (spec, cluster)):
        with open(path, "w", encoding="ascii") as f:
            json.dump(doc, f)
    out = subprocess.run([MUSTER, "plan", paths[0], "--cluster", paths[1], "-o", "json"], capture_output=True,
                         text=True, check=False)
    if out.returncode:
        sys.exit(f"plan_accuracy: {out.stderr}{json.dumps(spec)}")
    return json.loads(out.stdout)["plan"]


def resident_mib(pid):
    """At its highest; memory that ranks share counts once for all of them."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        at = {k: int(v) for k, v in re.findall(r"(\w+):\s+(\d+) kB", f.read())}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        share = int(re.search(r"Pss_Shmem:\s+(\d+)", f.read()).group(1))
    return (at["VmHWM"] - at["RssShmem"] + share) / 1024


def run(folder, spec, layout, steps):
    """Milliseconds of each step but the first, and MiB of the largest rank."""
    with ranks.Run(tempfile.mkdtemp(dir=folder), spec, threads=1, **layout) as r:
        r.until(lambda: len(r.metrics()) >= steps + SKIP, WAIT_S)
        took = [m["step_ms"] for m in r.metrics()[SKIP:]]
        peak = 0
        for p in r.ranks:
            peak = max(peak, resident_mib(p.pid))
    return took, peak


def typical(ms):
    """As measure() in worker/engine/train/measure.c."""
    return statistics.median([x for x in ms if x <= NEAR * min(ms)])


def kinds(d):
    """What a spec's error is told under."""
    return [d["model"]["family"], d["precision"], " ".join(f"{k} {v}" for k, v in d["layout"].items()) or "one rank",
            f"recompute {d['recompute']}", f"length {d['length']}", f"vocab {d['model']['vocab']}"]


def by_kind(drawn, errors):
    of = {}
    for d, e in zip(drawn, errors):
        for k in kinds(d):
            of.setdefault(k, []).append(e)
    print(f"{'KIND':16} {'SPECS':>5} {'MEAN ERROR %':>12} {'BIAS %':>7}")
    for k in sorted(of):
        print(f"{k:16} {len(of[k]):5} {statistics.mean(map(abs, of[k])):12.1f} {statistics.mean(of[k]):+7.1f}")


def words(d):
    m = d["model"]
    layout = " ".join(f"{k} {v}" for k, v in d["layout"].items()) or "one rank"
    return (f"{m['family']} {m['layers']}x{m['hidden']} heads {m['heads']} vocab {m['vocab']} length {d['length']} "
            f"batch {d['sequences']} micro {d['micro']} V {d['leaves']} {d['precision']} {layout} "
            f"recompute {d['recompute']}")


def row(metric, value, unit, reference):
    print(json.dumps({"bench": "plan_accuracy", "metric": metric, "value": float(f"{value:.4g}"), "unit": unit,
                      "reference": reference, "ratio": float(f"{value / reference:.4g}")}), flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--quick", action="store_true", help="six specs, one round")
    args.add_argument("--specs", type=int)
    args.add_argument("--seed", type=int)
    args.add_argument("--rounds", type=int)
    args.add_argument("--steps", type=int, default=10)
    args.add_argument("--profile")
    args = args.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    rng = random.Random(seed)
    drawn = [draw(rng) for _ in range(args.specs or (6 if args.quick else 30))]
    began = time.monotonic()
    if args.profile:
        with open(args.profile, encoding="ascii") as f:
            profile = json.load(f)
    else:
        profile = json.loads(subprocess.check_output([MUSTER, "profile", "run", "--devices", str(DEVICES)]))
    print(f"seed {seed}; the profile took {profile['seconds']} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="muster-plan-accuracy-") as folder:
        specs = [spec_of(folder, d) for d in drawn]
        plans = [plan(folder, s, profile) for s in specs]
        took, peak = [[] for _ in drawn], [0] * len(drawn)
        for _ in range(args.rounds or (1 if args.quick else 4)):
            for i, d in enumerate(drawn):
                steps, mib = run(folder, specs[i], d["layout"], args.steps)
                took[i] += steps
                peak[i] = max(peak[i], mib)
    errors, memory = [], []
    print(f"{'PREDICTED ms':>12} {'MEASURED ms':>12} {'ERROR %':>8} {'PLANNED MiB':>12} {'PEAK MiB':>9} {'ERROR %':>8}")
    for d, p, ms, mib in zip(drawn, plans, took, peak):
        step, planned = typical(ms), max(m["all"] for m in p["memory_mib"])
        errors.append(100 * (p["step_ms"] / step - 1))
        memory.append(100 * (planned / mib - 1))
        print(f"{p['step_ms']:12.2f} {step:12.2f} {errors[-1]:8.1f} {planned:12.1f} {mib:9.1f} {memory[-1]:8.1f}  "
              f"{words(d)} | {p['breakdown_ms']}")
    by_kind(drawn, errors)
    row("step_error_mean", statistics.mean(map(abs, errors)), "%", 8)
    row("step_error_worst", max(map(abs, errors)), "%", 8)
    row("memory_error_mean", statistics.mean(map(abs, memory)), "%", 5)
    print(f"{len(drawn)} specs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
