"""Which faults of ranks are told as what: a confusion table over real faults in real processes, and false alarms.

    python3 tests/bench/confusion.py [--quick] [--times N] [--seconds S] [--only FAULT,…] [--results FILE,…]
                                     [--load-max L] [--clean SECONDS]

Prints one JSON object a line, as every benchmark does, and the table on standard error. Each fault meets a random rank
of a random layout of 2 to 4 ranks; it is told right if the verdict has its class and names that rank. MUSTER_SEED
repeats a run. Each trial is a line of FILE, where one is given: those that it has are not run again, so that a run that
was ended goes on, and --times 0 prints its table. Of several files the first is written to, and the table is of all of
them: trials may be run in slices. A line has the machine's load at its beginning; where that is above L the trial is
left out of the table: who is to be denied a processor there does not have one anyway. --clean alone: a run trains for
so many SECONDS, evaluates, saves and is rescaled beside processes that take the processor from it; each verdict on it
is a false alarm, but that its host is busy. Without options: each fault 40 times, and that for an hour; --quick: each
once, and 30 s. With --seconds no trial begins after so long: faults take turns, so all of them have been met as often,
or once more. A fault of which nothing is told within two minutes is told as "nothing".
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
from tests.fault.test_slow import MODEL, SlowRank, can_limit, limited_to, shape, stopped_by_turns  # noqa: E402
from tests.hosts import Hosts, can_make_hosts  # noqa: E402
from tests.integration.test_many_hosts import HOSTS, HostCluster  # noqa: E402

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
TP2, TP2_OF_4, TP2_PP2, PP2, CP2, CP2_OF_4, DP2, DP4 = [dict(zip(("tp", "pp", "cp", "devices"), of)) for of in (
    (2, 1, 1, 2), (2, 1, 1, 4), (2, 2, 1, 4), (1, 2, 1, 2), (1, 1, 2, 2), (1, 1, 2, 4), (1, 1, 1, 2), (1, 1, 1, 4))]
ALL = [TP2, TP2_OF_4, TP2_PP2, PP2, CP2, CP2_OF_4, DP2, DP4]
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
    "nan": ("not-finite", [TP2_OF_4, CP2_OF_4, DP4]),
    "slow": ("compute", [TP2, CP2, DP2, DP4]),
    "withheld": ("host", [DP2, DP4]),  # stopped by turns
    "limit": ("host", [DP2, DP4]),     # of its control group
    "crowd": ("host", [DP2]),          # beside other processes on its processor
    "slow-link": ("link", [DP2]),
    "disk": ("disk", [DP2, TP2_OF_4]),
}
SLOW = ("slow", "withheld", "limit", "crowd", "slow-link")
STEPS_OF_30_MS = dict(MODEL, hidden=192)
VERDICT_S = 120
SLOW_FROM = 80  # steps by which a run's pace is known
# Events that are a verdict, and where each has its class and its ranks.
VERDICTS = {"hang": lambda d: (d["class"], d["roots"]), "slow": lambda d: (d["class"], [d["rank"]])}


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "confusion", "metric": metric, "value": round(value, 4), "unit": unit,
                      "reference": reference, "ratio": round(ratio, 4)}), flush=True)


def spec_of(corpus, layout, **more):
    layout = dict(layout)
    cp = layout.pop("cp")
    spec = specs.train(corpus, steps=1000000, **layout, **more)
    spec["parallel"]["cp"] = cp
    return spec


def p99(sorted_values):
    """The nearest rank: of fewer than a hundred, the worst."""
    return sorted_values[math.ceil(0.99 * len(sorted_values)) - 1]


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
        span = max(1, (e["data"].get("end_step", 0) - e["data"].get("first_step", 0)) // 10)
        return *VERDICTS[e["cause"]["code"]](e["data"]), (e["data"].get("end_step"), span)
    outcome = cluster.job(job)["outcome"]
    if outcome and outcome.get("cause") == "numbers":
        return "not-finite", [outcome["rank"]], None
    if outcome and outcome.get("signal"):
        return f"signal {outcome['signal']}", [outcome["rank"]], None
    return None


def await_verdict(look):
    try:
        return wait_for("a verdict", look, VERDICT_S)
    except AssertionError as e:
        print(e, file=sys.stderr, flush=True)
        return "nothing", [], None


def disk_told(cluster, job):
    """Checkpoints are told to be left out, and training goes on without a verdict."""
    told = verdict_of(cluster, job)
    if told or not any("are still being written" in e["cause"]["text"] for e in cluster.events(job)):
        return told
    reached = step_of(cluster, job)
    wait_for("steps, or a verdict", lambda: step_of(cluster, job) > reached + 50 or verdict_of(cluster, job))
    return verdict_of(cluster, job) or ("disk", [], None)


@contextlib.contextmanager
def crowded(pid):
    """The process has to share its processor with three others."""
    cpu = {min(os.sched_getaffinity(pid))}
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cpu)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        for p in busy:
            os.sched_setaffinity(p.pid, cpu)
        yield
    finally:
        for p in busy:
            p.kill()
            p.wait()


def share_of(pid):
    """Of a processor, that the process has had since it began."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        words = f.read().rpartition(")")[2].split()
    hertz = os.sysconf("SC_CLK_TCK")
    lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / hertz
    return (int(words[11]) + int(words[12])) / hertz / lived_s


