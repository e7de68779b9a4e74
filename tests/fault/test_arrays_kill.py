"""Arrays over kills of the server: each task runs once, and never more at one time than may."""
import random

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

TASKS, MOST = 24, 3


def most_at_once(lines):
    """From lines "begin 7" and "end 7", in order: how many were between the two at one time."""
    running, most = 0, 0
    for line in lines:
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("seed", [1])
def test_max_running_holds_and_each_task_runs_once_over_kills_of_the_server(tmp_path, seed):
    rng = random.Random(seed)
    log = tmp_path / "log"
    log.touch()
    spec = specs.command(f"echo begin ${{{{index}}}} >> {log}; sleep 0.2; echo end $MUSTER_ARRAY_INDEX >> {log}")
    spec["array"] = {"count": TASKS, "max_running": MOST}
    with Cluster(str(tmp_path / "c"), slots=6) as cluster:
        array = cluster.submit(spec)["id"]
        for part in (1, 2, 3, 4):
            at = part * TASKS // 5 + rng.randint(0, 2)
            wait_for(f"{at} tasks", lambda at=at: log.read_text().count("begin") >= at)
            cluster.kill_server()
            cluster.start_server()
        ended = cluster.wait(array, ["succeeded", "failed", "cancelled"])
        assert ended["state"] == "succeeded", ended
        assert ended["array"]["tasks"]["succeeded"] == TASKS
        tasks = cluster.list("/v1/jobs", "jobs", f"&array={array}")
    lines = log.read_text().splitlines()
    assert sorted(lines) == sorted(f"{word} {i}" for word in ("begin", "end") for i in range(TASKS))
    assert most_at_once(lines) <= MOST
    assert [t["task"]["index"] for t in tasks] == list(range(TASKS))
    assert all(t["generation"] == 1 for t in tasks), "no task was started twice"
