"""Which samples the committed steps of examples/elastic.py took, by the logs of ids that its ranks have left."""
import collections
import glob
import os


def steps_of(folder):
    """{attempt: {step: ids of all ranks}}; a line that a kill has cut is none."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in glob.glob(f"{folder}/g*-r*"):
        attempt = int(os.path.basename(path)[1:].split("-")[0])
        with open(path, encoding="ascii") as f:
            for line in f:
                if line.endswith("\n"):
                    step, *ids = map(int, line.split())
                    found[attempt][step] += ids
    return found


def history(folder, steps):
    """The ids of each step, along the committed history: a step counts as the last attempt that did it had it."""
    done = {}
    for _, of in sorted(steps_of(folder).items()):
        first = min(of)
        done = {step: ids for step, ids in done.items() if step < first} | of
    assert sorted(done) == list(range(steps))
    return [done[step] for step in range(steps)]


def check_epochs(taken, samples, batch):
    """Each sample once an epoch."""
    a_step = -(-samples // batch)
    for first in range(0, len(taken) - a_step + 1, a_step):
        epoch = [i for ids in taken[first:first + a_step] for i in ids]
        assert sorted(epoch) == list(range(samples)), f"the epoch from step {first} on"
