"""What becomes of a job when its processes end, through a real server, agent and CLI: by whose doing, in which words,
and whether it was told to end (docs/protocol.md, "Orders and ends")."""
import json
import os
import signal

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for

SAVES = "trap 'echo saved; %s exit 0' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("verdicts")), slots=2) as c:
        yield c
    assert not c.leftovers()


def submit_up(cluster, script, **more):
    """A job whose program has said "up"."""
    job = cluster.submit(specs.command(script, **more))["id"]
    wait_for("the program", lambda: "up\n" in cluster.log_text(job))
    return job


def test_a_command_that_saves_when_it_is_suspended_is_suspended_and_goes_on_later(cluster):
    job = submit_up(cluster, SAVES % "")
    cluster.action(job, "suspend")
    assert cluster.wait(job, "suspended")["outcome"] is None
    assert cluster.log_text(job).endswith("saved\n")
    cluster.action(job, "resume")
    wait_for("the second attempt", lambda: cluster.job(job)["generation"] == 2)
    cluster.wait(job, "running")
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_command_that_saves_when_its_node_is_drained_is_queued_again(cluster):
    job = submit_up(cluster, SAVES % "")
    cluster.api("POST", "/v1/nodes/n1/drain")
    assert cluster.wait(job, "queued")["restarts"] == {"system": 0, "node": 0, "user": 0}
    cluster.api("POST", "/v1/nodes/n1/undrain")
    cluster.wait(job, "running")
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_command_that_finishes_within_its_grace_says_so_by_a_file(cluster):
    job = submit_up(cluster, SAVES % "touch $MUSTER_RUN_DIR/finished;")
    cluster.action(job, "suspend")
    assert cluster.wait(job, "succeeded")["outcome"]["class"] == "done"


def test_the_program_of_a_plain_text_command_has_the_grace_to_save(cluster, tmp_path):
    saved = tmp_path / "saved"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntrap 'sleep 0.3; touch {saved}; exit 0' TERM\necho up\n"
                       "while :; do sleep 0.1; done\n")
    program.chmod(0o755)
    spec = specs.command("")
    spec["command"] = f"{program}; echo not reached"
    job = cluster.submit(spec)["id"]
    wait_for("the program", lambda: "up\n" in cluster.log_text(job))
    cluster.action(job, "suspend")
    cluster.wait(job, "suspended")
    assert saved.exists()


@pytest.mark.parametrize("number, blamed", [
    (signal.SIGSEGV, "user"), (signal.SIGABRT, "user"), (signal.SIGBUS, "user"), (signal.SIGFPE, "user"),
    (signal.SIGILL, "user"), (signal.SIGKILL, "system")], ids=lambda x: str(x).rsplit(".", 1)[-1])
def test_a_signal_has_one_class_in_every_form_of_a_spec(cluster, number, blamed):
    end = f"import os; os.kill(os.getpid(), {int(number)})"
    forms = [{"argv": ["/usr/bin/python3", "-c", end]}, f"/usr/bin/python3 -c '{end}'; exit $?"]
    jobs = [cluster.submit(dict(specs.command(""), command=form, retry={"max": 0}))["id"] for form in forms]
    outcomes = [cluster.wait(job, "failed")["outcome"] for job in jobs]
    assert [o["class"] for o in outcomes] == [blamed, blamed], outcomes
    assert [o["signal"] for o in outcomes] == [number, number], outcomes


def test_a_command_that_tells_itself_to_end_is_not_queued_without_end(cluster):
    job = cluster.submit(specs.command("trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.1; done",
                                       retry={"max": 1}))["id"]
    ended = cluster.wait(job, "failed")
    assert ended["generation"] == 2 and ended["restarts"]["system"] == 1
    assert ended["outcome"]["message"] == "rank 0 on n1: somebody else than Muster sent it SIGTERM, and it ended"


def test_a_command_that_saves_while_a_higher_priority_takes_its_devices_goes_on_after_that(tmp_path):
    with Cluster(str(tmp_path), slots=2, server_args=["--hold", "0", "--round", "1"]) as cluster:
        cluster.muster("project", "set", "spare", "--class", "opportunistic", check=True)
        cluster.muster("project", "set", "prod", "--class", "guaranteed", "--quota", "2", check=True)  # at once
        low = submit_up(cluster, SAVES % "", devices=2, priority=10, project="spare")
        high = submit_up(cluster, "echo up; until [ -e enough ]; do sleep 0.1; done", devices=2, priority=90,
                         project="prod")
        yielded = cluster.wait(low, "queued")
        assert yielded["generation"] == 1 and yielded["restarts"] == {"system": 0, "node": 0, "user": 0}
        assert yielded["outcome"] is None and cluster.log_text(low).endswith("saved\n")
        assert cluster.wait(high, "running")["generation"] == 1
        with open(os.path.join(cluster.job(high)["dir"], "enough"), "w", encoding="ascii"):
            pass
        cluster.wait(high, "succeeded")
        wait_for("the second attempt", lambda: cluster.log_text(low).endswith("up\n"))
        again = cluster.wait(low, "running")
        assert again["generation"] == 2 and again["restarts"] == {"system": 0, "node": 0, "user": 0}
        cluster.action(low, "cancel")
        cluster.wait(low, "cancelled")
    assert not cluster.leftovers()


