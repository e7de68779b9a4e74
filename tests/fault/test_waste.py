"""Folders that take long to remove: their node's heartbeats go on, and the next agent finishes what one began."""
import glob
import os

from tests import specs
from tests.cluster import BIN, Cluster, wait_for

LIBRARY = os.path.join(os.path.dirname(BIN), "tests", "fault", "slow_unlink.so")
FILES = 5000
LEAVE = f"""
import os
for i in range({FILES}):
    os.makedirs(f"many/{{i % 50}}", exist_ok=True)
    open(f"many/{{i % 50}}/{{i}}", "w").close()
"""


def test_a_run_of_many_files_is_removed_beside_the_heartbeats_and_by_the_next_agent(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        hold = str(tmp_path / "hold-files")
        open(hold, "w", encoding="ascii").close()
        cluster.env.update(LD_PRELOAD=LIBRARY, SLOW_UNLINK=hold)
        cluster.start_agent("n1", "cpu:2")
        cluster.wait_nodes(["n1"])
        runs = f"{cluster.agent_state()}/runs"

        def seen():
            return cluster.nodes()[0]["last_seen"]

        def aside():
            return glob.glob(f"{runs}/.gone-*")
        job = cluster.submit({**specs.command("x"), "command": {
            "argv": ["/usr/bin/python3", "-c", f"import os; os.chdir(os.environ['MUSTER_RUN_DIR']){LEAVE}"]}})["id"]
        cluster.wait(job, "succeeded")
        wait_for("the folder to be set aside", aside)
        for _ in range(3):
            before = seen()
            wait_for("a heartbeat", lambda before=before: seen() != before)
        assert len(aside()) == 1 and not glob.glob(f"{runs}/{job}-*")
        assert len(glob.glob(f"{aside()[0]}/many/*/*")) == FILES
        other = cluster.submit(specs.command("true"))["id"]  # its slot is free, and its own folder waits behind
        cluster.wait(other, "succeeded")
        wait_for("the other's folder to be set aside", lambda: len(aside()) == 2)
        cluster.kill_agent()
        os.remove(hold)
        cluster.start_agent("n1")
        wait_for("both to be gone", lambda: not os.listdir(runs))
    assert not cluster.leftovers()
