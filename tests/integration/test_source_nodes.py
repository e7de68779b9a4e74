"""State left in the memories of nodes, and sent from there to other nodes: ranks and source nodes started by hand.

Each node has a folder and a memory of its own. A job is told to move, and its next generation goes on elsewhere."""
import glob
import os
import signal
import time

import pytest

from tests import specs
from tests.integration import ranks
from tests.patience import PATIENCE_S

STEPS = 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def the_spec(corpus, steps=STEPS, **parallel):
    """With a rate that does not depend on how many steps there are to come."""
    spec = specs.train(corpus, steps=steps, every_steps=0, devices=8)
    spec["train"]["optimizer"]["schedule"] = "constant"
    spec["checkpoint"]["memory_every_steps"] = 1000000  # none but those of a move
    compress = parallel.pop("compress", None)
    spec["parallel"].update(parallel)
    return spec | ({"compress": compress} if compress else {})


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    return ranks.train(the_spec(corpus), str(tmp_path_factory.mktemp("alone")))


def memories(folder, n):
    found = [folder / f"memory-{i}" for i in range(n)]
    for m in found:
        m.mkdir(exist_ok=True)
    return found


def left(spec, folder, order=ranks.MOVE, steps=3, want=ranks.DRAINED, **how):
    """A run that was told to move; steps done."""
    with ranks.Run(str(folder), dict(spec, train=dict(spec["train"], steps=100000)), hold_at=steps, **how) as run:
        run.until(lambda: len(run.metrics()) == steps)
        for rank in range(run.world):
            run.order(rank, order)
        run.must(want)
    assert len(run.metrics()) == steps
    return steps


def gone_on(spec, folder, seconds=PATIENCE_S, **how):
    """The next run, to its end: what it resumed from, and itself. Its source nodes have heard that it goes on."""
    with ranks.Run(str(folder), spec, generation=how.pop("generation", 2), **how) as run:
        run.must(ranks.DONE, seconds)
        codes = [p.wait(PATIENCE_S) for p in run.source_nodes]
    assert codes == [ranks.DONE] * len(codes), run.log(run.world)
    return run.events("resumed")[0], run


def no_view(where):
    return not glob.glob(f"{where}/.view")


MOVES = [  # nodes before, nodes after, which of those after were among those before
    (1, 1, []), (1, 2, [0]), (2, 1, [0]), (2, 1, [1]), (2, 2, []), (2, 2, [1]), (1, 3, [0]), (3, 1, [])]


@pytest.mark.parametrize("before,after,staying", MOVES)
def test_a_job_moves_through_memory_and_changes_no_bit(corpus, alone, tmp_path, before, after, staying):
    where = memories(tmp_path, before + after)
    spec = the_spec(corpus)
    step = left(spec, tmp_path, dp=max(before, 1), nodes=before, memory=where[:before])
    stay = [where[i] for i in staying]
    now = stay + where[before:before + after - len(stay)]
    sources = [m for m in where[:before] if m not in stay]
    resumed, run = gone_on(spec, tmp_path, dp=after, nodes=after, memory=now, source_nodes=sources)
    assert (resumed["source"], resumed["step"]) == ("memory" if before == 1 and after == 1 and stay else "peers", step)
    assert ranks.losses(run) == ranks.losses(alone)
    assert ranks.digest(run) == ranks.digest(alone)
    assert [s for s in run.checkpoints() if s <= step] == [], "nothing was written to disk between the two runs"
    assert all(map(no_view, where))


def test_a_node_that_stays_is_sent_nothing_of_what_it_has(corpus, tmp_path):
    """A larger model, of which a chunk is a small part: the node that comes is sent one copy of the weights and its
    own half of the moments, the one that stays nothing."""
    where = memories(tmp_path, 2)
    spec = the_spec(corpus)
    spec["train"]["model"].update(hidden=256, layers=4)
    spec["train"]["steps"] = 12
    left(spec, tmp_path, memory=where[:1])
    state = sum(os.path.getsize(p) for p in glob.glob(f"{where[0]}/step-*/*.mck"))
    resumed, _ = gone_on(spec, tmp_path, dp=2, nodes=2, memory=where)
    assert resumed["source"] == "peers"
    assert 0.5 * state < resumed["fetched_bytes"] < 0.85 * state, state


LAYOUTS = [
    ({"tp": 2}, {"tp": 2}, {}), ({"tp": 2}, {"pp": 2}, {}), ({"pp": 2}, {"tp": 1, "dp": 2}, {}),
    ({"dp": 2}, {"dp": 4}, {"zero": 0}), ({"dp": 2}, {"dp": 1}, {"compress": {"dp": "g8"}}),
    ({"cp": 2}, {"cp": 2, "dp": 2}, {"cp": 2}), ({"tp": 2, "pp": 2}, {"pp": 2, "dp": 2}, {})]


