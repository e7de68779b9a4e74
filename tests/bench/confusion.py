"""Which faults of ranks are told as what: a confusion table over real faults in real processes, and false alarms.

    python3 tests/bench/confusion.py [--quick] [--times N] [--only FAULT,…] [--clean SECONDS]

Prints one JSON object a line, as every benchmark does, and the table on standard error. Each fault meets a random rank
of a random layout of 2 to 4 ranks; it is told right if the verdict has its class and names that rank. MUSTER_SEED
repeats a run. At the end a run trains for so many SECONDS, evaluates, saves and is rescaled beside processes that take
the processor from it: each verdict on it is a false alarm, but that its host is busy. --quick: each fault once, 30 s.
"""
import argparse
import collections
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests import specs  # noqa: E402
from tests.cluster import Cluster, wait_for  # noqa: E402
from tests.fault.test_hangs import INJECT, step_of  # noqa: E402
from tests.fault.test_slow import MODEL, SlowRank, shape, stopped_by_turns  # noqa: E402
from tests.hosts import Hosts, can_make_hosts  # noqa: E402
from tests.integration.test_many_hosts import HOSTS, HostCluster  # noqa: E402

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
TP2, TP2_OF_4, TP2_PP2, PP2, DP2, DP4 = [dict(zip(("tp", "pp", "devices"), of)) for of in (
    (2, 1, 2), (2, 1, 4), (2, 2, 4), (1, 2, 2), (1, 1, 2), (1, 1, 4))]
ALL = [TP2, TP2_OF_4, TP2_PP2, PP2, DP2, DP4]
# Fault -> what it is to be told as, and the layouts in which it has an effect that can be told.
FAULTS = {
    "stop": ("stopped", ALL),
    "kill": ("signal 9", ALL),
    "segv": ("signal 11", ALL),
    "spin": ("not-entered", ALL),
    "lock": ("not-entered", ALL),
    "data": ("phase", [TP2, DP4, TP2_PP2]),
    "link": ("in-call", [TP2_OF_4, DP4]),
    "skip": ("differs", [TP2_OF_4, TP2_PP2]),
    "swap": ("differs", [TP2_OF_4]),
    "size": ("differs", [TP2_OF_4, TP2_PP2]),
    "nan": ("not-finite", [TP2_OF_4, DP4]),
    "slow": ("compute", [TP2, DP2, DP4]),
    "withheld": ("host", [DP2, DP4]),
    "slow-link": ("link", [DP2]),
}
SLOW_FROM = 80  # steps by which a run's pace is known
# Events that are a verdict, and where each has its class and its ranks.
VERDICTS = {"hang": lambda d: (d["class"], d["roots"]), "slow": lambda d: (d["class"], [d["rank"]])}


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "confusion", "metric": metric, "value": round(value, 4), "unit": unit,
                      "reference": reference, "ratio": round(ratio, 4)}), flush=True)


def wilson(right, of):
    """The lower end of the 95 % interval of a share."""
    z, p = 1.96, right / of
    return (p + z * z / (2 * of) - z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))) / (1 + z * z / of)


def verdicts_of(cluster, job):
    return [e for e in cluster.events(job) if e["cause"]["code"] in VERDICTS and
            (e.get("data") or {}).get("class") not in (None, "stage")]


def verdict_of(cluster, job, before=0):
    """(class, ranks, step) of the first verdict on the job's run but for so many before it; None: there is none."""
    for e in verdicts_of(cluster, job)[before:]:
        return *VERDICTS[e["cause"]["code"]](e["data"]), e["data"].get("first_step")
    outcome = cluster.job(job)["outcome"]
    if outcome and outcome.get("cause") == "numbers":
        return "not-finite", [outcome["rank"]], None
    if outcome and outcome.get("signal"):
        return f"signal {outcome['signal']}", [outcome["rank"]], None
    return None


