"""A training run that is held at a step: it does no more of them, obeys its orders there, and changes no bit."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.integration import ranks
from tests.results import digest, lines, losses, undisturbed

STEPS = 12


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def the_spec(corpus, **how):
    spec = specs.train(corpus, steps=STEPS, every_steps=4, virtual_workers=4, **how)
    spec["train"]["model"]["dropout"] = 0.1
    return spec


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    return ranks.train(the_spec(corpus), str(tmp_path_factory.mktemp("alone")))


def steps_done(run):
    return [m["step"] for m in run.metrics()]


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}, {"dp": 2}])
def test_it_saves_and_goes_on_when_asked_to_with_the_same_bits(corpus, alone, tmp_path, layout):
    with ranks.Run(str(tmp_path), the_spec(corpus), hold_at=0, **layout) as run:
        run.until(lambda: "held before step 0" in run.log())
        run.order(0, ranks.SAVE)
        run.until(lambda: run.checkpoints() == [0])
        assert steps_done(run) == []
        run.hold.at(5)
        run.until(lambda: len(steps_done(run)) == 5)
        run.order(0, ranks.SAVE)
        run.until(lambda: run.checkpoints() == [0, 4, 5])
        assert [e["step"] for e in run.until(lambda: [e for e in run.events("checkpoint") if e["step"] == 5])] == [5]
        assert steps_done(run) == list(range(5))
        run.hold.release()
        run.must()
    assert steps_done(run) == list(range(STEPS))
    if not layout or "dp" in layout:  # others add up in another order
        assert ranks.losses(run) == ranks.losses(alone)
        assert ranks.digest(run) == ranks.digest(alone)


@pytest.mark.parametrize("order", [ranks.HAND_OVER, ranks.MOVE, ranks.DRAIN])
def test_it_leaves_its_state_at_that_step_again_and_again(corpus, alone, tmp_path, order):
    """The second and third generation, too, which have done no step of their own."""
    spec = the_spec(corpus)
    spec["checkpoint"]["memory_every_steps"] = 100
    memory = tmp_path / "memory"
    memory.mkdir()
    for generation in 1, 2, 3:
        with ranks.Run(str(tmp_path), spec, dp=2, generation=generation, memory=memory, hold_at=6) as run:
            run.until(lambda: steps_done(run) == list(range(6)) and len(run.events("resumed")) == (generation > 1))
            for rank in 0, 1:
                run.order(rank, order)
            run.must(ranks.DRAINED)
        assert steps_done(run) == list(range(6))
        assert [e["step"] for e in run.events("resumed")] == [6] * (generation > 1)
    run = ranks.train(spec, str(tmp_path), generation=4, memory=memory)
    assert run.events("resumed")[0]["tier"] == ("disk" if order == ranks.DRAIN else "memory")
    assert steps_done(run) == list(range(STEPS))
    assert ranks.losses(run) == ranks.losses(alone)
    assert ranks.digest(run) == ranks.digest(alone)


def test_it_gives_up_when_told_to(corpus, tmp_path):
    with ranks.Run(str(tmp_path), the_spec(corpus), dp=2, hold_at=3) as run:
        run.until(lambda: len(steps_done(run)) == 3)
        for rank in 0, 1:
            run.order(rank, ranks.ABORT)
        run.must(ranks.ABORTED)
    assert steps_done(run) == list(range(3))


def test_a_job_of_a_cluster_is_held_suspended_and_scaled(corpus, tmp_path):
    spec = the_spec(corpus, devices=1)
    want = undisturbed(str(tmp_path), spec)
    with Cluster(str(tmp_path / "cluster"), slots=2, server_args=["--hold", "0", "--round", "1"], hold_at=6) as cluster:
        job = cluster.submit(spec)["id"]
        folder = cluster.job(job)["dir"]
        wait_for("six steps", lambda: len(lines(folder)) == 6)
        cluster.action(job, "suspend")
        cluster.wait(job, "suspended")
        cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": 2, "max": 2}})
        cluster.action(job, "resume")
        wait_for("two ranks", lambda: cluster.job(job)["state"] == "running" and len(cluster.rank_pids(job)) == 2)
        assert len(lines(folder)) == 6
        cluster.hold.at(9)
        wait_for("nine steps", lambda: len(lines(folder)) == 9)
        cluster.hold.release()
        cluster.wait(job, "succeeded")
        assert [line["ranks"] for line in lines(folder)] == [1] * 6 + [2] * 6
        assert (digest(os.path.join(folder, "checkpoints")), losses(folder)) == want
    assert not cluster.leftovers()
