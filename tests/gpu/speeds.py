"""Figures of training on one GPU beside PyTorch's, for run.py: tokens/s of models, and what checkpoints cost.

Muster and PyTorch (torch_beside.py) train the same shapes on as many tokens a step, one after the other on the same
GPU. Utilisation counts 6 operations a weight of a matrix and token and 6 x layers x width x length for attention."""
import array
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS, SKIP = 16, 6       # of a run; the first do not count: graphs and clocks are not there yet
TOKENS = {"gpt2-124m": 32768, "gpt2-350m": 16384, "llama-1b": 16384, "tiny": 64}
DENSE = 790e12            # products in bf16 that an H200 was seen to make a second, of random numbers
CHECKPOINT_EVERY = 10
TIMED = "for the figures of training"

# layers, hidden, heads, kv_heads, width of heads, ffn, vocab, matrices of the feed-forward part
SHAPES = {"gpt2-124m": (12, 768, 12, 12, 64, 3072, 50257, 2), "gpt2-350m": (24, 1024, 16, 16, 64, 4096, 50257, 2),
          "llama-1b": (16, 2048, 32, 8, 64, 8192, 128256, 3), "tiny": (2, 32, 2, 2, 16, 64, 97, 2)}
TINY = {"family": "gpt2", "layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 97}


def flops_of_token(name, length):
    layers, hidden, heads, kv_heads, dim, ffn, vocab, matrices = SHAPES[name]
    layer = hidden * dim * (2 * heads + 2 * kv_heads) + matrices * hidden * ffn
    return 6 * (layers * layer + vocab * hidden) + 6 * layers * heads * dim * length


def can_import(python, device):
    test = "import torch; " + ("assert torch.cuda.is_available(); " if device == "cuda" else "") + \
        "print(torch.__version__)"
    try:
        ran = subprocess.run([python, "-c", test], capture_output=True, text=True, timeout=90)
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"{python}: {e}"
    words = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
    return (ran.stdout.strip(), "") if ran.returncode == 0 else (None, f"{python}: {words}")


class Torch:
    """The PyTorch beside; version None: there is none, and why says so. device None: none is wanted."""

    def __init__(self, device, quick):
        self.device, self.quick = device, quick
        self.why, self.version, self.warming = "", None, None
        named = os.environ.get("MUSTER_TORCH_PYTHON")
        if device is None:
            return
        for python in [named] if named else dict.fromkeys([sys.executable, shutil.which("python3") or "python3"]):
            self.version, why = can_import(python, device)
            self.why += ("; " if self.why else "") + why
            if self.version:
                self.python = python
                break

    def argv(self, rows, steps):
        return [self.python, str(HERE / "torch_beside.py"), "--device", self.device, "--steps", str(steps)] + rows

    def warm(self, rows, log):
        """Compile beside what is not timed, so that it lies in PyTorch's cache when rows are."""
        with open(log, "w", encoding="utf-8") as out:
            self.warming = subprocess.Popen(self.argv(rows, 1), stdout=out, stderr=subprocess.STDOUT)

    def wait_warm(self, seconds, kill):
        if self.warming:
            try:
                self.warming.wait(max(0, seconds))
            except subprocess.TimeoutExpired:
                kill(self.warming)
            self.warming = None

    def rows(self, rows, steps, call, seconds):
        """{row: what is said of it}; rows that were not reached are not in it."""
        said = {}
        _, out = call(self.argv(rows, steps), os.environ.copy(), seconds, partial=True)
        for line in out.splitlines():
            if line.startswith('{"torch"'):
                one = json.loads(line)
                said[one["row"]] = one
        missing = [row for row in rows if row not in said]
        for row in missing:
            said[row] = {"row": row, "error": " ".join(out.split())[-200:] or "no time"}
        return said


class Speeds:
    """run is run.py's module, for its calls, jobs and table."""

    def __init__(self, run, args, folder, torch):
        self.run, self.args, self.torch = run, args, torch
        self.folder = pathlib.Path(folder)
        self.product = None  # operations a second of the measured square product
        self.rates = {}      # (model, length): Muster's tokens/s
        self.step_s = {}

    def lengths(self):
        return [16] if self.args.quick else [1024, 2048, 4096]

    def models(self):
        return ["tiny"] if self.args.quick else ["gpt2-124m", "gpt2-350m", "llama-1b"]

    def tokens_file(self, vocab):
        path = self.folder / f"tokens-{vocab}"
        if not path.exists():
            kind, n = ("H", 1 << 20) if vocab <= 65536 else ("I", 1 << 20)
            raw = array.array(kind, random.Random(3).randbytes(n * (2 if kind == "H" else 4)))
            path.write_bytes(array.array(kind, (x % vocab for x in raw)).tobytes())
        return str(path)

    def spec(self, name, length, steps, **checkpoint):
        model = dict(TINY) if name == "tiny" else {"preset": name}
        model["context"] = max(length, 1024) if name.startswith("gpt2") else length
        sequences = TOKENS[name] // length
        return {"name": "check-gpu-speed", "devices": {"min": 1, "max": 1}, "train": {
            "model": model, "data": {"path": self.tokens_file(SHAPES[name][6]), "format": "tokens",
                                     "order": "sequential"},
            "steps": steps, "precision": "bf16", "init": {"seed": 5},
            "batch": {"sequences": sequences, "micro": sequences, "length": length},
            "optimizer": {"lr": 6e-4, "schedule": "constant", "warmup": 0}},
            "parallel": {"virtual_workers": 1}, "checkpoint": {"every_steps": 0, **checkpoint}}

    def steps(self, jobs, spec, name, seconds):
        folder = jobs.train(spec, name, within=seconds)
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def figure(self, metric, value, unit, reference, ratio):
        self.run.figure(metric, value, unit, reference, ratio)

    def train(self, jobs, name, length):
        """Muster's tokens/s of one model and length, and its share of what products make."""
        steps = self.steps(jobs, self.spec(name, length, STEPS), f"{name}-{length}", 90)
        rate = statistics.median(s["tokens_per_s"] for s in steps[SKIP:])
        self.rates[name, length] = rate
        self.step_s[name, length] = statistics.median(s["step_ms"] for s in steps[SKIP:]) * 1e-3
        made = rate * flops_of_token(name, length)
        self.figure(f"{name}, T {length}: share of dense products in bf16", made * 1e-12, "TFLOP/s", "790 TFLOP/s",
                    made / DENSE)
        if self.product:
            self.share(name, length)

    def share(self, name, length):
        made = self.rates[name, length] * flops_of_token(name, length)
        self.figure(f"{name}, T {length}: share of this run's product", made * 1e-12, "TFLOP/s",
                    f"{self.product * 1e-12:.4g} TFLOP/s", made / self.product)

    def know_product(self, rate):
        """What models that were trained before are held against, too."""
        self.product = rate
        for name, length in self.rates:
            self.share(name, length)

    def beside(self, length):
        """PyTorch's rates of the models at one length."""
        names = [name for name in self.models() if (name, length) in self.rates]
        if not self.torch.version:
            for name in names:
                self.figure(f"{name}, T {length}: tokens/s", self.rates[name, length], "tokens/s",
                            "nothing: PyTorch with CUDA is not there", None)
            return
        rows = {f"{name}:{length}:{TOKENS[name] // length}": name for name in names}
        said = self.torch.rows(list(rows), STEPS - SKIP, self.run.call, self.run.left(170))
        for row, name in rows.items():
            one, rate = said[row], self.rates[name, length]
            words = f"PyTorch {self.torch.version}: "
            if "error" in one:
                self.figure(f"{name}, T {length}: tokens/s", rate, "tokens/s", words + one["error"], None)
            else:
                self.figure(f"{name}, T {length}: tokens/s", rate, "tokens/s",
                            f"{words}{one['value']:.4g} ({one['how']})", rate / one["value"])

    def attention(self, figures):
        """PyTorch's attention and product at the shapes of check's figures."""
        row = "attention:4096:16:16:128"
        rows = ["attention:64:4:4:16", "product:64"] if self.args.quick else [row, "product:8192"]
        said = self.torch.rows(rows, 1, self.run.call, self.run.left(60))
        for one in said.values():
            if "error" in one:
                raise self.run.Failed(one["error"])
        for way, how in itertools.product(("forward", "backward"), ("", ", cuDNN")):
            mine = figures.get(f"attention {way} bf16 4096{how}")
            theirs = said[rows[0]][way]
            if mine:
                self.figure(f"attention {way} bf16 4096{how}, beside PyTorch's", mine, "TFLOP/s",
                            f"scaled_dot_product_attention: {theirs:.4g}", mine / theirs)
        mine = figures.get("product bf16 8192^3")
        theirs = said[rows[1]]["value"]
        if mine:
            self.figure("product bf16 8192^3, beside PyTorch's", mine, "TFLOP/s", f"PyTorch's: {theirs:.4g}",
                        mine / theirs)

    def checkpoints(self, jobs):
        """Share of throughput that is lost to a checkpoint every ten steps, of the largest model."""
        name, length = self.models()[-1], self.lengths()[0]
        if (name, length) not in self.step_s:
            raise self.run.Failed(f"{name} was not trained without checkpoints")
        where = pathlib.Path(os.environ.get("MUSTER_CHECK_DIR", self.folder))
        layers, hidden, heads, kv_heads, dim, ffn, vocab, matrices = SHAPES[name]
        weights = layers * (hidden * dim * (2 * heads + 2 * kv_heads) + matrices * hidden * ffn) + vocab * hidden
        if shutil.disk_usage(where).free < 12 * weights * 3:
            raise self.run.Failed(f"'{where}' has too little room for checkpoints; name another by MUSTER_CHECK_DIR")
        kept = where / "muster-check-gpu-checkpoints"
        try:
            steps = self.steps(jobs, self.spec(name, length, 3 * CHECKPOINT_EVERY, every_steps=CHECKPOINT_EVERY,
                                               keep=2, dir=str(kept)), f"{name}-saved", 150)
        finally:
            shutil.rmtree(kept, ignore_errors=True)
        counted = steps[CHECKPOINT_EVERY:3 * CHECKPOINT_EVERY]
        took = sum(s["step_ms"] + s["stall_ms"] for s in counted) * 1e-3
        lost = 1 - self.step_s[name, length] * len(counted) / took
        logs = "".join(f.read_text(errors="replace") for f in (self.folder / f"{name}-saved").rglob("*.log"))
        written = [float(mib) * 2**20 * 1e-9 / max(float(s), 0.01)
                   for mib, s in re.findall(r"checkpoint \S+: ([0-9.]+) MiB in ([0-9.]+) s", logs)]
        self.figure(f"{name}: throughput lost to a checkpoint every {CHECKPOINT_EVERY} steps", lost, "share",
                    "0.02", lost / 0.02)
        if written:
            self.figure(f"{name}: checkpoints to '{where}'", statistics.median(written), "GB/s",
                        f"a step of {self.step_s[name, length]:.3g} s and {12e-9 * weights:.3g} GB", None)

    def all_rows(self):
        return [f"{name}:{length}:{TOKENS[name] // length}" for length in self.lengths() for name in self.models()]

    def wait_for_torch(self, seconds):
        """Until PyTorch has compiled what will be timed; a note when it took too long."""
        began = time.monotonic()
        self.torch.wait_warm(seconds, self.run.kill_tree)
        waited = time.monotonic() - began
        if waited > 1:
            print(f"waited {waited:.0f} s for PyTorch to compile, {TIMED}", flush=True)