class Faults:
    """A cluster on one host whose ranks can have each fault but that of a link."""

    def __init__(self, folder):
        self.slow = SlowRank(folder)
        self.order = os.path.join(folder, "order")
        self.cluster = Cluster(os.path.join(folder, "c"), slots=0, server_args=["--round", "1"],
                               env=dict(self.slow.env, FAKE_INJECT=self.order))
        self.cluster.programs = INJECT
        self.corpus = specs.write_corpus(os.path.join(folder, "corpus.txt"))

    def start(self):
        self.cluster.start_agent("n1", "cpu:4")
        self.cluster.wait_nodes(["n1"])

    def begin(self, layout, after):
        """A run that is held once it has done so many steps, so that a fault that is slow begins at a known one."""
        spec = specs.train(self.corpus, steps=1000000, every_steps=0 if after else 10, **layout)
        if after:
            spec["train"]["model"] = dict(MODEL)
            self.cluster.hold.at(after)
        job = self.cluster.submit(spec)["id"]
        wait_for("steps", lambda: step_of(self.cluster, job) >= (after - 1 if after else 20))
        return job

    @contextlib.contextmanager
    def fault(self, job, name, rank):
        pid = self.cluster.rank_pids(job)[rank]
        if name in ("stop", "kill", "segv"):
            os.kill(pid, {"stop": signal.SIGSTOP, "kill": signal.SIGKILL, "segv": signal.SIGSEGV}[name])
        elif name == "slow":
            self.slow.set(rank, 50)
        elif name != "withheld":
            with open(f"{self.order}.new", "w", encoding="ascii") as f:
                f.write(f"{name} {rank}\n")
            os.rename(f"{self.order}.new", self.order)
        with stopped_by_turns(pid, 0.03, 0.02) if name == "withheld" else contextlib.nullcontext():
            self.cluster.hold.release()
            yield
        self.slow.set(-1, 0)

    def one(self, draw, name):
        layout = draw.choice(FAULTS[name][1])
        # only ranks of the first stage read data
        victim = draw.randrange(layout["tp"] if name == "data" and layout["pp"] > 1 else layout["devices"])
        job = self.begin(layout, SLOW_FROM if name in ("slow", "withheld") else 0)
        early = verdicts_of(self.cluster, job)  # a busy host withholds its processors also without a fault
        for e in early:
            print(f"{name}: before its fault: {e['cause']['text']}", file=sys.stderr, flush=True)
        began = time.monotonic()
        with self.fault(job, name, victim):
            told = wait_for("a verdict", lambda: verdict_of(self.cluster, job, len(early)))
        took = time.monotonic() - began
        self.cluster.api("POST", f"/v1/jobs/{job}/cancel")
        self.cluster.wait(job, "cancelled")
        return told, victim, took


def slow_link(folder):
    """Between two hosts a link gives 0.3 of what it gave."""
    with Hosts(HOSTS) as hosts, hosts.inside("head"), HostCluster(folder, hosts) as cluster:
        corpus = specs.write_corpus(os.path.join(folder, "corpus.txt"))
        for host in "node1", "node2":
            cluster.start_agent(host, "cpu:1")
            shape(hosts, host, "400mbit")
        cluster.wait_nodes(["node1", "node2"])
        cluster.hold.at(SLOW_FROM)
        spec = specs.train(corpus, steps=1000000, every_steps=0, **DP2)
        spec["train"]["model"] = dict(MODEL)
        job = cluster.submit(spec)["id"]
        wait_for("steps", lambda: step_of(cluster, job) >= SLOW_FROM - 1)
        for host in "node1", "node2":
            shape(hosts, host, "120mbit")
        began = time.monotonic()
        cluster.hold.release()
        told = wait_for("a verdict", lambda: verdict_of(cluster, job))
        took = time.monotonic() - began
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
        cluster.wait(job, "cancelled")
    return told, None, took


def is_right(name, told, victim):
    class_, ranks, _ = told
    if class_ != FAULTS[name][0]:
        return False
    if victim is None or name == "nan":  # a sum of all ranks' is what is not finite
        return True
    return victim in ranks if name == "link" else ranks == [victim]


