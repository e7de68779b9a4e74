"""Start the ranks of a training run by hand, the way an agent does: one folder, one process a rank."""
import json
import math
import os
import signal
import struct
import subprocess
import tempfile
import time

from tests.hold import Hold
from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MUSTER_BUILD", os.path.join(ROOT, "build"))
TRAIN = os.path.join(BUILD, "bin", "muster-train")

DONE, USER, INTERNAL, NODE, ABORTED, DRAINED = 0, 65, 70, 74, 75, 76
SAVE, HAND_OVER, MOVE, DRAIN, ABORT = 1, 2, 3, 4, 5


class Run:
    """A world of ranks of one generation. `with Run(...) as run: run.wait()`; what is left is killed at the end.
    hold_at: a step that it waits before, until run.hold (tests/hold.py) says otherwise."""

    def __init__(self, folder, spec, tp=1, cp=1, pp=1, dp=1, generation=1, nodes=1, threads=1, env=None,
                 memory=None, memory_limit=None, source_nodes=(), hold_at=None, **layout):
        self.job = os.path.join(folder, "job")
        self.folder = os.path.join(folder, "runs", "j1-g%d" % generation)
        os.makedirs(os.path.join(self.folder, "rendezvous"))
        os.makedirs(self.job, exist_ok=True)
        self.world = tp * cp * pp * dp
        layout = dict({"tp": tp, "pp": pp, "cp": cp, "dp": dp}, **layout)
        assignment = {
            "job": "j1", "generation": generation, "order": "run", "grace_s": 10, "dir": self.job, "layout": layout,
            "world": self.world, "master_port": 0, "spec": spec, "node": "n1", "threads": threads,
            "ranks": [{"rank": r, "node": "n%d" % (r * nodes // self.world + 1), "slot": r, "class": "cpu",
                       "address": "127.0.0.1"} for r in range(self.world)],
        }
        # memory: of the one node, or a list with that of each; then each has a folder of its own, as on its own host
        memories = memory if isinstance(memory, list) else [memory]
        self.folders = [self.folder] + [f"{self.folder}-n{i + 2}" for i in range(len(memories) - 1)]
        self.folder_of = [self.folders[r * nodes // self.world if len(memories) > 1 else 0] for r in range(self.world)]
        # source_nodes: memories of nodes that the job has left; each gets a process there, after the ranks
        if source_nodes:
            assignment["givers"] = [{"rank": self.world + i, "node": f"left{i}", "address": "127.0.0.1"}
                                    for i in range(len(source_nodes))]
        left = [f"{self.folder}-left{i}" for i in range(len(source_nodes))]
        self.folders += left
        self.folder_of += left
        for folder, where in zip(self.folders, memories + list(source_nodes)):
            if folder != self.folder:
                os.makedirs(folder)
                os.symlink(os.path.join(self.folder, "rendezvous"), os.path.join(folder, "rendezvous"))
            with open(os.path.join(folder, "assignment.json"), "w") as f:
                json.dump(assignment | ({"memory": str(where)} if where else {}) |
                          ({"memory_limit": memory_limit} if memory_limit else {}), f)
        self.env = dict(os.environ, OMP_NUM_THREADS=str(threads), **(env or {}))
        if hold_at is not None:
            self.hold = Hold(os.path.join(self.folder, "hold"))
            self.hold.at(hold_at)
            self.env.update(self.hold.env)
        self.ranks, self.source_nodes = [], []

    def start(self):
        for r in range(len(self.folder_of)):
            self.start_rank(r)
        return self

    def start_rank(self, r):
        with open(self.log_path(r), "wb") as log:
            p = subprocess.Popen([TRAIN, "--run", self.folder_of[r], "--rank", str(r)], stdout=log, stderr=log,
                                 stdin=subprocess.DEVNULL, env=self.env)
        (self.ranks if r < self.world else self.source_nodes).append(p)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        for p in self.ranks + self.source_nodes:
            if p.poll() is None:
                p.kill()
            p.wait()

    def log_path(self, rank):
        return os.path.join(self.folder, "rank-%05d.log" % rank)

    def log(self, rank=0):
        with open(self.log_path(rank), errors="replace") as f:
            return f.read()

    def wait(self, seconds=PATIENCE_S):
        """Exit codes of all ranks. When one fails, the others get SIGTERM, as from an agent."""
        deadline = time.monotonic() + seconds
        while any(p.poll() is None for p in self.ranks):
            if any(p.poll() not in (None, DONE, DRAINED) for p in self.ranks):
                for p in self.ranks:
                    if p.poll() is None:
                        p.send_signal(signal.SIGTERM)
            left = deadline - time.monotonic()
            assert left > 0, "ranks still run after %d s:\n%s" % (seconds, self.log())
            for p in self.ranks:
                if p.poll() is None:
                    try:
                        p.wait(min(left, 0.1))
                    except subprocess.TimeoutExpired:
                        pass
                    break
        return [p.returncode for p in self.ranks]

    def must(self, want=DONE, seconds=PATIENCE_S):
        codes = self.wait(seconds)
        assert codes == [want] * self.world, "exit codes %s:\n%s" % (codes, "\n".join(
            "--- rank %d\n%s" % (r, self.log(r)[-2000:]) for r in range(self.world)))
        return self

    def lines(self, path):
        if not os.path.exists(path):
            return []
        with open(path) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def metrics(self):
        return self.lines(os.path.join(self.job, "metrics.jsonl"))

    def events(self, kind=None):
        return [e for folder in self.folders for e in self.lines(os.path.join(folder, "events.jsonl"))
                if kind in (None, e["type"])]

    def flight_path(self, rank):
        return os.path.join(self.folder_of[rank], "rank-%05d.flight" % rank)

    def order(self, rank, order):
        """What the agent writes into a rank's flight page (worker/flight/flight.c: the word at byte 16)."""
        with open(self.flight_path(rank), "r+b") as f:
            f.seek(16)
            f.write(struct.pack("<I", order))

    def checkpoints(self):
        folder = os.path.join(self.job, "checkpoints")
        return sorted(int(n[5:]) for n in os.listdir(folder)
                      if n.startswith("step-") and os.path.exists(os.path.join(folder, n, "MANIFEST"))
                      ) if os.path.isdir(folder) else []

    def walk(self, *steps, ready):
        """Held before each of the steps until ready(step)."""
        for step in steps:
            self.hold.at(step)
            self.until(lambda: ready(step))

    def until(self, ready, seconds=PATIENCE_S):
        """Wait until ready() gives something true, and give that."""
        deadline = time.monotonic() + seconds
        while True:
            got = ready()
            if got:
                return got
            dead = [p.returncode for p in self.ranks if p.poll() is not None]
            assert not dead, "ranks ended with %s:\n%s" % (dead, self.log())
            assert time.monotonic() < deadline, "not ready after %d s:\n%s" % (seconds, self.log())
            try:
                self.ranks[0].wait(0.02)
            except subprocess.TimeoutExpired:
                pass


def train(spec, folder=None, want=DONE, seconds=PATIENCE_S, **how):
    """Run to the end. The Run, with its files still there while folder is."""
    with Run(folder or tempfile.mkdtemp(), spec, **how) as run:
        return run.must(want, seconds)


def digest(run):
    """Of the newest checkpoint, as `muster checkpoint digest` prints it."""
    return subprocess.run([os.path.join(BUILD, "bin", "muster"), "checkpoint", "digest",
                           os.path.join(run.job, "checkpoints")], capture_output=True, text=True, check=True).stdout


def losses(run):
    return [m["loss"] for m in run.metrics()]


def relative(a, b):
    """Largest relative difference of two equally long lists."""
    assert len(a) == len(b) and a, "%d and %d numbers" % (len(a), len(b))
    assert all(math.isfinite(x) for x in a + b)
    return max(abs(x - y) / max(abs(x), abs(y), 1e-300) for x, y in zip(a, b))
