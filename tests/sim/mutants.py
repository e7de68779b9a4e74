#!/usr/bin/env python3
"""Plants faults in a copy of the code, one at a time, and runs the simulator on each until it finds the fault.

usage: mutants.py [NAME…]

Each mutant is a line that says less, or later, than it must. A mutant that the simulator does not find within LIMIT_S
is a failure: of the checks, of the faults that are drawn, or because the line has become needless.
"""
import os
import resource
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPY = os.path.join(ROOT, "build", "mutants")
LIMIT_S = 300  # of the processor

# Name, file, what stands there, what the mutant has in its place. The text stands there once.
MUTANTS = [
    ("answers-before-commit", "server/control/turn.c",  # a lost acknowledgement: what was answered may not be kept
     "    durable = commit(c);\n    deliver(c, durable);\n",
     "    deliver(c, true);\n    durable = commit(c);\n"),
    ("device-given-twice", "server/control/dispatch.c",  # a slot is picked whoever has it
     "s->spare != spare || s->job != 0 || !slots_usable(s) ||", "s->spare != spare || !slots_usable(s) ||"),
    ("forgotten-retry", "worker/agent/agent.c",  # a registration that was not answered is not sent again
     "    if (!a->reporting) {\n        due_us = a->report_backoff.until_us;",
     "    if (!a->reporting && (a->registered || a->report_backoff.failures < 3)) {\n"
     "        due_us = a->report_backoff.until_us;"),
    ("submit-forgets-its-key", "server/control/jobs.c",  # a submit that is repeated makes a second job
     "        again = r == 0;", "        again = false;"),
    ("sets-keep-their-number", "server/control/change.c",  # agents do not hear of a change
     "        n->version++;", "        n->version += 0;"),
    ("slots-by-number-of-job", "server/control/load.c",  # after a restart
     "    if (x->assigned != y->assigned)\n        return x->assigned < y->assigned ? -1 : 1;",
     "    if (x->id != y->id)\n        return x->id < y->id ? 1 : -1;"),
    ("quota-counts-runs-alone", "server/control/dispatch.c",
     "    else if (n == want && project_may_have(c, &e->job, p, n))", "    else if (n == want)"),
    ("nothing-is-adopted", "worker/agent/ranks_start.c",  # an agent that starts does not look for what runs
     "    return machine_each_run(r->machine, adopt_run, r, err);",
     "    return adopt_run ? 0 : merr_set(err, 0, \"\");"),
    ("change-is-not-stored", "server/control/change.c",
     "    table_dirty(&c->jobs, e);\n    c->schedule_wanted = true;", "    c->schedule_wanted = true;"),
    ("ends-are-not-followed", "server/control/reports.c",
     "    runs_follow(c, e, actor);\n    /* the run may", "    /* the run may"),
    ("exit-is-not-read", "worker/agent/ranks.c",  # an agent takes every end that it has not seen for a lost shim
     "    if (machine_rank_exit(rank->on_machine, &end) == 0) {",
     "    if (machine_rank_exit(rank->on_machine, &end) == 0 && false) {"),
    ("stale-generation-accepted", "server/control/reports.c",  # an end of a run is taken for one of the next run
     "    if (!e || !e->job.live || e->job.generation != run->generation) {", "    if (!e || !e->job.live) {"),
    ("event-applied-twice", "server/control/reports.c",  # how far events have been taken in is not kept
     "            if (at > p->offset)", "            if (at < p->offset)"),
    ("stale-slot-is-free", "server/cluster/slots.c",  # a process of an earlier run is alive there
     "    return !s->stale && !s->ill;", "    return !s->ill;"),
    ("mates-are-not-told", "worker/agent/ranks.c",  # that one beside them has failed
     "        if (bad && !run->failed)", "        if (bad && !run->failed && now_us < 0)"),
    ("hangs-are-not-judged", "server/control/hangs.c",  # a run whose ranks all wait waits for ever
     "    if (!e->run.stalls || e->run.hung ||", "    if (!e->run.stalls || e->run.hung || n > 0 ||"),
    ("who-waits-is-named", "scheduler/diagnose/hang.c",  # for one that waits in nothing
     "        if (r->inside && !r->stopped) {", "        if (!r->inside && !r->stopped) {"),
    ("orders-are-taken-back", "worker/agent/ranks.c",  # an older set of orders undoes a stop
     "    if (order == run->order || (run->order >= ASSIGNMENT_HAND_OVER && order < run->order))",
     "    if (order == run->order)"),
]


def copy_tree():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    shutil.rmtree(COPY, ignore_errors=True)
    for name in files:
        if name and os.path.isfile(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(COPY, name)) or COPY, exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(COPY, name))
    web = os.path.join(ROOT, "api/web/node_modules")
    if os.path.isdir(web):
        shutil.copytree(web, os.path.join(COPY, "api/web/node_modules"), dirs_exist_ok=True)


def build():
    jobs = f"-j{os.cpu_count() or 1}"
    done = subprocess.run(["make", "--no-print-directory", jobs, "build/sim/sim"], cwd=COPY, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"the copy does not build:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def processor_s():
    """Of all programs that have been run so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def simulate(seconds):
    """The first violation, or None; how many seeds were run; and the processor time of all."""
    began = processor_s()
    seed = 0
    while processor_s() - began < seconds:
        seed += 1
        done = subprocess.run(["build/sim/sim", "--seed", str(seed), "--hostile", str(4 * (seed % 2)), "--faults",
                               "none" if seed % 4 == 2 else "all"], cwd=COPY, capture_output=True, text=True,
                              check=False)
        if done.returncode not in (0, 1):
            return f"the run ends with status {done.returncode}", seed, processor_s() - began
        for at, line in enumerate(done.stdout.split("\n")):
            if "BROKEN" in line:
                return done.stdout.split("\n")[at + 1].strip()[:110], seed, processor_s() - began
    return None, seed, processor_s() - began


def main():
    wanted = sys.argv[1:] or [m[0] for m in MUTANTS]
    passed = failed = 0
    copy_tree()
    build()
    for name, path, old, new in MUTANTS:
        if name not in wanted:
            continue
        file = os.path.join(COPY, path)
        with open(file, encoding="utf-8") as f:
            text = f.read()
        if text.count(old) != 1:
            print(f"{name}: {path} has not once what the mutant replaces", flush=True)
            failed += 1
            continue
        with open(file, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        build()
        why, seeds, took = simulate(LIMIT_S)
        said = f"found after {took:.1f} s of the processor" if why else f"NOT FOUND within {took:.0f} s"
        said += f", {seeds} seeds: {why}"
        print(f"{name}: {said}", flush=True)
        passed += why is not None
        failed += why is None
        with open(file, "w", encoding="utf-8") as f:
            f.write(text)
        os.utime(file)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
