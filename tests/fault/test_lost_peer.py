"""An assertion of libucx in a rank, as where a peer goes in the middle of a long message, is no failure of its own."""
import os

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.fault.test_hangs import step_of

INJECT = os.path.join(os.path.dirname(BIN), "tests", "fault", "inject")


def test_a_rank_that_libucx_ends_is_one_that_others_lost_and_no_program_that_failed(tmp_path):
    order = tmp_path / "order"
    cluster = Cluster(str(tmp_path), slots=0, server_args=["--round", "1"], env={"FAKE_INJECT": str(order)})
    cluster.programs = INJECT
    with cluster:
        for name in ("n1", "n2"):
            cluster.start_agent(name, "cpu:1")
        cluster.wait_nodes(["n1", "n2"])
        corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
        job = cluster.submit(specs.train(corpus, steps=100000, every_steps=0, devices=2))["id"]
        wait_for("steps", lambda: step_of(cluster, job) > 5)
        order.write_text("assert 1\n", encoding="ascii")
        wait_for("the job to go on", lambda: cluster.job(job)["generation"] == 2)
        failed, = [e for e in cluster.events(job) if e["cause"]["code"] == "rank-failed"]
        assert "no rank failed of itself" in failed["cause"]["text"], failed
        assert (failed["data"]["outcome"]["rank"], failed["cause"]["class"]) == (1, "system"), failed
