"""A program beside a rank (`muster exec`): what it is, what passes, how it ends, and whose it may be."""
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import termios

import pytest

from tests import specs
from tests.cluster import BIN, ApiError, Cluster, command_line, wait_for
from tests.patience import PATIENCE_S
from tests.sessions import END, INPUT, RESIZE, SIGNAL, USED, WINDOW, Refused, Session, open_session

@pytest.fixture(scope="module", name="cluster")
def a_cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("exec")), slots=4) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module", name="job")
def a_job(cluster):
    job = cluster.submit(specs.command("exec sleep 3600", devices=2))["id"]
    cluster.wait(job, ["running"])
    return job


def run(cluster, *args, **more):
    return subprocess.run([f"{BIN}/muster", "exec", *args], capture_output=True, timeout=PATIENCE_S,
                          env=cluster.cli_env(), check=False, **more)


def marked(cluster, mark):
    """Processes of the cluster with that in their command line, sessions' own aside."""
    return [pid for pid in cluster.alive() if mark in command_line(pid) and "muster" not in command_line(pid)]


def test_it_runs_where_and_as_the_rank_does_and_its_output_and_exit_status_are_the_callers(cluster, job):
    done = run(cluster, job, "-r", "1", "--", "sh", "-c", "echo $RANK $MUSTER_JOB; pwd; echo bad >&2; exit 7")
    assert (done.returncode, done.stderr) == (7, b"bad\n")
    assert done.stdout.decode().split() == ["1", job, f"{cluster.jobs_dir}/{job}"]
    assert run(cluster, job, "--", "sh", "-c", "kill -TERM $$").returncode == 143
    assert run(cluster, job, "--", "no-such-program").returncode == 127
    assert cluster.job(job)["state"] == "running"


def test_variables_and_a_folder_of_the_callers_choice_are_its_own(cluster, job):
    done = subprocess.run([f"{BIN}/muster", "exec", job, "-e", "COLOUR,ABSENT", "--workdir", "/usr", "--", "sh", "-c",
                           "echo $COLOUR$ABSENT $PWD"], capture_output=True, timeout=PATIENCE_S, check=True,
                          env=dict(cluster.cli_env(), COLOUR="blue"))
    assert done.stdout == b"blue /usr\n"


def test_32_mb_both_ways_arrive_whole(cluster, job):
    data = hashlib.shake_256(b"exec").digest(32 << 20)
    done = run(cluster, job, "-i", "--", "cat", input=data)
    assert done.returncode == 0
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_a_reader_that_takes_its_time_gets_all_and_others_who_have_its_pipe_open_are_let_be(cluster, job):
    there, back = os.pipe()
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "seq", "300000"], stdout=back,
                          env=cluster.cli_env()) as cli:
        text = os.read(there, 1)  # it is at work, and its pipe is full soon
        assert not fcntl.fcntl(back, fcntl.F_GETFL) & os.O_NONBLOCK
        os.close(back)
        while piece := os.read(there, 1 << 16):
            text += piece
        assert cli.wait(PATIENCE_S) == 0
    os.close(there)
    assert text == b"".join(b"%d\n" % i for i in range(1, 300001))


def test_input_that_ends_is_ended_for_the_program_and_input_that_was_not_asked_for_is_left_alone(cluster, job):
    assert run(cluster, job, "-i", "--", "wc", "-c", input=b"12345").stdout == b"5\n"
    assert run(cluster, job, "--", "wc", "-c", input=b"12345").stdout == b"0\n"


