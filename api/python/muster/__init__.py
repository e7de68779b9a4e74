"""A program's own words to Muster: numbers and events to the job's page, orders from it, a sign of life, and its end.

    import muster

    run = muster.init()
    for step in range(first, steps + 1):
        loss = train()
        run.step(step)
        run.log({"loss": loss}, step=step)
        if run.should_save():
            save(step)
            run.checkpoint("model.pt", step=step)
            run.saved(step)
        if run.should_stop():
            run.stopped(step)
    run.finish()

All of it goes through the files of docs/programs.md. Outside Muster every call does nothing.
"""
from ._files import Order
from ._run import Run, init

__all__ = ["Order", "Run", "init"]