WITHHELD = {"withheld": lambda pid: stopped_by_turns(pid, 0.03, 0.02),
            "limit": lambda pid: limited_to(pid, share_of(pid) / 4),  # on a busy machine it has little as it is
            "crowd": crowded}


class Faults:
    """A cluster on one host whose ranks can have each fault but that of a link."""

    def __init__(self, folder):
        self.slow = SlowRank(folder)
        self.order = os.path.join(folder, "order")
        self.cluster = Cluster(os.path.join(folder, "c"), slots=0,  # no run leaves a device that is slow
                               server_args=["--round", "1", "--slow-ratio", "0"],
                               env=dict(self.slow.env, FAKE_INJECT=self.order))
        self.cluster.programs = INJECT
        self.corpus = specs.write_corpus(os.path.join(folder, "corpus.txt"))

    def start(self):
        self.cluster.start_agent("n1", "cpu:4")
        self.cluster.wait_nodes(["n1"])

    def begin(self, layout, after):
        """A run that is held once it has done so many steps, so that a fault that is slow begins at a known one."""
        spec = spec_of(self.corpus, layout, every_steps=0 if after else 10)
        if after:
            spec["train"]["model"] = dict(STEPS_OF_30_MS)
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
        elif name not in WITHHELD:
            with open(f"{self.order}.new", "w", encoding="ascii") as f:
                f.write(f"{name} {rank}\n")
            os.rename(f"{self.order}.new", self.order)
        with WITHHELD[name](pid) if name in WITHHELD else contextlib.nullcontext():
            self.cluster.hold.release()
            yield
        self.slow.set(-1, 0)

    def clear(self):
        """No run of a trial that failed is in the way of the next."""
        self.slow.set(-1, 0)
        self.cluster.hold.release()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.order)
        for job in self.cluster.list_jobs():
            self.cluster.request("POST", f"/v1/jobs/{job['id']}/cancel")

    def one(self, draw, name):
        layout = draw.choice(FAULTS[name][1])
        # only ranks of the first stage read data
        victim = draw.randrange(layout["tp"] if name == "data" and layout["pp"] > 1 else layout["devices"])
        job = self.begin(layout, SLOW_FROM if name in SLOW else 0)
        early = verdicts_of(self.cluster, job)  # a busy host withholds its processors also without a fault
        for e in early:
            print(f"{name}: before its fault: {e['cause']['text']}", file=sys.stderr, flush=True)
        began = time.monotonic()
        with self.fault(job, name, victim):
            told = await_verdict(lambda: disk_told(self.cluster, job) if name == "disk" else
                                 verdict_of(self.cluster, job, len(early)))
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
        spec = spec_of(corpus, DP2, every_steps=0)
        spec["train"]["model"] = dict(STEPS_OF_30_MS)
        job = cluster.submit(spec)["id"]
        wait_for("steps", lambda: step_of(cluster, job) >= SLOW_FROM - 1)
        early = verdicts_of(cluster, job)  # busy hosts, as in Faults.one
        for host in "node1", "node2":
            shape(hosts, host, "120mbit")
        began = time.monotonic()
        cluster.hold.release()
        told = await_verdict(lambda: verdict_of(cluster, job, len(early)))
        took = time.monotonic() - began
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
        cluster.wait(job, "cancelled")
    return told, None, took


