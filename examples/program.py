#!/usr/bin/env python3
"""A program of one's own under Muster, in Python: it logs, says that it lives, saves when it is asked to, stops when it
is told to, and goes on where it was.

    muster submit --devices 1 -- python3 program.py 1000
"""
import os
import sys
import time

import muster

run = muster.init()
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
path = run.checkpoint_dir / "at"


def save(step):
    with run.section("save", 60):  # no step for up to a minute is no fault here
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(f"{step}\n")
        os.replace(new, path)
    run.checkpoint(path, step=step)


step = int(path.read_text()) if path.exists() else 0
print(f"begins at step {step}", flush=True)
if step > 0:
    run.event("resumed", step=step)
while step < steps:
    time.sleep(0.01)  # here it would train
    step += 1
    run.step(step)
    run.log({"loss": 1 / step}, step=step)
    if run.should_save():
        save(step)
        run.saved(step)
    if run.should_stop():
        run.stopped(step)
run.finish(loss=1 / steps)
