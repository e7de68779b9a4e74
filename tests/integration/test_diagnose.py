"""`muster diagnose`: a saved dump is judged again, and a live job says what each of its ranks does."""
import json
import os
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
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
    assert lines[1] == ("phase: rank 5 on n3 has not entered all-reduce 412 of 'dp' at step 90 that 7 others "
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("diagnose"))
    with Cluster(folder, slots=2, hold_at=10) as c:
        c.corpus = specs.write_corpus(os.path.join(folder, "corpus.txt"))
        yield c


def command(script, **more):
    return dict({"name": "c", "command": {"argv": ["/bin/sh", "-c", script]},
                 "devices": {"min": 1, "max": 1}, "retry": {"max": 0}}, **more)


def test_a_job_that_only_seems_stuck_says_what_each_rank_does(cluster):
    job = cluster.submit(specs.train(cluster.corpus, steps=20, devices=2))["id"]
    wait_for("the hold", lambda: ((cluster.job(job)["progress"] or {}).get("step") or 0) >= 10)
    seen = json.loads(cluster.muster("diagnose", job, "-o", "json", check=True).stdout)
    assert (seen["kind"], seen["verdict"]["class"], seen["verdict"]["roots"]) == ("look", "none", [])
    assert [r["told"]["step"] for r in seen["ranks"]] == [10, 10]
    told = seen["parts"][0]["ranks"]
    assert [len(r["processes"]) for r in told] == [1, 1] and told[0]["processes"][0]["pid"] > 1
    assert all(r["flight"]["ops"] and r["flight"]["step"] == 10 for r in told) and "step 10" in told[0]["log"]
    assert not {"proof", "incarnation"} & set(seen["parts"][0])
    text = cluster.muster("diagnose", job, check=True).stdout
    assert "none: no rank holds up the others for longer than it may" in text and "process " in text
    assert cluster.job(job)["generation"] == 1 and cluster.muster("diagnose", job, "--list").returncode == 0
    cluster.hold.release()
    cluster.wait(job, "succeeded")
    shown = cluster.muster("diagnose", job)
    assert shown.returncode == 1 and "none of its ranks runs, and it has had no incident" in shown.stderr


def test_a_command_job_shows_its_processes_and_what_they_wait_in(cluster, tmp_path):
    job = cluster.submit(command(f"echo begun; (while [ ! -e {tmp_path}/go ]; do sleep 0.2; done) & wait"))["id"]
    wait_for("its output", lambda: "begun" in cluster.log_text(job))
    seen = json.loads(cluster.muster("diagnose", job, "-o", "json", check=True).stdout)
    assert "idle_us" not in seen["ranks"][0]["told"], "it has written nothing into its page"
    processes = seen["parts"][0]["ranks"][0]["processes"]
    assert len(processes) >= 2 and processes[0]["name"] == "sh" and processes[0]["state"].startswith("S"), processes
    assert "begun" in seen["parts"][0]["ranks"][0]["log"]
    (tmp_path / "go").touch()
    cluster.wait(job, "succeeded")


def test_a_rank_that_fails_leaves_its_last_words_and_what_the_others_did(cluster):
    job = cluster.submit(command("echo last words; exit 3"))["id"]
    cluster.wait(job, "failed")
    wait_for("what its node told", lambda: cluster.api("GET", f"/v1/jobs/{job}/incidents/1-1").get("parts"))
    shown = cluster.muster("diagnose", job, check=True).stdout
    assert "failure: rank 0 on n1: ended with exit code 3" in shown and "log | last words" in shown
    listed = json.loads(cluster.muster("diagnose", job, "--list", "-o", "json", check=True).stdout)["incidents"]
    assert [(i["id"], i["kind"], i["text"]) for i in listed] == [
        ("1-1", "failure", "rank 0 on n1: ended with exit code 3")]
    assert cluster.muster("diagnose", job, "--incident", "1-1", check=True).stdout == shown
    assert cluster.muster("diagnose", job, "--incident", "9-1").returncode == 3


def test_who_may_not_see_a_job_is_told_nothing_of_its_incidents(cluster):
    job = cluster.submit(command("exit 1"))["id"]
    cluster.wait(job, "failed")
    other = cluster.api("POST", "/v1/tokens", {"user": "eve", "role": "user"})["token"]
    for path in ("incidents", "incidents/1-1", "diagnosis"):
        assert cluster.request("GET", f"/v1/jobs/{job}/{path}", token=other)[0] == 404, path


PY_SPY = {"answers": "echo Thread 1 in read_shard; echo '\\033[31mred'", "hangs": "exec sleep 1000"}


@pytest.mark.parametrize("how", PY_SPY)
def test_py_spy_tells_where_a_python_program_is_and_one_that_hangs_holds_up_nobody(how, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py-spy").write_text(f"#!/bin/sh\n{PY_SPY[how]}\n", encoding="ascii")
    (tmp_path / "bin" / "py-spy").chmod(0o755)
    (tmp_path / "waits.py").write_text("import os, time\nprint('begun', flush=True)\n"
                                       f"while not os.path.exists('{tmp_path}/go'): time.sleep(0.1)\n",
                                       encoding="ascii")
    with Cluster(str(tmp_path / "cluster"), slots=1, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}) as c:
        job = c.submit(command(f"exec python3 {tmp_path}/waits.py"))["id"]
        wait_for("its output", lambda: "begun" in c.log_text(job))
        part = json.loads(c.muster("diagnose", job, "-o", "json", check=True).stdout)["parts"][0]
        process = part["ranks"][0]["processes"][0]
        assert process["name"].startswith("python") and "begun" in part["ranks"][0]["log"]
        assert ("read_shard" in process["python"]) == (how == "answers")
        if how == "answers":
            shown = c.muster("diagnose", job, check=True).stdout
            assert "\033" not in shown and "python | Thread 1 in read_shard" in shown
        (tmp_path / "go").touch()
        c.wait(job, "succeeded")