def is_right(name, told, victim):
    class_, ranks, _ = told
    if class_ != FAULTS[name][0]:
        return False
    if victim is None or name in ("nan", "disk"):  # a sum of all ranks' is what is not finite; a disk is told as such
        return True
    return victim in ranks if name == "link" else ranks == [victim]


def trial(faults, name, number, folder):
    """What is told of the fault, as a line of results."""
    load = os.getloadavg()[0]
    if name == "slow-link":
        told, victim, seconds = slow_link(tempfile.mkdtemp(dir=folder))
    else:
        told, victim, seconds = faults.one(random.Random(f"{SEED}-{name}-{number}"), name)
    end, span = told[2] if name in SLOW and told[2] and told[2][0] else (None, 1)
    after = None if end is None else end - SLOW_FROM
    one = {"fault": name, "class": told[0], "ranks": told[1], "victim": victim, "right": is_right(name, told, victim),
           "seconds": round(seconds, 2), "steps": after, "sums": None if after is None else after / span, "seed": SEED,
           "load": round(load, 1)}
    if not one["right"]:
        print(f"{name}: told as {told}, meant rank {victim}", file=sys.stderr, flush=True)
    return one


def read_results(paths):
    results = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as f:
            results += [json.loads(line) for line in f if line.endswith("\n")]  # the last may have been cut off
    return results


def measure(names, times, paths, seconds, load_max):
    results = read_results(paths)
    end = time.monotonic() + seconds
    had = collections.Counter(one["fault"] for one in results)
    missing = [(number, name) for number in range(times) for name in names if had[name] <= number]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-"))
        out = stack.enter_context(open(paths[0] if paths else os.path.join(folder, "results"), "a",
                                      encoding="utf-8"))
        faults = Faults(folder) if missing else None
        if missing:
            stack.enter_context(faults.cluster)
            faults.start()
        for number, name in missing:
            if time.monotonic() > end:
                break
            try:
                results.append(trial(faults, name, number, folder))
            except AssertionError as e:  # it did not begin or end in time: no trial of what is told
                print(f"{name}: no trial: {e}", file=sys.stderr, flush=True)
                faults.clear()
                continue
            out.write(json.dumps(results[-1]) + "\n")
            out.flush()
    counted = [one for one in results if one["fault"] in names and one.get("load", 0) <= load_max]
    print(f"{len(results) - len(counted)} trials left out of the table", file=sys.stderr, flush=True)
    report(counted)


