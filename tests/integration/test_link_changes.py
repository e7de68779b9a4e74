"""auto over a link whose rate changes while a job runs: it is noticed, measured again, decided again, and said."""
import contextlib
import statistics

import pytest

from tests import specs
from tests.bench.slow_link import Link, LinkedRun
from tests.integration import ranks
from tests.integration.test_two_machines import can_make_hosts

pytestmark = pytest.mark.skipif(not can_make_hosts(),
                                reason="making and entering network namespaces needs root on a file system of its own")


def test_auto_decides_again_when_the_link_changes(tmp_path):
    spec = specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=100000, every_steps=0, virtual_workers=2,
                       devices=2, compress={"dp": "auto"})
    spec["train"]["batch"] = {"sequences": 2, "micro": 1}

    with contextlib.closing(Link("none")) as link, LinkedRun(link, str(tmp_path), spec, dp=2) as run:
        def notes():
            return [e["message"] for e in run.events("note") if "compress.dp" in e["message"]]

        run.until(lambda: len(run.metrics()) > 30)
        assert "compress.dp: " in run.log(0)
        before = len(notes())
        link.shape("20mbit")
        run.until(lambda: notes()[before:] and "compress.dp: coded" in notes()[-1])
        seen = len(run.metrics())
        run.until(lambda: len(run.metrics()) > seen + 12)
        lines = run.metrics()[-10:]
        quotient = statistics.median(m["wire_dp_ms"] / m["wire_dp_predicted_ms"] for m in lines)
        assert 0.3 < quotient < 3, lines
        slow = len(notes())
        link.shape("none")
        run.until(lambda: len(notes()) > slow)  # whichever is faster on this machine
        for rank in range(2):
            run.order(rank, ranks.DRAIN)
        run.must(ranks.DRAINED)
    losses = ranks.losses(run)
    assert all(loss > 0 for loss in losses) and losses[-1] < losses[0]