def test_a_program_that_reads_nothing_and_a_client_that_reads_nothing_hold_up_no_signal(cluster, job):
    session = open_session(cluster, job, ["sh", "-c", "trap 'exit 3' USR1; yes & wait $!; sleep 3600"], uses=False)
    session.until(lambda: len(session.output) == WINDOW)
    piece = bytes(32 << 10)
    for _ in range(WINDOW // len(piece)):
        session.send(INPUT, piece)
    assert len(session.output) == WINDOW  # what was not said to be used up bounds what is sent
    session.send(SIGNAL, bytes([signal.SIGUSR1]))
    wait_for("its end", lambda: not marked(cluster, "sh -c trap 'exit 3'"))
    session.uses = True
    session.send(USED, struct.pack(">I", WINDOW))
    session.until(lambda: session.exit)
    assert session.exit[0] == 3
    session.close()


def test_who_sends_beyond_the_window_is_cut_off(cluster, job):
    session = open_session(cluster, job, ["sleep", "3600"])
    piece = bytes(32 << 10)
    with contextlib.suppress(OSError):  # it may be closed while this one still sends
        for _ in range(64):
            session.send(INPUT, piece)
    with contextlib.suppress(OSError, EOFError):
        session.closed()
    session.close()


def test_a_terminal_has_the_clients_size_and_follows_it(cluster, job):
    session = open_session(cluster, job, ["sh", "-c", "stty size; trap 'stty size; exit' WINCH; echo ok; "
                                          "while :; do sleep 0.05; done"], tty=True, cols=100, rows=30)
    session.until(lambda: b"ok\r\n" in session.output)
    session.send(RESIZE, struct.pack(">HH", 132, 50))
    session.until(lambda: session.exit)
    assert session.output == b"30 100\r\nok\r\n50 132\r\n"
    session.close()


def test_ctrl_c_in_the_callers_terminal_interrupts_the_program_and_leaves_the_terminal_as_it_was(cluster, job):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "sh", "-c", "stty size; exec sleep 3600"], stdin=theirs,
                          stdout=theirs, stderr=theirs, env=cluster.cli_env(), start_new_session=True) as cli:
        seen = b""
        while b"40 90" not in seen:
            seen += os.read(ours, 4096)
        wait_for("the program", lambda: marked(cluster, "sleep 3600"))
        os.write(ours, b"\x03")
        assert cli.wait(PATIENCE_S) == 130
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_a_terminal_that_has_no_size_is_80_columns_by_24_rows(cluster, job):
    ours, theirs = pty.openpty()
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "stty", "size"], stdin=theirs, stdout=theirs,
                          stderr=theirs, env=cluster.cli_env(), start_new_session=True) as cli:
        assert cli.wait(PATIENCE_S) == 0
    assert os.read(ours, 4096) == b"24 80\r\n"
    os.close(ours)
    os.close(theirs)


def test_a_signal_to_a_caller_without_a_terminal_goes_to_the_program(cluster, job):
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "sh", "-c", "trap 'exit 5' INT; echo on; "
                           "while :; do sleep 0.05; done"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env=cluster.cli_env()) as cli:
        assert cli.stdout.readline() == b"on\n"
        cli.send_signal(signal.SIGINT)
        assert cli.wait(PATIENCE_S) == 5


def test_a_program_ends_with_its_client_and_with_it_all_that_it_started(cluster, job):
    session = open_session(cluster, job, ["sh", "-c", "sleep 3511 & setsid sleep 3512 & echo on; wait"])
    session.until(lambda: session.output == b"on\n")
    wait_for("both", lambda: marked(cluster, "sleep 3511") and marked(cluster, "sleep 3512"))
    session.close()
    wait_for("their end", lambda: not marked(cluster, "sleep 351"))
    assert cluster.job(job)["state"] == "running"


def test_it_ends_with_its_job_and_the_client_is_told(cluster):
    job = cluster.submit(specs.command("exec sleep 3600"))["id"]
    cluster.wait(job, ["running"])
    session = open_session(cluster, job, ["sh", "-c", "trap '' HUP TERM; echo on; sleep 3521; sleep 3521"])
    session.until(lambda: session.output == b"on\n")
    cluster.action(job, "cancel")
    session.until(lambda: session.exit)
    assert session.exit == (137, 9)
    cluster.wait(job, ["cancelled"])
    wait_for("its end", lambda: not marked(cluster, "sleep 3521"))
    assert cluster.request("POST", f"/v1/jobs/{job}/exec", {"argv": ["true"]})[0] == 409
    session.close()


def test_a_rank_that_has_ended_before_its_job_is_said_to_have_at_once(cluster):
    job = cluster.submit(specs.command("[ $RANK = 1 ] || exec sleep 3600", devices=2))["id"]
    cluster.wait(job, ["running"])
    wait_for("the end of rank 1", lambda: b"the rank has ended" in run(cluster, job, "-r", "1", "--", "true").stderr)
    cluster.action(job, "cancel")


def test_a_ticket_is_good_once_and_no_other_text_is_one(cluster, job):
    ticket = cluster.api("POST", f"/v1/jobs/{job}/exec", {"argv": ["cat"]})
    for wrong in (ticket["url"][:-1] + "x", f"/v1/exec/{ticket['session']}", "/v1/exec/x?ticket=x"):
        with pytest.raises(Refused) as refused:
            Session(cluster.port, wrong)
        assert refused.value.status == 404
    session = Session(cluster.port, ticket["url"])
    with pytest.raises(Refused):
        Session(cluster.port, ticket["url"])
    session.send(END)
    session.until(lambda: session.exit)
    session.close()


