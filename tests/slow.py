#!/usr/bin/env python3
"""Run a command, and all that it starts, with a share of this machine's processor, as on a machine so much slower.

usage: slow.py SHARE COMMAND...        slow.py 0.1 make suite-python

It takes a control group for that, so a machine that lets this user make one: elsewhere the exit status is 77.
"""
import os
import subprocess
import sys

PERIOD_US = 20000  # short, so that the command is slow evenly rather than now and then


def cpu_group():
    """The folder of this process's control group for the processor, and whether it is of version 2."""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        own = [line.strip().split(":", 2) for line in f]
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split() for line in f]
    for _, controllers, path in own:
        for _, where, kind, options, *_ in mounts:
            if kind == "cgroup" and "cpu" in controllers.split(",") and "cpu" in options.split(","):
                return where + path, False
    unified = next(where for _, where, kind, *_ in mounts if kind == "cgroup2")
    return unified + next(path for number, _, path in own if number == "0"), True


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def make_group(share):
    """A new group with this share of all processors; its folder."""
    parent, unified = cpu_group()
    quota_us = int(share * os.cpu_count() * PERIOD_US)
    group = os.path.join(parent, f"muster-slow-{os.getpid()}")
    os.mkdir(group)
    try:
        if unified:
            write(f"{group}/cpu.max", f"{quota_us} {PERIOD_US}")
        else:
            write(f"{group}/cpu.cfs_period_us", str(PERIOD_US))
            write(f"{group}/cpu.cfs_quota_us", str(quota_us))
        write(f"{group}/cgroup.procs", "0")
    except OSError:
        os.rmdir(group)
        raise
    return parent, group


def main():
    if len(sys.argv) < 3 or not 0 < float(sys.argv[1]) <= 1:
        sys.exit(__doc__)
    try:
        parent, group = make_group(float(sys.argv[1]))
    except (OSError, StopIteration) as e:
        print(f"slow.py: no share of the processor can be had here: {e}", file=sys.stderr)
        return 77
    try:
        return subprocess.call(sys.argv[2:])
    finally:
        write(f"{parent}/cgroup.procs", "0")
        os.rmdir(group)


if __name__ == "__main__":
    sys.exit(main())
