"""muster.torch.ddp_codec_hook beside plain DistributedDataParallel: steps a second over a slow link, and the loss.

    python3 tests/bench/ddp_codec.py [--rate 100mbit] [--steps 8] [--rounds 3] [--loss-steps 1000] [--seeds 1] [--quick]
                                     [--only speed|loss] [--kinds plain,r6]

Prints one JSON object a line. Rows `speed`: a GPT of 10 million parameters, two ranks of one thread, each in a network
namespace of its own (root), joined by a veth pair that tc shapes; medians of steps, taken in turns; compute_ms: a
step without communication. Rows `loss`: a GPT of 0.9 million parameters on text, the loss of text that
it was not trained on, after so many steps with each codec and without, and whether the replicas are bit-equal.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, f"{ROOT}/api/python"]
os.environ.setdefault("MUSTER_LIB", os.path.join(ROOT, "build", "lib", "muster"))
from tests.bench.fast_blas import with_fast_blas  # noqa: E402  pylint: disable=wrong-import-position

if __name__ == "__main__":
    with_fast_blas()  # before PyTorch is loaded
import torch  # noqa: E402  pylint: disable=wrong-import-position
import torch.distributed as dist  # noqa: E402  pylint: disable=wrong-import-position
from muster.torch import ddp_codec_hook  # noqa: E402  pylint: disable=wrong-import-position
from tests import specs  # noqa: E402  pylint: disable=wrong-import-position
from tests.bench.slow_link import Link  # noqa: E402  pylint: disable=wrong-import-position
from tests.bench.torch_checkpoint import VOCAB, gpt  # noqa: E402  pylint: disable=wrong-import-position
from tests.torch_ranks import ranks  # noqa: E402  pylint: disable=wrong-import-position

BATCH, LENGTH, WARM, TIMES = 2, 64, 2, 3.0
KINDS = ("plain", "r6", "r8", "sdp4bit", "auto")


def loss_of(model, x):
    return torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def wrap(model, kind):
    model = torch.nn.parallel.DistributedDataParallel(model)
    return model, None if kind == "plain" else ddp_codec_hook(model, kind)


# --- speed ------------------------------------------------------------------------------------------------------------


class Training:
    """Steps of a model whose gradients travel in one way."""

    def __init__(self, kind, rank, quick):
        self.rank, self.n, self.seconds = rank, 0, []
        self.model, self.hook = wrap(gpt(*((64, 2) if quick else ())), kind)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self):
        self.n += 1
        chance = torch.Generator().manual_seed(2 * self.n + self.rank)
        x = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), generator=chance)
        self.optimizer.zero_grad()
        loss_of(self.model, x).backward()
        self.optimizer.step()

    def steps(self, n):
        dist.barrier()
        for _ in range(n):
            began = time.perf_counter()
            self.step()
            self.seconds.append(time.perf_counter() - began)


def run_rank(a):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://10.98.7.1:{a.port}", rank=a.rank, world_size=2)
    kinds = {kind: Training(kind, a.rank, a.quick) for kind in a.kinds.split(",")}
    alone = kinds["plain"]
    with alone.model.no_sync():
        alone.steps(5)
    compute = statistics.median(alone.seconds)
    for kind, training in kinds.items():
        training.steps(WARM if kind != "auto" else 18)
    for training in kinds.values():
        training.seconds.clear()
    for _ in range(a.rounds):
        for training in kinds.values():
            training.steps(1)
            training.seconds.pop()  # what was left over from the turn before
            training.steps(a.steps)
    if a.rank == 0:
        parameters = sum(p.numel() for p in alone.model.parameters())
        plain = statistics.median(alone.seconds)
        for kind, training in kinds.items():
            step = statistics.median(training.seconds)
            print(json.dumps({
                "what": "speed", "kind": kind, "rate": a.rate, "parameters": parameters, "steps": len(training.seconds),
                "compute_ms": round(compute * 1e3), "step_ms": round(step * 1e3), "times_plain": round(plain / step, 2),
                **({"bytes": training.hook.bytes, "codec": training.hook.codec} if training.hook else {})}), flush=True)
    dist.barrier()


def measure_speed(a):
    with contextlib.closing(Link(a.rate)) as link:
        started = []
        for rank, name in enumerate(link.names):
            env = dict(os.environ, GLOO_SOCKET_IFNAME=f"muster{rank}", OMP_NUM_THREADS="1")
            started.append(subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, os.path.abspath(__file__), "--rank", str(rank),
                 "--rate", a.rate, "--kinds", a.kinds, "--steps", str(a.steps), "--rounds", str(a.rounds),
                 *(["--quick"] if a.quick else [])], env=env, stdout=subprocess.PIPE, text=True))
        lines = [p.communicate()[0] for p in started]
        if any(p.returncode for p in started):
            sys.exit("a rank failed")
    print(lines[0], end="", flush=True)
    return next(row["times_plain"] for row in map(json.loads, lines[0].splitlines()) if row["kind"] == "r6")


# --- loss -------------------------------------------------------------------------------------------------------------


def learn(rank, _, path, kind, steps, seed, width):
    """The loss on the last tenth of a text after training on the rest, and a sum over this rank's weights."""
    with open(path, "rb") as f:
        text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()
    train, held = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    model, _ = wrap(gpt(width, 4, 256, seed), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def batch(of, n, number):
        at = torch.randint(0, len(of) - LENGTH - 1, (n,), generator=torch.Generator().manual_seed(number))
        return torch.stack([of[i:i + LENGTH + 1] for i in at])

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / steps)
        optimizer.zero_grad()
        loss_of(model, batch(train, 8, (seed << 40) + 2 * step + rank)).backward()
        optimizer.step()
    with torch.no_grad():
        final = statistics.mean(float(loss_of(model.module, batch(held, 32, i))) for i in range(8))
    return final, b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def measure_loss(a):
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = a.corpus or specs.write_corpus(os.path.join(folder, "corpus"), 20000)
        for seed in range(1, a.seeds + 1):
            plain = None
            for kind in ("plain", "r6", "r8", "sdp4bit"):
                (loss, weights), (_, other) = ranks(2, learn, path, kind, a.loss_steps, seed, 64 if a.quick else 128)
                plain = plain or loss
                row = {"what": "loss", "kind": kind, "seed": seed, "steps": a.loss_steps, "loss": round(loss, 4),
                       "percent": round((loss / plain - 1) * 100, 3), "replicas_equal": weights == other}
                print(json.dumps(row), flush=True)
                worst = max(worst, row["percent"] if kind == "r6" else 0, 0 if weights == other else 100)
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--kinds", default=",".join(KINDS), help="with plain and r6")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--loss-steps", type=int, default=1000)
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--corpus")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", choices=["speed", "loss"])
    p.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    p.add_argument("--port", type=int, default=29400, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.quick:
        a.steps, a.rounds, a.loss_steps = min(a.steps, 2), 1, min(a.loss_steps, 20)
    if a.rank is not None:
        run_rank(a)
        return 0
    times = measure_speed(a) if a.only != "loss" else TIMES
    worst = measure_loss(a) if a.only != "speed" else 0.0
    print(f"r6: {times:.2f} times the steps of plain (wanted: {TIMES:.0f}); loss {worst:+.2f} % (wanted: within 0.5 %)",
          file=sys.stderr)
    return 0 if a.quick or (times >= TIMES and worst <= 0.5) else 1


if __name__ == "__main__":
    sys.exit(main())