def report(results):
    of = {name: [one for one in results if one["fault"] == name] for name in FAULTS}
    for name, all_ in of.items():
        if all_:
            print_row(name, all_)
            share = sum(one["right"] for one in all_) / len(all_)
            row(f"{name}_right", share, f"share of {len(all_)}", FAULTS[name][0], share)
            classed = sum(one["class"] == FAULTS[name][0] for one in all_) / len(all_)
            row(f"{name}_class_right", classed, f"share of {len(all_)}", FAULTS[name][0], classed)
    right, every = sum(one["right"] for one in results), len(results)
    if every == 0:
        return
    print(f"{'all':10} {right} of {every} told right: {100 * right / every:.1f} %", file=sys.stderr, flush=True)
    row("right", right / every, "share", "0.98 wanted", right / every / 0.98)
    classed = sum(one["class"] == FAULTS[one["fault"]][0] for one in results)
    row("class_right", classed / every, "share", "0.98 wanted", classed / every / 0.98)
    ranked = right / max(classed, 1)
    row("rank_right", ranked, "share of the right class", "0.98 wanted", ranked / 0.98)
    row("right_at_least", wilson(right, every), "share", f"95 % interval of {every}", 1)
    hangs = sorted(one["seconds"] for one in results if one["fault"] not in (*SLOW, "kill", "segv", "disk"))
    crashes = sorted(one["seconds"] for one in results if one["fault"] in ("kill", "segv"))
    for what, took, wanted in ("hang", hangs, 6), ("crash", crashes, 1):
        for metric, value in (("p50", statistics.median(took)), ("p99", p99(took)),
                              ("worst", took[-1])) if took else ():
            row(f"{what}_{metric}_s", value, "s", f"p99 of {wanted} s wanted", value / wanted)
    sums = sorted(one["sums"] for one in results if one["sums"] is not None and one["right"])
    for metric, value in (("p50", statistics.median(sums)), ("worst", sums[-1])) if sums else ():
        row(f"slow_steps_{metric}", value, "steps, or sums of short ones", "20 wanted", value / 20)
    took = sorted(one["seconds"] for one in results if one["sums"] is not None and one["right"])
    for metric, value in (("p50", statistics.median(took)), ("worst", took[-1])) if took else ():
        row(f"slow_{metric}_s", value, "s", "6 where processors are shared", value / 6)


def print_row(name, results):
    """Fault, what it was told as, and after how many steps or seconds."""
    table = collections.Counter(one["class"] + ("" if one["right"] or one["class"] != FAULTS[name][0] else
                                                ", another rank") for one in results)
    steps = sorted(one["steps"] for one in results if one["steps"] is not None and one["right"])
    told = ", ".join(f"{told} {n}" for told, n in sorted(table.items()))
    when = f"{statistics.median(steps):.0f} steps, {steps[-1]} at most" if steps else \
        f"{statistics.median(one['seconds'] for one in results):.1f} s"
    print(f"{name:10} told as  {told:40} after {when}", file=sys.stderr, flush=True)


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
    p.add_argument("--times", type=int)
    p.add_argument("--seconds", type=float, default=math.inf, metavar="S")
    p.add_argument("--only", metavar="FAULT,…")
    p.add_argument("--results", metavar="FILE,…", default="")
    p.add_argument("--load-max", type=float, default=math.inf, metavar="L")
    p.add_argument("--clean", type=int, metavar="SECONDS")
    args = p.parse_args()
    only_clean = args.clean is not None and args.only is None and args.times is None
    names = [n for n in ("" if only_clean else ",".join(FAULTS) if args.only is None else args.only).split(",") if n]
    unknown = [n for n in names if n not in FAULTS]
    if unknown:
        p.error(f"no fault named {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    if "slow-link" in names and not can_make_hosts():
        print("slow-link is left out: network namespaces cannot be made here", file=sys.stderr)
        names.remove("slow-link")
    if "limit" in names and not can_limit():
        print("limit is left out: control groups with a limit of processor time cannot be made here", file=sys.stderr)
        names.remove("limit")
    print(f"MUSTER_SEED={SEED}", file=sys.stderr, flush=True)
    times = args.times if args.times is not None else 1 if args.quick else 40
    seconds = args.clean if args.clean is not None else 0 if args.only or args.times is not None else \
        30 if args.quick else 3600
    if names:
        paths = [path for path in args.results.split(",") if path]
        measure(names, times, paths, args.seconds, args.load_max)
    if seconds:
        clean(seconds)


if __name__ == "__main__":
    main()
