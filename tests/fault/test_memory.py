"""kill -9 of a rank: the job goes on from the snapshot in memory, not from the disk, with the same bits."""
import glob
import os
import random
import re
import shutil
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.fault.test_kill import digest, losses, steps_done
from tests.integration import ranks

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
STEPS = 120


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def the_spec(corpus, memory_every):
    spec = specs.train(corpus, steps=STEPS, tp=2, devices=4, every_steps=50)
    spec["train"]["model"]["dropout"] = 0.1
    spec["checkpoint"]["memory_every_steps"] = memory_every
    return spec


def train(tmp_path, spec, strike_at=()):
    """Run a job, killing a rank after each of the steps. Its digest, its losses, and its resumed events."""
    rng = random.Random(SEED)
    with Cluster(str(tmp_path), slots=4, hold_at=min(strike_at, default=None)) as cluster:
        job = cluster.submit(spec)["id"]
        folder = cluster.job(job)["dir"]
        for step in strike_at:
            cluster.hold.at(step)
            wait_for(f"step {step}", lambda: steps_done(folder) >= step and cluster.rank_pids(job))
            if spec["checkpoint"]["memory_every_steps"]:
                wait_for("a snapshot", lambda: cluster.snapshots(job))
            os.kill(rng.choice(cluster.rank_pids(job)), signal.SIGKILL)
        cluster.hold.release()
        ended = cluster.wait(job, ["succeeded", "failed", "cancelled"])
        assert ended["state"] == "succeeded", ended["outcome"]
        resumed = [e["data"] for e in cluster.events(job) if e["data"].get("type") == "resumed"]
        wait_for("the memory to be given back", lambda: not glob.glob(f"{cluster.memory()}/*/{job}"))
        return digest(f"{ended['dir']}/checkpoints"), losses(ended["dir"]), resumed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, corpus):
    return train(tmp_path_factory.mktemp("undisturbed"), the_spec(corpus, 0))


def test_a_killed_rank_costs_the_steps_since_the_last_snapshot(tmp_path, corpus, undisturbed):
    print(f"seed {SEED}")
    got = train(tmp_path, the_spec(corpus, 5), [33])
    assert got[:2] == undisturbed[:2]
    assert [e["tier"] for e in got[2]] == ["memory"]
    assert 0 < got[2][0]["step"] < 50 and got[2][0]["step"] % 5 == 0


# --- ranks started by hand ------------------------------------------------------------------------------

@pytest.fixture
def job(corpus):
    """With a rate that does not depend on how many steps there are to come."""
    spec = specs.train(corpus, steps=100000, every_steps=20)
    spec["train"]["optimizer"]["schedule"] = "constant"
    spec["checkpoint"]["memory_every_steps"] = 4
    return spec


def snapshots(memory):
    return sorted(int(p.parent.name[5:]) for p in memory.glob("step-*/MANIFEST"))


def interrupted(job, folder, **layout):
    """A run that is killed once there are a checkpoint and two newer snapshots; the folder of these."""
    memory = folder / "memory"
    memory.mkdir()
    with ranks.Run(str(folder), job, memory=str(memory), hold_at=4, **layout) as run:
        run.walk(*range(4, 29, 4), ready=lambda step: step in snapshots(memory))
        run.until(lambda: run.checkpoints() == [20] and snapshots(memory) == [24, 28])
    return memory


def damage(memory, step, chunk=0):
    with open(memory / f"step-{step:08d}" / "rank-00000.mck", "r+b") as f:
        f.seek(5000 + (chunk << 20))
        f.write(b"\xff" * 64)


def go_on(job, folder, steps, **how):
    job["train"]["steps"] = steps
    run = ranks.train(job, str(folder), memory=str(folder / "memory"), **how)
    return [(e["step"], e["tier"]) for e in run.events("resumed")], run


