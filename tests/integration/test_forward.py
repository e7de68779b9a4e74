"""Ports of a job's programs (`muster port-forward`): what passes, what is reached and what is not, and how it ends."""
import contextlib
import hashlib
import os
import signal
import socket
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S
from tests.sessions import ECHO, END, INPUT, Session

def start(cluster, program=ECHO):
    """A job whose program listens; its id and port."""
    job = cluster.submit({"name": "listens", "devices": {"min": 1, "max": 1},
                          "command": {"argv": ["python3", "-c", program]}})["id"]
    path = f"{cluster.jobs_dir}/{job}/port"
    wait_for("its port", lambda: os.path.exists(path))
    with open(path, encoding="ascii") as f:
        return job, int(f.read())


@pytest.fixture(scope="module", name="cluster")
def a_cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("forward")), slots=4) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module", name="job")
def a_job(cluster):
    return start(cluster)


@contextlib.contextmanager
def forward(cluster, job, port):
    """`muster port-forward`, and the port of this machine that it says."""
    with subprocess.Popen([f"{BIN}/muster", "port-forward", job, f"0:{port}"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=cluster.cli_env()) as cli:
        line = cli.stdout.readline().decode()
        assert line.endswith(f" is port {port} of job '{job}'\n"), line + cli.stderr.read().decode()
        try:
            yield cli, int(line.split()[0].split(":")[1])
        finally:
            cli.terminate()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def drain(connection):
    data = b""
    while got := connection.recv(1 << 20):
        data += got
    return data


def test_8_mb_each_way_arrive_whole_and_each_direction_ends_by_itself(cluster, job):
    data = hashlib.shake_256(b"forward").digest(8 << 20)
    with forward(cluster, *job) as (_, port), connect(port) as one:
        got = b""
        for at in range(0, len(data), 1 << 18):
            one.sendall(data[at:at + (1 << 18)])
            while len(got) < at:
                got += one.recv(1 << 20)
        one.shutdown(socket.SHUT_WR)
        assert got + drain(one) == data + b"|%d" % len(data)  # the program answers after the end of its input


def test_16_connections_pass_at_once_and_more_wait_until_one_ends(cluster, job):
    with forward(cluster, *job) as (_, port), contextlib.ExitStack() as stack:
        all_of_them = [stack.enter_context(connect(port)) for _ in range(17)]
        for i, one in enumerate(all_of_them):
            one.sendall(b"%02d" % i)
        for i, one in enumerate(all_of_them[:16]):
            assert one.recv(2) == b"%02d" % i
        status, problem = cluster.request("POST", f"/v1/jobs/{job[0]}/forward", {"port": job[1]})
        assert (status, problem["type"]) == (429, "urn:muster:problem:too-many-sessions")
        assert cluster.request("POST", f"/v1/jobs/{job[0]}/exec", {"argv": ["true"]})[0] == 201  # counted apart
        all_of_them[3].shutdown(socket.SHUT_WR)
        assert drain(all_of_them[3]) == b"|2"
        all_of_them[3].close()
        assert all_of_them[16].recv(2) == b"16"


def refusal(cluster, job, port):
    """What is said of a connection that gets nothing."""
    with forward(cluster, job, port) as (cli, local), connect(local) as one:
        assert one.recv(1) == b""
        one.close()
        return cli.stderr.readline().decode()


def test_a_port_on_which_nobody_listens_is_named(cluster, job):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    assert f"nobody listens on port {port} of 127.0.0.1" in refusal(cluster, job[0], port)


def test_services_of_the_node_and_programs_of_other_jobs_are_not_reached(cluster, job):
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert f"who listens on port {port} is no program of job '{job[0]}'" in refusal(cluster, job[0], port)
        own.settimeout(0)
        with pytest.raises(BlockingIOError):
            own.accept()
    other, port = start(cluster)
    assert f"port {port} is no program of job '{job[0]}'" in refusal(cluster, job[0], port)
    assert f"port {cluster.port} is no program" in refusal(cluster, job[0], cluster.port)
    cluster.action(other, "cancel")


def test_a_program_that_a_session_began_is_reached(cluster, job):
    program = ECHO.replace('"port.new"', '"port.2"').replace('"port")', '"port2")')
    with subprocess.Popen([f"{BIN}/muster", "exec", job[0], "--", "python3", "-c", program], stdin=subprocess.DEVNULL,
                          env=cluster.cli_env()) as beside:
        path = f"{cluster.jobs_dir}/{job[0]}/port2"
        wait_for("its port", lambda: os.path.exists(path))
        with open(path, encoding="ascii") as f:
            port = int(f.read())
        with forward(cluster, job[0], port) as (_, local), connect(local) as one:
            one.sendall(b"x")
            assert one.recv(1) == b"x"
        beside.terminate()


def test_a_program_that_hangs_up_and_a_client_that_does_end_the_connection(cluster):
    program = ECHO.replace("    n = 0\n", "    n = 0\n    c.recv(1)\n    c.close()\n    return\n")
    job, port = start(cluster, program)
    with forward(cluster, job, port) as (_, local), connect(local) as one:
        one.sendall(b"x")
        assert drain(one) == b""
    cluster.action(job, "cancel")
    job, port = start(cluster)
    session = Session(cluster.port, cluster.api("POST", f"/v1/jobs/{job}/forward", {"port": port})["url"])
    session.send(INPUT, b"abc")
    session.until(lambda: session.output == b"abc")
    session.close()

    def closed():
        notes = [e["after"] for e in cluster.api("GET", "/v1/audit?limit=1000")["audit"] if e["after"]]
        return [n for n in notes if n.get("what") == "forward_closed" and n["job"] == job]
    assert wait_for("its end", closed)[0]["port"] == port
    session = Session(cluster.port, cluster.api("POST", f"/v1/jobs/{job}/forward", {"port": port})["url"])
    session.send(INPUT, b"abc")
    session.send(END)
    session.until(lambda: session.exit)
    assert (session.output, session.exit) == (b"abc|3", (0, 0))
    session.close()
    cluster.action(job, "cancel")


NAMED = """import os, socket
s = socket.create_server(("127.0.0.1", int(os.environ["MUSTER_PORT_TB"])))
while True:
    c, _ = s.accept()
    c.sendall(f"{os.environ['MUSTER_JOB']} {os.environ['MUSTER_ATTEMPT']} {os.environ['MUSTER_PORT_WEB']}".encode())
    c.close()
"""


def start_named(cluster):
    job = cluster.submit({"name": "named", "devices": {"min": 1, "max": 1}, "retry": {"max": 5},
                          "command": {"argv": ["python3", "-c", NAMED], "ports": ["tb", "web"]}})["id"]
    cluster.wait(job, ["running"])
    return job


@contextlib.contextmanager
def forward_named(cluster, job):
    with subprocess.Popen([f"{BIN}/muster", "port-forward", job, "0:tb"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=cluster.cli_env()) as cli:
        line = cli.stdout.readline().decode()
        assert line.endswith(f" is port 'tb' of job '{job}'\n"), line
        yield int(line.split()[0].split(":")[1])
        cli.terminate()


def says(local):
    with connect(local) as one:
        return drain(one).decode()


def test_two_jobs_of_a_node_have_named_ports_of_their_own_and_an_attempt_that_moves_has_others(cluster):
    jobs = [start_named(cluster) for _ in range(2)]
    ports = [cluster.job(job)["ports"] for job in jobs]
    assert len({port for one in ports for port in one.values()}) == 4
    with forward_named(cluster, jobs[0]) as first, forward_named(cluster, jobs[1]) as second:
        for job, local, own in zip(jobs, (first, second), ports):
            wait_for("its answer", lambda job=job, local=local, own=own: says(local) == f"{job} 1 {own['web']}")
            assert f"{own['tb']} is 'tb': muster port-forward {job} tb\n" in cluster.muster("show", job).stdout
        # what would be its next port is another's: that attempt fails, and the one after it has a third one
        taken = 12000 + (ports[0]["tb"] - 12000 + 8) % 16000
        with socket.create_server(("127.0.0.1", taken)):
            cluster.action(jobs[0], "suspend")
            cluster.wait(jobs[0], ["suspended"])
            assert "ports" not in cluster.job(jobs[0])
            cluster.action(jobs[0], "resume")
            wait_for("the attempt after the next", lambda: says(first).startswith(f"{jobs[0]} 3 "))
        moved = cluster.job(jobs[0])
        assert moved["ports"]["tb"] not in (ports[0]["tb"], taken) and sum(moved["restarts"].values()) == 1
        assert says(second).startswith(f"{jobs[1]} 1 ")
    status, problem = cluster.request("POST", f"/v1/jobs/{jobs[1]}/forward", {"port": "nobody"})
    assert (status, problem["type"]) == (404, "urn:muster:problem:unknown-port")
    for job in jobs:
        cluster.action(job, "cancel")


def test_it_ends_with_its_job_and_with_ctrl_c(cluster):
    job, port = start(cluster)
    with forward(cluster, job, port) as (cli, local), connect(local) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
        cli.send_signal(signal.SIGINT)
        assert cli.wait(PATIENCE_S) == 130
        assert one.recv(1) == b""
    with forward(cluster, job, port) as (cli, local), connect(local) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
        cluster.action(job, "cancel")
        assert cli.wait(PATIENCE_S) == 1
        assert f"job '{job}' has ended: cancelled" in cli.stderr.read().decode()
    done = subprocess.run([f"{BIN}/muster", "port-forward", job, f"0:{port}"], capture_output=True, check=False,
                          timeout=PATIENCE_S, env=cluster.cli_env())
    assert done.returncode == 1 and b"has ended" in done.stderr


def test_ports_are_their_owners_and_admins_alone(cluster, job):
    eve = cluster.api("POST", "/v1/tokens", {"user": "eve", "role": "user"})["token"]
    viewer = cluster.api("POST", "/v1/tokens", {"user": "vic", "role": "viewer"})["token"]
    for token, status in ((eve, 404), (viewer, 403)):
        for port in job[1], "tb":
            assert cluster.request("POST", f"/v1/jobs/{job[0]}/forward", {"port": port}, token=token)[0] == status


@pytest.mark.parametrize("body", [{}, {"port": 0}, {"port": 65536}, {"port": 80, "rank": -1},
                                  {"port": 80, "argv": ["sh"]}, {"port": ["tb"]}], ids=str)
def test_what_makes_no_connection_is_refused_by_name(cluster, job, body):
    status, problem = cluster.request("POST", f"/v1/jobs/{job[0]}/forward", body)
    assert (status, problem["type"]) == (422, "urn:muster:problem:forward-invalid")


@pytest.mark.parametrize("port", ["X", "0", "65536", "1:", ":1", "1:2:3", "-1", "1:0"])
def test_what_is_no_port_is_refused_before_anything_is_asked(port):
    done = subprocess.run([f"{BIN}/muster", "port-forward", "j1", port], capture_output=True, check=False,
                          timeout=PATIENCE_S, env=dict(os.environ, MUSTER_SERVER="http://127.0.0.1:1"))
    assert done.returncode == 2 and b"port" in done.stderr
