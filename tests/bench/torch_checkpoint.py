"""What checkpoints cost a PyTorch program: muster.torch.Checkpointer beside torch.save, in turns.

    python3 tests/bench/torch_checkpoint.py [--dir DIR] [--quick] [--adopt] [--mib 1024]

Prints one JSON object a line. Rows `train`: a GPT of 10 million parameters under DistributedDataParallel, two ranks
of one thread by gloo; of 40 steps the first of each ten is followed by a checkpoint; loss_percent is what the
median turn takes longer than the median turn without. Row `save_call`: how long save() holds the program. Rows
`durable`: a model of so many MiB, from the call until it is on the disk; torch.save is followed by fsync of the
file and its folder. disk_s is what the same bytes take, written from memory past the page cache to a file that is
preallocated, by 8 threads, then synced: no save is much faster. bound is torch.save against that: the most that
speedup can be.
"""
import argparse
import concurrent.futures
import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, f"{ROOT}/api/python"]
os.environ.setdefault("MUSTER_LIB", os.path.join(ROOT, "build", "lib", "muster"))
from tests.bench.fast_blas import with_fast_blas  # noqa: E402  pylint: disable=wrong-import-position

if __name__ == "__main__" and "durable" not in sys.argv:
    with_fast_blas()  # before PyTorch is loaded
import torch  # noqa: E402  pylint: disable=wrong-import-position
from muster.torch import Checkpointer  # noqa: E402  pylint: disable=wrong-import-position
from tests.torch_ranks import ranks  # noqa: E402  pylint: disable=wrong-import-position

STEPS, EVERY, WIDTH, LAYERS, VOCAB, LENGTH = 40, 10, 384, 5, 2048, 64


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (y.view(n, t, width // 64, -1).transpose(1, 2) for y in self.qkv(self.norms[0](x)).chunk(3, dim=2))
        mask = torch.full((t, t), float("-inf")).triu(1)
        a = torch.softmax(q @ k.transpose(2, 3) * 64 ** -0.5 + mask, dim=3) @ v
        x = x + self.out(a.transpose(1, 2).reshape(n, t, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def gpt(width=WIDTH, layers=LAYERS, vocab=VOCAB, seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Embedding(vocab, width), *[Block(width) for _ in range(layers)],
                               torch.nn.LayerNorm(width), torch.nn.Linear(width, vocab, bias=False))


def torch_save(state, path):
    with open(path, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def train(rank, _, folder, turns, steps, adopt):
    """Seconds of each turn by kind, and of each call of save()."""
    model = gpt()
    checkpointer = Checkpointer(f"{folder}/muster", adopt=adopt)
    if adopt:
        checkpointer.adopt(model)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    took, calls, step = {"none": [], "muster": [], "torch.save": []}, [], 0
    for turn in range(-1, turns):  # the first makes all that is made once
        for kind, seconds in took.items():
            torch.distributed.barrier()
            begin, last = time.perf_counter(), None
            for i in range(steps if turn >= 0 else EVERY):
                step += 1
                x = torch.randint(0, VOCAB, (4, LENGTH + 1), generator=torch.Generator().manual_seed(step + rank))
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
                optimizer.step()
                if i % EVERY:
                    continue
                if kind == "muster":
                    at = time.perf_counter()
                    last = checkpointer.save(step, model, optimizer)
                    calls += [time.perf_counter() - at] * (turn >= 0)
                elif kind == "torch.save" and rank == 0:
                    torch_save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()},
                               f"{folder}/torch-{step % 3}.pt")
            if turn >= 0:
                seconds.append(time.perf_counter() - begin)
            if last is not None:
                last.wait()
    return took, calls


def say(**row):
    print(json.dumps(row), flush=True)


def measure_training(folder, quick, adopt):
    steps = EVERY if quick else STEPS
    took, calls = ranks(2, train, folder, 1 if quick else 8, steps, adopt)[0]
    plain = statistics.median(took["none"])
    for kind, seconds in took.items():
        say(what="train", kind=kind, turns=len(seconds), step_ms=round(statistics.median(seconds) / steps * 1e3, 1),
            loss_percent=round((statistics.median(seconds) / plain - 1) * 100, 2))
    calls.sort()
    say(what="save_call", n=len(calls), p50_ms=round(statistics.median(calls) * 1e3, 2),
        p99_ms=round(calls[int(0.99 * (len(calls) - 1))] * 1e3, 2))


def bare_disk(folder, mib):
    """Write as many bytes as fast as the disk takes them."""
    piece = mmap.mmap(-1, 4 << 20)
    piece.write(os.urandom(len(piece)))
    path = f"{folder}/bare"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o600)
    os.posix_fallocate(file, 0, mib << 20)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for wrote in threads.map(lambda at: os.pwrite(file, piece, at), range(0, mib << 20, len(piece))):
            assert wrote == len(piece)
    os.fsync(file)
    os.close(file)
    os.unlink(path)


def measure_durable(folder, mib, turns, adopt):
    model = torch.nn.Module()
    model.parts = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(4 << 20)) for _ in range(mib // 16)])
    checkpointer = Checkpointer(f"{folder}/durable", adopt=adopt)
    took = {"disk": [], "muster": [], "torch.save": []}
    for turn in range(turns + 1):
        for kind, seconds in took.items():
            begin = time.perf_counter()
            if kind == "muster":
                checkpointer.save(turn, model, wait=True)
            elif kind == "disk":
                bare_disk(folder, mib)
            else:
                torch_save(model.state_dict(), f"{folder}/durable.pt")
            seconds += [time.perf_counter() - begin] * (turn > 0)
    medians = {kind: statistics.median(seconds) for kind, seconds in took.items()}
    say(what="durable", mib=mib, turns=turns, muster_s=round(medians["muster"], 3),
        torch_save_s=round(medians["torch.save"], 3), speedup=round(medians["torch.save"] / medians["muster"], 2),
        disk_s=round(medians["disk"], 3), bound=round(medians["torch.save"] / medians["disk"], 2),
        times_disk=round(medians["muster"] / medians["disk"], 2), load=os.getloadavg()[0])
    checkpointer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--dir", default=os.path.join(ROOT, "build"), help="on the disk that is measured")
    parser.add_argument("--quick", action="store_true", help="fewer turns, a small model")
    parser.add_argument("--adopt", action="store_true", help="with memory that is written without a copy")
    parser.add_argument("--only", choices=["train", "durable"])
    parser.add_argument("--mib", type=int, default=1024, help="of the rows `durable`")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(dir=options.dir)
    try:
        if options.only != "durable":
            measure_training(folder, options.quick, options.adopt)
        if options.only != "train":
            measure_durable(folder, 64 if options.quick else options.mib, 2 if options.quick else 5, options.adopt)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
