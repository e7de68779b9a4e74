"""A rank tests its device between two steps when its flight page asks for that: once for each number, and it tells of a
processor that is slow; the run goes on with the same bits."""
import os
import struct

from tests import specs
from tests.integration import ranks

SLOW_RANK = os.path.join(ranks.BUILD, "tests", "fault", "slow_rank.so")
TRIAL_AT = 44  # the word of the page (worker/flight/flight_priv.h)
STEPS = 8


def ask(run, rank, number):
    with open(run.flight_path(rank), "r+b") as f:
        f.seek(TRIAL_AT)
        f.write(struct.pack("<I", number))


def test_a_slow_processor_is_told_by_a_test_between_two_steps_that_changes_no_bit(tmp_path):
    spec = specs.train(specs.write_corpus(str(tmp_path / "corpus.txt")), steps=STEPS, every_steps=0)
    alone = ranks.train(spec, str(tmp_path / "alone"), dp=2)
    slow = tmp_path / "slow"
    slow.write_bytes(struct.pack("=ii", 1, 200))  # all that rank 1 computes takes three times as long
    env = {"LD_PRELOAD": SLOW_RANK, "FAKE_SLOW_RANK": str(slow)}
    with ranks.Run(str(tmp_path / "run"), spec, dp=2, hold_at=2, env=env) as run:
        run.until(lambda: len(run.metrics()) == 2)
        assert run.events("device-test") == []
        for rank in range(2):
            ask(run, rank, 7)
        run.hold.at(5)
        run.until(lambda: len(run.metrics()) == 5)
        told = {e["rank"]: e for e in run.events("device-test")}
        assert sorted(told) == [0, 1] and {e["number"] for e in told.values()} == {7}, told
        assert told[1]["product_us"] > 1.5 * told[0]["product_us"], told
        assert told[1]["copy_us"] > 1.5 * told[0]["copy_us"] > 0, told
        ask(run, 0, 8)  # of one alone
        run.hold.release()
        run.must()
        assert [(e["rank"], e["number"]) for e in run.events("device-test")[2:]] == [(0, 8)]
        assert ranks.digest(run) == ranks.digest(alone)
