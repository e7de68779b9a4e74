#!/usr/bin/env python3
"""How much of 30 days a job on 1,000 nodes trains, by what Muster does about failures: a model of events.

    downtime.py                          the table for docs/diagnosis.md
    downtime.py --picture FILE.svg       and its picture

Failures come at random at rates that were published; each costs what the constants say. Seconds that Muster needs are
those of its own tests and benches on small machines, or more; what a fleet without it needs is from the same papers.
The same seeds for every policy, so that they meet the same failures.
"""
import argparse
import heapq
import itertools
import random
import statistics

NODES, DAYS, SEEDS = 1000, 30, 20
DAY = 86400.0
RATES = {  # failures in 1,000 days of a node
    "6.5": 6.5e-3,  # the worse of two research clusters of Meta
    "3.8": 3.8e-3,  # training Llama 3: one in 3.1 h on 2,048 nodes
}
HARDWARE = 0.78  # of Llama 3's failures: it comes again until the node has left
HANGS = 0.352  # of interruptions, by CCL-D: no process ends

SICK_S = 1800.0  # between two failures of a sick node that runs on
PERSON_S = 7200.0  # until a person has found a sick node among 1,000
WRONG = 0.02  # verdicts that name another node
REPAIR_S = DAY  # of a node
SPARES = 13  # by the rule for 1,024 nodes: fewer than one day in a hundred without
QUEUE_S = 1200.0  # for a node without spares: another job has to give it

CRASH_S, HANG_S = 1.0, 6.0  # to a verdict, as tests/fault measures
TIMEOUT_S = 600.0  # a hang that nobody diagnoses: the default of collectives
EVIDENCE_S = 3.0  # what machines are given to look at ranks before they are ended
START_COLD_S, START_WARM_S = 120.0, 45.0  # ranks of 1,000 nodes meet again; with spares that have started
DISK_SAVE_S, DISK_LOAD_S = 10.0, 120.0
MEMORY_EVERY_S, MEMORY_SAVE_S, MEMORY_LOAD_S = 30.0, 0.05, 10.0

PARTS = ["repeated", "detection", "isolation", "waiting", "restart", "saving"]


class Policy:
    def __init__(self, isolation, spares, memory):
        self.isolation, self.spares, self.memory = isolation, spares, memory

    def name(self):
        having = [n for n in ("isolation", "spares", "memory") if getattr(self, n)]
        return " + ".join(having) or "none of them"


class Run:
    """One job from its start to the end of the days."""

    def __init__(self, policy, rate, seed):
        self.policy, self.rate = policy, rate
        self.draw = random.Random(seed)
        self.now = self.useful = 0.0
        self.part = dict.fromkeys(PARTS, 0.0)
        self.sick = []  # [when it fails next, when a person has found it]
        self.free, self.repairs = SPARES, []
        self.disk_every = (2 * DISK_SAVE_S / (NODES * rate / DAY)) ** 0.5  # after Young and Daly

    def lose(self, part, seconds):
        seconds = min(seconds, DAYS * DAY - self.now)
        self.part[part] += seconds
        self.now += seconds

    def replace(self):
        """Another node for one that leaves."""
        while self.repairs and self.repairs[0] <= self.now:
            heapq.heappop(self.repairs)
            self.free += 1
        wait = self.draw.expovariate(1 / QUEUE_S)
        if not self.policy.spares:
            self.lose("waiting", wait)
            return
        if self.free == 0:
            self.lose("waiting", min(wait, heapq.heappop(self.repairs) - self.now))
            self.free += 1
        self.free -= 1
        heapq.heappush(self.repairs, self.now + REPAIR_S)

    def restart(self):
        self.lose("restart", START_WARM_S if self.policy.spares else START_COLD_S)
        self.lose("restart", MEMORY_LOAD_S if self.policy.memory else DISK_LOAD_S)

    def train(self, seconds):
        """Until something fails; what was not saved by then is done again."""
        seconds = min(seconds, DAYS * DAY - self.now)
        every, save = (MEMORY_EVERY_S, MEMORY_SAVE_S) if self.policy.memory else (self.disk_every, DISK_SAVE_S)
        saving = seconds * save / (every + save)
        self.now += seconds
        self.part["saving"] += saving
        lost = min(self.draw.uniform(0, every), seconds - saving)
        if self.now < DAYS * DAY:
            self.part["repeated"] += lost
        else:
            lost = 0
        self.useful += seconds - saving - lost

    def fail(self, again):
        """again: by a sick node that has failed before."""
        hangs = self.draw.random() < HANGS
        hardware = again is not None or self.draw.random() < HARDWARE
        wrong = self.draw.random() < WRONG
        found = self.now + self.draw.expovariate(1 / PERSON_S)
        comes_again = self.draw.expovariate(1 / SICK_S)
        began = self.now
        if self.policy.isolation:
            self.lose("detection", HANG_S if hangs else CRASH_S)
            self.lose("isolation", EVIDENCE_S)
        else:
            self.lose("detection", TIMEOUT_S if hangs else 10.0)
        left = hardware and self.policy.isolation and not wrong
        if hardware and self.policy.isolation:
            self.replace()  # also for one that was named by mistake
        if hardware and not left and again is None:
            again = [0.0, found]
            self.sick.append(again)
        if left and again in self.sick:
            self.sick.remove(again)
        if again in self.sick:
            again[0] = began + comes_again
        self.restart()
        if again in self.sick:
            again[0] = self.now + comes_again

    def person(self, sick):
        """A sick node is taken out by hand: the job saves and goes on elsewhere."""
        self.sick.remove(sick)
        self.replace()
        self.lose("isolation", START_COLD_S + DISK_LOAD_S)

    def go(self):
        while self.now < DAYS * DAY:
            fresh = self.now + self.draw.expovariate(NODES * self.rate / DAY)
            nearest = min(self.sick, key=min, default=None)
            at = min(fresh, min(nearest)) if nearest else fresh
            self.train(max(0.0, at - self.now))
            if self.now >= DAYS * DAY:
                break
            if nearest and at >= min(nearest):
                if nearest[1] <= nearest[0]:
                    self.person(nearest)
                else:
                    self.fail(nearest)
            else:
                self.fail(None)
        return self