def test_a_shim_that_is_killed_is_the_nodes_affair_and_the_job_goes_on(cluster):
    job = submit_up(cluster, "echo up; while :; do sleep 0.1; done")
    rank, = cluster.rank_pids(job)
    with open(f"/proc/{rank}/stat", encoding="ascii") as f:
        shim = int(f.read().rsplit(")", 1)[1].split()[1])
    os.kill(shim, signal.SIGKILL)
    wait_for("the second attempt", lambda: cluster.job(job)["generation"] == 2)
    now = cluster.wait(job, "running")
    assert (now["outcome"]["class"], now["outcome"]["cause"], now["outcome"]["exit_code"]) == ("node", "node", None)
    assert now["outcome"]["message"] == "rank 0 on n1: the process that watches this rank was lost"
    assert now["restarts"] == {"system": 0, "node": 1, "user": 0}
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_rank_that_was_killed_because_another_failed_is_not_the_cause(cluster):
    spec = specs.command("if [ $RANK = 0 ]; then trap '' TERM; touch $MUSTER_JOB_DIR/up; "
                         "else while [ ! -e $MUSTER_JOB_DIR/up ]; do sleep 0.01; done; exit 3; fi; "
                         "while :; do sleep 0.1; done", devices=2)
    spec["command"]["grace_s"] = 0
    outcome = cluster.wait(cluster.submit(spec)["id"], "failed")["outcome"]
    assert (outcome["rank"], outcome["message"]) == (1, "rank 1 on n1: ended with exit code 3")


def test_the_headline_of_a_failed_job_begins_with_its_cause(cluster):
    job = cluster.submit(specs.command("exit 3"))["id"]
    cluster.wait(job, "failed")
    cause = "rank 0 on n1: ended with exit code 3"
    headline = f"{cause}; no restart is left"
    assert cluster.job(job)["reason"]["text"] == headline
    assert [e["cause"]["text"] for e in cluster.events(job) if e.get("to") == "failed"] == [headline]
    for words in (["show", job], ["list"], ["explain", job], ["events", job]):
        said = cluster.muster(*words).stdout
        assert cause in said.replace("\n", " "), (words, said)
        assert "no restart" not in said.split(cause)[0].rsplit(job, 1)[-1], (words, said)


def test_a_command_runs_in_the_folder_that_one_submits_from(cluster, tmp_path):
    for name, spec in (("text", "command: pwd\n"), ("argv", "command: {argv: [pwd]}\n")):
        (tmp_path / f"{name}.yaml").write_text(spec)
        said = cluster.muster("submit", str(tmp_path / f"{name}.yaml"), "-o", "json")
        job = json.loads(said.stdout)["id"]
        cluster.wait(job, "succeeded")
        assert cluster.log_text(job) == f"{os.path.realpath(cluster.folder)}\n"


def test_a_command_without_a_folder_runs_in_the_jobs(cluster):
    job = cluster.submit({"command": "pwd"})["id"]
    done = cluster.wait(job, "succeeded")
    assert cluster.log_text(job) == f"{done['dir']}\n"


def test_a_folder_that_the_node_does_not_have_is_named(cluster):
    spec = specs.command("true")
    spec["command"]["workdir"] = "/nowhere/at-all"
    outcome = cluster.wait(cluster.submit(spec)["id"], "failed")["outcome"]
    assert outcome["class"] == "user"
    assert outcome["message"] == "rank 0 on n1: cannot enter the folder '/nowhere/at-all': No such file or directory"


@pytest.mark.parametrize("text, what", [
    ("", "is empty"), ("\n\n", "is empty"), ("# nothing yet\n\n  # at all", "is empty"), ("null\n", "is one word"),
    ("hello\n", "is one text"), ("17\n", "is one number"), ("true\n", "is one word"), ("- command: x\n", "is a list"),
    ("[]", "is a list")])
@pytest.mark.parametrize("more", [[], ["--set", "name=x"], ["--dry-run"]], ids=["plain", "set", "dry-run"])
def test_a_file_that_is_no_spec_is_told_what_it_is_and_what_to_do(cluster, tmp_path, text, what, more):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    done = cluster.muster("submit", str(path), *more)
    assert done.returncode != 0 and what in done.stderr, done.stderr
    assert str(path) in done.stderr and "command: python train.py" in done.stderr, done.stderr