def measure(names, times):
    table, took, steps, right = collections.Counter(), collections.defaultdict(list), [], collections.Counter()
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        faults = Faults(folder)
        with faults.cluster:
            faults.start()
            for time_ in range(times):
                for name in names:
                    if name == "slow-link":
                        os.mkdir(f"{folder}/links-{time_}")
                        told, victim, seconds = slow_link(f"{folder}/links-{time_}")
                    else:
                        told, victim, seconds = faults.one(draw, name)
                    ok = is_right(name, told, victim)
                    right[name] += ok
                    table[name, told[0] if ok or told[0] != FAULTS[name][0] else f"{told[0]}, another rank"] += 1
                    if told[2] is not None:
                        steps.append(told[2] + 10 - SLOW_FROM)
                    else:
                        took[name].append(seconds)
                    if not ok:
                        print(f"{name}: told as {told}, meant rank {victim}", file=sys.stderr, flush=True)
    print_table(names, table)
    for name in names:
        row(f"{name}_right", right[name] / times, "share", FAULTS[name][0], right[name] / times)
    every = times * len(names)
    row("right", sum(right.values()) / every, "share", "0.98 wanted", sum(right.values()) / every / 0.98)
    row("right_at_least", wilson(sum(right.values()), every), "share", f"95 % interval of {every}", 1)
    hangs = sorted(s for n in took for s in took[n] if n not in ("kill", "segv"))
    crashes = sorted(s for n in ("kill", "segv") for s in took[n])
    for what, of, wanted in ("hang", hangs, 6), ("crash", crashes, 1):
        if of:
            for metric, value in ("p50", statistics.median(of)), ("worst", of[-1]):
                row(f"{what}_{metric}_s", value, "s", f"p99 of {wanted} s wanted", value / wanted)
    if steps:
        row("slow_steps_worst", max(steps), "steps", "20 steps wanted", max(steps) / 20)


def print_table(names, table):
    for name in names:
        told = ", ".join(f"{told} {n}" for (of, told), n in sorted(table.items()) if of == name)
        print(f"{name:10} told as  {told}", file=sys.stderr, flush=True)


def clean(seconds):
    """Verdicts on a run that has no fault."""
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, \
            Cluster(folder, slots=4, server_args=["--round", "1"]) as cluster:
        spec = specs.train(specs.write_corpus(f"{folder}/corpus.txt"), steps=10000000, every_steps=25)
        spec["devices"] = {"min": 2, "max": 4}
        spec["train"]["eval"]["every_steps"] = 20
        job = cluster.submit(spec)["id"]
        wait_for("steps", lambda: step_of(cluster, job) > 20)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(draw.randint(0, 4))]
            try:
                until = time.monotonic() + draw.uniform(5, 20)
                reached = step_of(cluster, job)
                wait_for("a while, and steps", lambda u=until, r=reached: time.monotonic() > u and
                         step_of(cluster, job) > r)
            finally:
                for p in busy:
                    p.kill()
                    p.wait()
            devices = draw.choice([2, 3, 4])
            cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": devices, "max": devices}})
        told = verdicts_of(cluster, job)
        alarms = [e["cause"]["text"] for e in told]
        true = sum(e["data"]["class"] == "host" for e in told)  # it is busy: that is what the other processes are for
        found = cluster.job(job)
        print(f"clean: {found['generation']} attempts, step {step_of(cluster, job)}, restarts {found['restarts']}",
              *alarms, sep="\n  ", file=sys.stderr, flush=True)
        row("host_busy", true, f"in {seconds} s", "as it is", 1)
        row("false_alarms", len(alarms) - true, f"in {seconds} s", "none wanted", len(alarms) - true)


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--quick", action="store_true")
    p.add_argument("--times", type=int, default=40)
    p.add_argument("--only", default=",".join(FAULTS))
    p.add_argument("--clean", type=int, default=3600)
    args = p.parse_args()
    names = [n for n in args.only.split(",") if n]
    unknown = [n for n in names if n not in FAULTS]
    if unknown:
        p.error(f"no fault named {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    if "slow-link" in names and not can_make_hosts():
        print("slow-link is left out: network namespaces cannot be made here", file=sys.stderr)
        names.remove("slow-link")
    print(f"MUSTER_SEED={SEED}", file=sys.stderr, flush=True)
    if names:
        measure(names, 1 if args.quick else args.times)
    if args.clean:
        clean(30 if args.quick else args.clean)


if __name__ == "__main__":
    main()