def test_a_session_is_its_owners_and_admins_alone_and_the_audit_log_has_its_beginning_and_end(cluster, job):
    cluster.api("PUT", "/v1/projects/shared", {})
    tokens = {user: cluster.api("POST", "/v1/tokens", {"user": user, "role": "user"})["token"]
              for user in ("ann", "bob", "eve")}
    for user, role in (("ann", "member"), ("bob", "manager")):
        cluster.api("PUT", f"/v1/projects/shared/members/{user}", {"role": role})
    viewer = cluster.api("POST", "/v1/tokens", {"user": "vic", "role": "viewer"})["token"]
    spec = specs.command("exec sleep 3600", project="shared")
    anns = cluster.api("POST", "/v1/jobs", spec, token=tokens["ann"])["id"]
    cluster.wait(anns, ["running"])
    path, body = f"/v1/jobs/{anns}/exec", {"argv": ["echo", "hi"], "env": {"PASSWORD": "hidden"}}
    assert cluster.request("POST", path, body, token=tokens["eve"])[0] == 404
    assert cluster.request("POST", path, body, token=viewer)[0] == 403
    status, problem = cluster.request("POST", path, body, token=tokens["bob"])
    assert (status, problem["type"]) == (403, "urn:muster:problem:not-owner")  # who manages it sees it, and is not her
    session = Session(cluster.port, cluster.api("POST", path, body, token=tokens["ann"])["url"])
    assert session.closed()[0] == 1000
    assert session.output == b"hi\n"

    def entries():
        notes = [e["after"] for e in cluster.api("GET", "/v1/audit?user=ann&limit=1000")["audit"] if e["after"]]
        opened = [n for n in notes if n.get("what") == "exec_opened"]
        return opened and [(o, c) for o in opened for c in notes
                           if c.get("what") == "exec_closed" and c["session"] == o["session"]]
    opened, closed = wait_for("both entries", entries)[0]
    assert (opened["argv"], opened["variables"]) == (["echo", "hi"], ["PASSWORD"])
    assert closed["job"] == anns and closed["bytes_out"] > 3
    assert "hidden" not in json.dumps(cluster.api("GET", "/v1/audit?limit=1000"))


def test_a_token_that_is_revoked_ends_its_sessions(cluster, job):
    made = cluster.api("POST", "/v1/tokens", {"user": "root2", "role": "admin"})
    session = open_session(cluster, job, ["sleep", "3531"], token=made["token"])
    wait_for("the program", lambda: marked(cluster, "sleep 3531"))
    cluster.api("DELETE", f"/v1/tokens/{made['id']}")
    assert "token" in session.closed()[1]
    wait_for("its end", lambda: not marked(cluster, "sleep 3531"))
    session.close()


def test_a_job_has_so_many_sessions_and_no_more(cluster):
    job = cluster.submit(specs.command("exec sleep 3600"))["id"]
    cluster.wait(job, ["running"])
    for _ in range(16):
        cluster.api("POST", f"/v1/jobs/{job}/exec", {"argv": ["sleep", "3600"]})
    status, problem = cluster.request("POST", f"/v1/jobs/{job}/exec", {"argv": ["sleep", "3600"]})
    assert (status, problem["type"]) == (429, "urn:muster:problem:too-many-sessions")
    cluster.action(job, "cancel")


@pytest.mark.parametrize("body", [
    {}, {"argv": []}, {"argv": [""]}, {"argv": "ls"}, {"argv": ["x"] * 257},
    {"argv": ["x" * 40000]}, {"argv": ["x"], "tty": 1}, {"argv": ["x"], "rank": -1}, {"argv": ["x"], "cols": 0},
    {"argv": ["x"], "rows": 65536}, {"argv": ["x"], "env": {"A=B": "c"}}, {"argv": ["x"], "env": {"A": 1}},
    {"argv": ["x"], "workdir": "here"}, {"argv": ["x"], "user": "root"}], ids=lambda body: str(body)[:40])
def test_what_makes_no_session_is_refused_by_name(cluster, job, body):
    status, problem = cluster.request("POST", f"/v1/jobs/{job}/exec", body)
    assert (status, problem["type"]) == (422, "urn:muster:problem:exec-invalid")


def test_a_rank_that_is_not_there_is_named(cluster, job):
    with pytest.raises(ApiError) as refused:
        cluster.api("POST", f"/v1/jobs/{job}/exec", {"argv": ["x"], "rank": 2})
    assert refused.value.status == 404 and "0 to 1" in refused.value.problem["detail"]