@pytest.mark.parametrize("layout", [{}, {"dp": 2}, {"pp": 2}], ids=["alone", "dp2", "pp2"])
def test_any_layout_goes_on_from_the_memory_of_another_with_the_same_bits(job, corpus, layout, tmp_path):
    step = snapshots(interrupted(job, tmp_path, dp=2))[-1]
    resumed, run = go_on(job, tmp_path, step + 3, generation=2, **layout)
    assert resumed == [(step, "memory")]
    alone = ranks.train(job, str(tmp_path / "alone"))
    assert [(m["step"], m["loss"]) for m in run.metrics()] == [(m["step"], m["loss"]) for m in alone.metrics()]


def test_a_damaged_snapshot_gives_way_to_the_one_before_it_and_that_to_the_disk(job, tmp_path):
    memory = interrupted(job, tmp_path)
    older, newer = snapshots(memory)
    job["checkpoint"] |= {"memory_every_steps": 0, "every_steps": 0}
    damage(memory, newer)
    resumed, run = go_on(job, tmp_path, newer + 1, generation=2)
    assert resumed == [(older, "memory")]
    told = [e for e in run.events("note") if "fails its checksum" in e["message"]]
    assert [e["step"] for e in told] == [newer] and "rank-00000.mck': chunk 0" in told[0]["message"]
    assert re.search(r": it holds '[a-z0-9._]+ \(master\)'", told[0]["message"])
    shutil.rmtree(run.job + f"/checkpoints/step-{newer + 1:08d}")
    damage(memory, older)
    resumed, run = go_on(job, tmp_path, newer + 1, generation=3)
    assert [tier for _, tier in resumed] == ["disk"] and resumed[0][0] % 20 == 0
    assert [e["step"] for e in run.events("note") if "fails its checksum" in e["message"]] == [newer, older]


def test_an_attempt_that_finds_nothing_to_go_on_from_says_so(job, tmp_path):
    anew = "no checkpoint is on disk and no snapshot in memory; training begins anew"
    for generation, told in ((1, []), (2, [anew])):
        folder = tmp_path / str(generation)
        (folder / "memory").mkdir(parents=True)
        resumed, run = go_on(job, folder, 6, generation=generation)
        assert resumed == [] and [e["message"] for e in run.events("note")] == told


def test_a_run_that_finds_only_damage_starts_afresh(job, tmp_path):
    """What was read before the damage was met, weights and first moments, is no part of it."""
    memory = interrupted(job, tmp_path)
    shutil.rmtree(tmp_path / "job" / "checkpoints")
    for step in snapshots(memory):
        damage(memory, step, 2)
    resumed, run = go_on(job, tmp_path, 8, generation=2)
    assert resumed == [] and len([e for e in run.events("note") if "fails its checksum" in e["message"]]) == 2
    alone = ranks.train(job, str(tmp_path / "alone"))
    assert [m["loss"] for m in run.metrics() if m["generation"] == 2] == [m["loss"] for m in alone.metrics()]


def test_jobs_hold_no_more_of_a_nodes_memory_than_its_limit(job, tmp_path):
    """One job has its snapshots; another finds no room beside them, says so and trains on; what the first has stays."""
    root = tmp_path / "root"
    job["train"]["steps"] = 20
    (root / "j1").mkdir(parents=True)
    with ranks.Run(str(tmp_path / "j1"), job, memory=str(root / "j1"), memory_limit=1 << 30, hold_at=4) as run:
        run.walk(4, 8, ready=lambda step: step in snapshots(root / "j1"))
        run.hold.release()
        run.must()
    assert not run.events("note")
    kept = snapshots(root / "j1")
    reserved = int((root / "j1" / ".reserved").read_text())
    held = sum(f.stat().st_size for f in root.rglob("rank-*.mck"))
    assert len(kept) >= 2 and 0 < held <= reserved
    (root / "j2").mkdir()
    run = ranks.train(job, str(tmp_path / "j2"), memory=str(root / "j2"), memory_limit=2 * reserved - 1)
    notes = [e["message"] for e in run.events("note")]
    assert len(notes) == 1 and "--memory-limit" in notes[0]
    assert not snapshots(root / "j2") and snapshots(root / "j1") == kept
