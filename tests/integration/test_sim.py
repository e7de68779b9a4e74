"""The simulator of the whole cluster: seeds, runs that failed once, and that a seed replays to the byte."""
import glob
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIM = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "sim/sim")
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))


def run(*options):
    done = subprocess.run([SIM, *options], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_all_holds_under_faults_seed_after_seed():
    out = run("--for", "600" if LONG else "10", "--seed", "1", "--shrink")
    assert "BROKEN" not in out, out
    assert "cut short" not in out


def test_a_hundred_nodes_hold_as_few_do():
    n = 1 if LONG else 2
    out = run("--seed", "1", "--agents", "100", "--jobs", str(600 // n), "--n-faults", str(200 // n), "--over",
              str(200 // n))
    assert "all held" in out, out


def test_hostile_agents_and_users_reach_nothing_of_others():
    out = run("--faults", "none", "--hostile", "16", "--seed", "2")
    assert "all held" in out, out
    assert all(int(n) > 1000 for n in re.findall(r"hostile calls, (\d+) refused", out)), out


def test_each_rank_that_stands_still_is_named_and_no_other():
    out = run("--faults", "rank-hang", "--hostile", "0", "--seed", "4", "--trace")
    assert "all held" in out, out[-2000:]
    took = [float(s) for s in re.findall(r"rank \d+ of j\d+-g\d+ is found to stand still after ([\d.]+) s", out)]
    assert len(took) >= 5
    assert max(took) < 5.2, took  # its deadline of 5 s, and no wait for the next report


def test_a_spare_is_never_given_to_two():
    out = run("--spares", "3", "--seed", "1000", "--seeds", "5", "--hostile", "0", "--shrink")
    assert "5 passed, 0 failed" in out, out
    out = run("--spares", "3", "--seed", "1002", "--hostile", "0", "--trace")
    assert "spares are claimed" in out


def test_a_seed_replays_to_the_byte():
    def told(seed):
        out = run("--seed", seed, "--trace", "--over", "120", "--jobs", "30")
        return re.sub(r"and [\d.]+ s of this machine \(\d+ events/s\)", "", out)

    assert told("7") == told("7")
    assert told("7") != told("8")


def test_nothing_is_broken_where_nothing_breaks():
    n = "5" if LONG else "2"
    out = run("--faults", "none", "--seeds", n)
    assert f"{n} passed, 0 failed" in out, out


@pytest.mark.parametrize("path", sorted(glob.glob(f"{ROOT}/tests/sim/found/*.faults")), ids=os.path.basename)
def test_what_failed_once_holds(path):
    """Each file: faults, after a line "# options of the run"."""
    with open(path, encoding="utf-8") as f:
        options = f.readline().removeprefix("#").split()
    assert "all held" in run(*options, "--fault-file", path)


def test_a_kind_of_fault_that_is_none_is_named():
    done = subprocess.run([SIM, "--faults", "fire"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "'fire' is no kind of fault" in done.stderr and "server-kill" in done.stderr
