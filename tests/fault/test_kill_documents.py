"""A fine-tuning job on long and short documents, from submission to checkpoint through the server, scaled down and then
with a rank killed: it goes on at the exact document, and its weights are those of a run that nobody disturbed."""
import json
import os
import signal
import subprocess

from tests import specs
from tests.cluster import BIN
from tests.fault.test_kill import digest, losses
from tests.integration.test_documents import write_jsonl
from tests.integration.test_elastic import elastic_cluster, go_on, resumed, scale, shared_memory  # noqa: F401

STEPS = 30


def the_spec(corpus):
    """tp 2 x cp 2 x dp 2; the longest documents are shared by cp, the others are whole on a rank."""
    spec = specs.train(corpus, steps=STEPS, tp=2, devices=8, every_steps=10)
    spec["parallel"]["cp"] = 2
    spec["train"]["model"].update(context=300, dropout=0.1)
    spec["train"]["data"] = {"path": corpus, "format": "jsonl", "samples": "documents", "holdout": 0.05}
    spec["train"]["batch"] = {"sequences": 12, "capacity": 200}
    spec["sequence"] = {"policy": "sweep"}
    return spec


def laid_out(folder):
    """How the documents of each step were: all that must not depend on when the job was begun again."""
    with open(f"{folder}/metrics.jsonl", encoding="ascii") as f:
        return [[m[key] for key in ("step", "tokens", "targets", "documents", "micro_batches", "sharded_share")]
                for m in map(json.loads, f)]


def undisturbed(folder, corpus):
    path = os.path.join(folder, "spec.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump(the_spec(corpus), f)
    out = subprocess.run([f"{BIN}/muster", "run", path, "--devices", "8", "--dir", f"{folder}/out"],
                         capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    return f"{folder}/out"


def test_a_scaled_and_killed_job_goes_on_at_the_exact_document(tmp_path, shared_memory):
    corpus = write_jsonl(str(tmp_path / "corpus.jsonl"), documents=400)
    folder = str(tmp_path / "alone")
    os.makedirs(folder)
    want = undisturbed(folder, corpus)
    assert any(0 < step[-1] < 1 for step in laid_out(want))
    with elastic_cluster(tmp_path / "cluster", slots=8, memory=shared_memory) as c:
        job = c.submit(the_spec(corpus))["id"]
        folder = c.job(job)["dir"]
        step = go_on(c, job, 6, 8)
        scale(c, job, 4, 4)
        go_on(c, job, step + 2, 4)
        os.kill(c.rank_pids(job)[0], signal.SIGKILL)
        c.hold.release()
        ended = c.wait(job, ["succeeded", "failed", "cancelled"])
        assert ended["state"] == "succeeded", json.dumps(ended["outcome"], indent=1)
        assert ended["generation"] == 3 and resumed(c, job)[0] == "memory"
        assert digest(f"{folder}/checkpoints") == digest(f"{want}/checkpoints")
        assert losses(folder) == losses(want)
        assert laid_out(folder) == laid_out(want)
    assert not c.leftovers()
