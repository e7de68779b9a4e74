"""Archives whose moments are coded with loss: who goes on from one learns as from the checkpoint it was made of."""
import json
import os
import shutil
import subprocess

import pytest

from tests import specs
from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUSTER = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "bin", "muster")
AT, STEPS = 10, 30


def muster(*args, status=0):
    out = subprocess.run([MUSTER, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert out.returncode == status, out.stdout + out.stderr
    return out.stdout + out.stderr


@pytest.fixture(scope="module", name="job")
def trained(tmp_path_factory):
    """A job on two replicas that hold half of the moments each, with a checkpoint every AT steps."""
    folder = tmp_path_factory.mktemp("archive")
    spec = specs.train(specs.write_corpus(str(folder / "text.txt")), steps=STEPS, devices=2, every_steps=AT)
    spec["parallel"]["zero"] = 1
    (folder / "spec.json").write_text(json.dumps(spec))
    muster("run", folder / "spec.json", "--dir", folder / "job")
    return folder / "job"


def copy(job, name):
    return shutil.copytree(job, job.parent / name)


def losses_after(job):
    """Of the steps from AT on, made again from the checkpoint of AT."""
    for step in range(2 * AT, STEPS + 1, AT):
        shutil.rmtree(job / "checkpoints" / f"step-{step:08d}")
    (job / "metrics.jsonl").unlink()
    muster("run", job.parent / "spec.json", "--dir", job, "--resume")
    return [json.loads(line)["loss"] for line in (job / "metrics.jsonl").read_text().splitlines()]


def test_training_goes_on_from_coded_moments_as_from_exact_ones(job):
    exact, coded = copy(job, "exact"), copy(job, "coded")
    whole = coded / "checkpoints" / f"step-{AT:08d}"
    before = sum(f.stat().st_size for f in whole.glob("*.mck"))
    assert muster("checkpoint", "archive", coded / "checkpoints", "--codec", "optq") == "archived 2 checkpoints\n"
    assert sum(f.stat().st_size for f in whole.glob("*.mck")) < before / 2
    assert "is whole" in muster("checkpoint", "verify", whole)
    *differences, equal = muster("checkpoint", "diff", whole, exact / "checkpoints" / whole.name,
                                 status=1).splitlines()
    assert differences and all("(moment1): " in line or "(moment2): " in line for line in differences)
    assert equal.split()[0] != "0"
    want, got = losses_after(exact), losses_after(coded)
    assert len(want) == len(got) == STEPS - AT and want != got
    assert max(abs(a - b) for a, b in zip(want, got)) < 1e-3


@pytest.mark.parametrize("options,status,says", [
    (["--codec", "optq", "--rho", "0.9"], 1, "cannot be kept to 0.9 of v; want 0.001 to 0.5"),
    (["--codec", "optq", "--eb", "2"], 1, "cannot be kept to 2 of the learning rate"),
    (["--codec", "optq", "--eb", "nan"], 2, "--eb wants a number above 0, not 'nan'"),
    (["--codec", "optq", "--rho", "1%"], 2, "--rho wants a number above 0, not '1%'"),
    (["--rho", "0.1"], 2, "are for --codec optq, not for 'plane'"),
    (["--codec", "optq4"], 1, "codec 'optq4' is not for archives"),
])
def test_bounds_that_cannot_be_are_refused_and_nothing_is_archived(job, options, status, says):
    assert says in muster("checkpoint", "archive", job / "checkpoints", *options, status=status)
    doc = json.loads(muster("checkpoint", "inspect", job / "checkpoints" / f"step-{AT:08d}", "-o", "json"))
    assert not any(f["archived"] for f in doc["files"])
