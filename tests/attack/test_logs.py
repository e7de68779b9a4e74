"""A rank that never stops printing: what is kept of its output, and what of its node's disk it takes."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

MIB = 1 << 20
PRINTS = "/usr/bin/python3 -c 'import sys; [print(f\"{i:015d}\") for i in range(%d // 16)]; sys.stdout.flush()'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("logs")), slots=1) as c:
        yield c
    assert not c.leftovers()


@pytest.mark.skipif(not os.environ.get("MUSTER_TEST_LONG"), reason="takes half a minute; `make test-all` runs it")
def test_of_a_log_beyond_its_limit_the_first_quarter_and_the_newest_are_kept_and_the_gap_is_named(cluster, tmp_path):
    size, go = 40 * MIB, tmp_path / "go"
    script = f"{PRINTS % size}; while [ ! -e {go} ]; do sleep 0.05; done"
    job = cluster.submit(dict(specs.command(script), logs={"max_mib": 16}))["id"]

    def whole():
        logs = cluster.api("GET", f"/v1/jobs/{job}/logs?rank=0")["logs"]
        return logs and logs[0]["size"] == size and logs[0]
    log = wait_for("all of the log", whole)
    on_node = os.path.join(cluster.agent_state(), "runs", f"{job}-g1", "rank-00000.log")
    assert os.path.getsize(on_node) == size
    assert os.stat(on_node).st_blocks * 512 < 20 * MIB  # what the server has was given back to the disk
    go.touch()
    cluster.wait(job, "succeeded")
    assert log["left_out"]["from"] == 4 * MIB
    kept = size - log["left_out"]["to"]
    assert 12 * MIB <= kept <= 16 * MIB
    lines = cluster.muster("logs", job).stdout.splitlines()
    gap = f"[muster: {size - 4 * MIB - kept} bytes of this output are not kept]"
    numbers = [f"{i:015d}" for i in range(size // 16)]
    assert lines == numbers[:4 * MIB // 16] + [gap] + numbers[-(kept // 16):]


@pytest.mark.parametrize("most", [15, 1025])
def test_a_limit_of_logs_that_cannot_be_is_refused(cluster, most):
    status, problem = cluster.request("POST", "/v1/jobs", dict(specs.command("true"), logs={"max_mib": most}))
    assert status == 422 and problem["errors"][0]["pointer"] == "/logs/max_mib"
    assert "16" in problem["errors"][0]["message"] and "1024" in problem["errors"][0]["message"]
