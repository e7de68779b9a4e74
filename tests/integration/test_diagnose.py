"""`muster diagnose`: a saved dump is judged again, and a live job says what each of its ranks does."""
import json
import os
import subprocess

from tests.cluster import BIN
from tests.patience import PATIENCE_S


def rank(i, waits):
    """A rank of eight: all are in one group, and one has not entered its newest call."""
    told = {"rank": i, "state": "running", "step": 90, "phase": "reduce" if waits else "data",
            "idle_us": 8000000 if waits else 8200000, "gap_us": 2000,
            "groups": [{"name": "dp", "key": 7, "entered": 412 if waits else 411, "left": 411, "size": 8}]}
    if waits:
        told.update(op="all_reduce", op_key=7, op_call=412, op_peer=-1)
    return {"node": f"n{i // 2 + 1}", "told": told}


def dump(tmp_path, **more):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(dict({
        "version": 1, "job": "j17", "generation": 3, "number": 1, "kind": "hang", "at_ms": 1760000000000,
        "layout": {"dp": 8}, "ranks": [rank(i, i != 5) for i in range(8)]}, **more)), encoding="utf-8")
    return str(path)


def diagnose(*args):
    return subprocess.run([f"{BIN}/muster", "diagnose", *args], capture_output=True, text=True, timeout=PATIENCE_S,
                          env=dict(os.environ, MUSTER_SERVER="http://127.0.0.1:1", MUSTER_TOKEN="x"), check=False)


def test_a_saved_dump_names_the_rank_the_call_and_who_waits_in_it_without_a_server(tmp_path):
    shown = diagnose("--dump", dump(tmp_path))
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[1] == ("not-entered: rank 5 on n3 has not entered all-reduce 412 of 'dp' at step 90 that 7 others "
                        "wait in; it has been in the data loader for 8.2 s")
    assert any(line.split() == ["dp", "8", "412", "0-4,", "6-7", "5"] for line in lines), shown.stdout
    assert any(line.split()[:3] == ["5", "n3", "root"] for line in lines), shown.stdout


def test_a_replay_of_what_a_replay_printed_is_the_same_byte_for_byte(tmp_path):
    first = diagnose("--dump", dump(tmp_path), "-o", "json").stdout
    (tmp_path / "again.json").write_text(first, encoding="utf-8")
    assert diagnose("--dump", str(tmp_path / "again.json"), "-o", "json").stdout == first
    assert json.loads(first)["verdict"]["roots"] == [5]


def test_a_verdict_that_was_written_into_a_dump_by_hand_is_judged_anew(tmp_path):
    lie = {"class": "stopped", "text": "rank 0 on n1", "roots": [0], "waiting": 7, "waiter": 1}
    assert "rank 5 on n3" in diagnose("--dump", dump(tmp_path, verdict=lie)).stdout.splitlines()[1]


def test_a_dump_of_another_version_or_none_at_all_is_refused_in_words(tmp_path):
    for more, says in (({"version": 2}, "the dump is of version 2, this program reads version 1: use the muster of"),
                       ({"version": None}, "'version' wants a number from 1"),
                       ({"ranks": [rank(1, True)]}, "ranks[0] is rank 1"),
                       ({"job": 7}, "'job'")):
        shown = diagnose("--dump", dump(tmp_path, **more))
        assert (shown.returncode, shown.stdout) == (1, "") and says in shown.stderr, shown.stderr
    (tmp_path / "no.json").write_text("rank 5", encoding="utf-8")
    assert "is no dump: line 1" in diagnose("--dump", str(tmp_path / "no.json")).stderr
    assert diagnose("--dump", "/nowhere").returncode == 1
    assert diagnose("j1", "--dump", "x").returncode == 2 and diagnose().returncode == 2