def measure(policy, rate):
    runs = [Run(policy, rate, seed).go() for seed in range(SEEDS)]
    whole = DAYS * DAY
    for r in runs:
        assert abs(r.useful + sum(r.part.values()) - whole) < 1, (policy.name(), r.useful, r.part)
    return {"effective": statistics.mean(r.useful for r in runs) / whole * 100,
            "worst": min(r.useful for r in runs) / whole * 100,
            **{p: statistics.mean(r.part[p] for r in runs) / whole * 100 for p in PARTS}}


def policies():
    return [Policy(*on) for on in itertools.product((False, True), repeat=3)]


def table():
    rows = ["| failures a 1,000 node-days | isolation | spares | memory snapshots | effective, % | worst of 20 | "
            "work repeated | detection | isolation | waiting for a node | restart | saving |",
            "|" + "---|" * 12]
    for label, rate in RATES.items():
        for p in policies():
            m = measure(p, rate)
            on = ["yes" if getattr(p, n) else "no" for n in ("isolation", "spares", "memory")]
            rows.append(f"| {label} | {' | '.join(on)} | **{m['effective']:.2f}** | {m['worst']:.2f} | " +
                        " | ".join(f"{m[part]:.2f}" for part in PARTS) + " |")
    return "\n".join(rows)


COLOURS = {"repeated": "#b3261e", "detection": "#e8924a", "isolation": "#6b4fc1", "waiting": "#2b62c4",
           "restart": "#0d7465", "saving": "#949ea6"}
WORDS = {"repeated": "work repeated", "waiting": "waiting for a node"}


def picture(path):
    from svg import LEFT, RIGHT, Picture
    measured = [(p, measure(p, RATES["6.5"])) for p in policies()]
    most = max(100 - m["effective"] for _, m in measured)
    picture_ = Picture(760, 90 + 34 * len(measured), "30 days of a job on 1,000 nodes: % of the time that is lost")
    x = LEFT
    for part in PARTS:
        picture_.bar(x, 34, 10, 10, f'fill="{COLOURS[part]}"')
        picture_.words(x + 14, 43, WORDS.get(part, part))
        x += 40 + 7 * len(WORDS.get(part, part))
    names = 190
    scale = (picture_.width - names - RIGHT - 60) / most
    for i, (p, m) in enumerate(measured):
        y, x = 66 + 34 * i, float(names)
        picture_.words(names - 8, y + 15, p.name(), 'text-anchor="end"')
        for part in PARTS:
            picture_.bar(x, y, m[part] * scale, 20, f'fill="{COLOURS[part]}"')
            x += m[part] * scale
        picture_.words(x + 6, y + 15, f"{100 - m['effective']:.1f} %")
    picture_.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--picture", metavar="FILE")
    args = parser.parse_args()
    print(table())
    if args.picture:
        picture(args.picture)


if __name__ == "__main__":
    main()
