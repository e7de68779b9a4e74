"""Snapshots in the memories of several nodes: a lost node's part is made again from parity, with the same bits.

Each node of a run has a folder and a memory of its own, as on its own host; a node is lost by removing its memory."""
import os
import shutil

import pytest

from tests import specs
from tests.integration import ranks

STEPS = 100000
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
LAYOUTS = [(2, {"dp": 2}), (2, {"pp": 2, "dp": 2}), (3, {"pp": 3})]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


@pytest.fixture
def job(corpus):
    """With a rate that does not depend on how many steps there are to come."""
    spec = specs.train(corpus, steps=STEPS, every_steps=STEPS)
    spec["train"]["optimizer"]["schedule"] = "constant"
    spec["checkpoint"]["memory_every_steps"] = 4
    return spec


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """Losses of the first steps, by step."""
    spec = specs.train(corpus, steps=120, every_steps=0)
    spec["train"]["optimizer"]["schedule"] = "constant"
    run = ranks.train(spec, str(tmp_path_factory.mktemp("alone")))
    return {m["step"]: m["loss"] for m in run.metrics()}


def committed(memory):
    return sorted(int(p.parent.name[5:]) for p in memory.glob("step-*/PARITY"))


def memories(folder, nodes):
    found = [folder / f"memory-{i}" for i in range(nodes)]
    for m in found:
        m.mkdir(exist_ok=True)
    return found


def interrupted(job, folder, nodes, **layout):
    """A run killed once there are a checkpoint and two newer snapshots; where these are, and the newest step."""
    where = memories(folder, nodes)
    with ranks.Run(str(folder), job, memory=where, nodes=nodes, **layout) as run:
        run.until(run.metrics)
        run.order(0, ranks.SAVE)
        disk = run.until(run.checkpoints)[0]
        run.until(lambda: all(len(committed(m)) >= 2 and committed(m)[0] > disk for m in where))
    return where, min(committed(m)[-1] for m in where)


def go_on(job, folder, steps, where, nodes, **how):
    job["train"]["steps"] = steps
    run = ranks.train(job, str(folder), memory=where, nodes=nodes, **how)
    return run.events("resumed")[0], run


def lose(memory):
    shutil.rmtree(memory)
    memory.mkdir()


def matches(run, undisturbed):
    lines = run.metrics()
    assert [m["loss"] for m in lines] == [undisturbed[m["step"]] for m in lines]
    assert [m["step"] for m in lines] == list(range(len(lines)))


@pytest.mark.parametrize("nodes, layout", LAYOUTS if LONG else LAYOUTS[:1])
def test_all_nodes_alive_go_on_from_their_snapshots(job, undisturbed, nodes, layout, tmp_path):
    where, step = interrupted(job, tmp_path, nodes, **layout)
    resumed, run = go_on(job, tmp_path, step + 8, where, nodes, generation=2, **layout)
    assert (resumed["tier"], resumed["rebuilt_bytes"]) == ("memory", 0) and resumed["step"] >= step
    matches(run, undisturbed)


@pytest.mark.parametrize("lost", [0, 1, 2] if LONG else [1])
def test_a_lost_node_is_made_again_from_parity_on_a_spare(job, undisturbed, lost, tmp_path):
    where, step = interrupted(job, tmp_path, 3, pp=3)
    lose(where[lost])
    resumed, run = go_on(job, tmp_path, step + 8, where, 3, generation=2, pp=3)
    assert (resumed["tier"], resumed["source"], resumed["step"]) == ("memory", "parity", step)
    assert resumed["rebuilt_bytes"] > 0 and not run.events("note")
    matches(run, undisturbed)


def test_one_node_of_two_has_all_of_it(job, undisturbed, tmp_path):
    where, step = interrupted(job, tmp_path, 2, dp=2)
    resumed, run = go_on(job, tmp_path, step + 8, where[0], 1, generation=2)
    assert (resumed["source"], resumed["step"]) == ("parity", step)
    matches(run, undisturbed)


def test_two_lost_nodes_fall_back_to_the_disk_and_an_event_says_so(job, undisturbed, tmp_path):
    where, step = interrupted(job, tmp_path, 3, dp=3)
    lose(where[0])
    lose(where[2])
    resumed, run = go_on(job, tmp_path, step + 8, where, 3, generation=2, dp=3)
    assert (resumed["tier"], resumed["source"]) == ("disk", "disk") and resumed["step"] < step
    notes = [e["message"] for e in run.events("note")]
    assert len(notes) == 1 and "was in the nodes' memory, but 2 of the 3 ranks' data is gone" in notes[0]
    assert "going on from step" in notes[0] and notes[0].endswith("on disk")
    matches(run, undisturbed)


if LONG:
    def test_the_nodes_that_are_left_go_on_without_the_lost_one_in_another_layout(job, undisturbed, tmp_path):
        where, step = interrupted(job, tmp_path, 3, dp=3)
        resumed, run = go_on(job, tmp_path, step + 8, where[1:], 2, generation=2, pp=2)
        assert (resumed["source"], resumed["step"]) == ("parity", step)
        matches(run, undisturbed)

    def test_nodes_that_need_nothing_of_each_other_send_nothing(job, tmp_path):
        job["train"]["model"]["tie_embeddings"] = False
        where, step = interrupted(job, tmp_path, 2, pp=2)
        resumed, _ = go_on(job, tmp_path, step + 8, where, 2, generation=2, pp=2)
        assert (resumed["source"], resumed["fetched_bytes"]) == ("memory", 0) and resumed["step"] >= step

    def test_a_damaged_parity_gives_way_to_what_is_older(job, undisturbed, tmp_path):
        where, step = interrupted(job, tmp_path, 2, dp=2)
        with open(where[0] / f"step-{step:08d}" / "PARITY", "r+b") as f:
            f.seek(8192)
            f.write(b"\xff" * 64)
        lose(where[1])
        resumed, run = go_on(job, tmp_path, step + 8, where, 2, generation=2, dp=2)
        assert resumed["step"] < step
        assert any("fails its checksum" in e["message"] for e in run.events("note"))
        matches(run, undisturbed)

    def test_snapshots_left_over_are_collected(job, tmp_path):
        where, step = interrupted(job, tmp_path, 2, dp=2)
        _, run = go_on(job, tmp_path, step + 20, where, 2, generation=2, dp=2)
        run.must()
        for m in where:
            assert len(committed(m)) <= 3 and not list(m.glob(".view")) and not list(m.glob(".trash-*")), os.listdir(m)