@pytest.mark.parametrize("before,after,parallel", LAYOUTS)
def test_any_layout_moves_to_any_other(corpus, tmp_path, before, after, parallel):
    """From two nodes to one, of which none stays. The losses go on as those of a run resumed from disk do."""
    where = memories(tmp_path, 3)
    spec = the_spec(corpus, steps=12, **parallel)

    def went(folder, order, resumed_from, **how):
        folder.mkdir()
        step = left(spec, folder, order, nodes=2, memory=where[:2], **before)
        resumed, run = gone_on(spec, folder, **how, **after)
        assert (resumed["source"], resumed["step"]) == (resumed_from, step)
        return step, run
    step, moved = went(tmp_path / "moved", ranks.MOVE, "peers", memory=where[2], source_nodes=where[:2])
    for m in where:
        for path in glob.glob(f"{m}/step-*"):
            os.rename(path, f"{tmp_path}/gone-{m.name}-{os.path.basename(path)}")
    again, drained = went(tmp_path / "drained", ranks.DRAIN, "disk")
    at = min(step, again)
    assert ranks.losses(moved)[:at] == ranks.losses(drained)[:at]
    assert ranks.relative(ranks.losses(moved), ranks.losses(drained)) < 1e-4


# --- what may go wrong ----------------------------------------------------------------------------------

def saved_before(spec, folder, where, **how):
    """A run that has a checkpoint on disk and then moves; both steps."""
    with ranks.Run(str(folder), dict(spec, train=dict(spec["train"], steps=100000)), memory=where, hold_at=3,
                   **how) as run:
        run.until(lambda: len(run.metrics()) == 3)
        run.order(0, ranks.SAVE)
        assert run.until(run.checkpoints) == [3]
        run.hold.at(5)
        run.until(lambda: len(run.metrics()) == 5)
        for rank in range(run.world):
            run.order(rank, ranks.MOVE)
        run.must(ranks.DRAINED)
    return 3, 5


def notes(run):
    return " ".join(e["message"] for e in run.events("note"))


def test_without_its_source_node_a_job_goes_on_from_disk_within_seconds(corpus, alone, tmp_path):
    """The node that it left does not answer: not at all, or only for a while."""
    where = memories(tmp_path, 2)
    spec = the_spec(corpus)
    disk, step = saved_before(spec, tmp_path, where[:1])
    began = time.monotonic()
    with ranks.Run(str(tmp_path), spec, generation=2, memory=where[1], source_nodes=where[:1]) as run:
        run.source_nodes[0].kill()
        run.must()
    assert time.monotonic() - began < 60
    resumed = run.events("resumed")[0]
    assert (resumed["source"], resumed["step"]) == ("disk", disk) and disk < step
    assert "do not give" in notes(run)
    assert ranks.losses(run) == ranks.losses(alone)
    assert ranks.digest(run) == ranks.digest(alone)


def stop_in_the_middle(run, victim, sig):
    """Once the memories are being read: that is when a folder to read from is there."""
    run.until(lambda: glob.glob(f"{victim}/.view/*/*.mck"))
    run.source_nodes[0].send_signal(sig)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_source_node_lost_in_the_middle_costs_no_more_than_what_was_not_on_disk(corpus, tmp_path, sig):
    where = memories(tmp_path, 3)
    spec = the_spec(corpus)
    spec["train"]["model"].update(hidden=384, layers=6)
    spec["train"]["steps"] = 10
    disk, step = saved_before(spec, tmp_path, where[:1])
    spec["train"]["steps"] = step + 2
    with ranks.Run(str(tmp_path), spec, generation=2, dp=2, nodes=2, memory=where[1:], source_nodes=where[:1]) as run:
        stop_in_the_middle(run, where[0], sig)
        run.must()
        run.source_nodes[0].wait(PATIENCE_S)
    resumed = run.events("resumed")[0]
    assert (resumed["source"], resumed["step"]) in (("disk", disk), ("peers", step)), "lost, or in time"
    assert [m["step"] for m in run.metrics()] == list(range(step + 2))


def test_nodes_without_memory_go_on_from_disk_where_the_source_node_writes_the_state(corpus, alone, tmp_path):
    where = memories(tmp_path, 2)
    spec = the_spec(corpus)
    step = left(spec, tmp_path, dp=2, nodes=2, memory=where)
    resumed, run = gone_on(spec, tmp_path, dp=2, source_nodes=where)
    assert (resumed["source"], resumed["step"]) == ("disk", step)
    assert ranks.losses(run) == ranks.losses(alone)
    assert ranks.digest(run) == ranks.digest(alone)
    assert run.checkpoints()[0] == step


def test_a_run_without_room_in_memory_leaves_its_state_on_disk(corpus, alone, tmp_path):
    where = memories(tmp_path, 2)
    spec = the_spec(corpus)
    step = left(spec, tmp_path, memory=where[0], memory_limit=1 << 20)
    resumed, run = gone_on(spec, tmp_path, memory=where[1], source_nodes=where[:1])
    assert (resumed["source"], resumed["step"]) == ("disk", step)
    assert ranks.losses(run) == ranks.losses(alone)


def test_a_rank_that_dies_while_the_state_is_sent_ends_the_source_node(corpus, tmp_path):
    where = memories(tmp_path, 2)
    spec = the_spec(corpus)
    spec["train"]["model"].update(hidden=384, layers=6)
    step = left(spec, tmp_path, memory=where[0])
    spec["train"]["steps"] = step + 2
    with ranks.Run(str(tmp_path), spec, generation=2, memory=where[1], source_nodes=where[:1]) as run:
        run.until(lambda: glob.glob(f"{where[0]}/.view/*/*.mck"))
        run.ranks[0].kill()
        assert run.source_nodes[0].wait(PATIENCE_S) in (ranks.ABORTED, ranks.DONE)
    resumed, run = gone_on(spec, tmp_path, generation=3, memory=where[1], source_nodes=where[:1])
    assert (resumed["step"], resumed["source"]) == (step, "peers")
