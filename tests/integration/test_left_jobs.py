"""What a failed test leaves in a cluster that it shares with others (tests/conftest.py)."""
import os
import subprocess
import sys

from tests.cluster import ROOT
from tests.patience import PATIENCE_S

FILE = '''
import pytest
from tests import specs
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("shared")), slots=2) as c:
        yield c


@pytest.fixture(scope="module")
def shared(cluster):
    job = cluster.submit(specs.command("sleep 600"))["id"]
    cluster.wait(job, "running")
    return job


def test_that_fails(cluster, shared):
    cluster.wait(cluster.submit(specs.command("sleep 600"))["id"], "running")
    assert False, "on purpose"


def test_after_it(cluster, shared):
    job = cluster.submit(specs.command("true"))["id"]
    cluster.wait(job, "succeeded", 20)
    assert cluster.job(shared)["state"] == "running", "what belongs to all tests is not the failed one's"
'''


def test_a_test_that_fails_leaves_its_devices_to_the_next(tmp_path):
    path = tmp_path / "test_two.py"
    path.write_text(FILE, encoding="utf-8")
    out = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(tmp_path),
                          path], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False,
                         env=dict(os.environ, PYTHONPATH=ROOT))
    assert "1 failed, 1 passed" in out.stdout, out.stdout + out.stderr
