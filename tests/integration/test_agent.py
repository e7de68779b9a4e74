"""muster-agent against a server in this file that speaks the agents' protocol, and misbehaves on demand."""
import base64
import fcntl
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.parse

import pytest

from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MUSTER_BUILD", os.path.join(ROOT, "build"))
AGENT = os.path.join(BUILD, "bin", "muster-agent")


class Server:
    """The server's side of docs/protocol.md, as small as it can be and still faithful."""

    def __init__(self, token):
        self.token = token
        self.change = threading.Condition()
        self.known = True          # False: answers 404 until somebody registers
        self.version = 1
        self.heartbeat_s = 1
        self.assignments = []
        self.registrations = []
        self.reports = []
        self.runs = {}             # (job, generation) -> newest report of it
        self.text = {}             # (kind, job, generation, rank) -> what is stored
        self.forget = []
        self.stale = []
        self.lose_answers = 0      # so many reports are taken in and answered 503
        self.keys = []             # rendezvous: (key, value)
        self.refused = 0           # calls without the token
        self.httpd = None
        self.port = 0
        self.start()

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, doc):
                text = json.dumps(doc).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def handle_call(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urllib.parse.urlsplit(self.path)
                if self.headers.get("Authorization") != "Bearer " + outer.token:
                    outer.refused += 1
                    return self.answer(401, {"detail": "wrong token"})
                query = dict(urllib.parse.parse_qsl(url.query))
                try:
                    return self.answer(*outer.call(self.command, url.path.split("/")[1:], query, body))
                except (BrokenPipeError, ConnectionResetError):
                    return None

            do_GET = do_POST = do_PUT = handle_call

        class Listener(http.server.ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

        self.up = True
        self.httpd = Listener(("127.0.0.1", self.port), Handler)
        self.port = self.httpd.server_address[1]
        threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.up = False
        with self.change:
            self.change.notify_all()
        self.httpd.shutdown()
        self.httpd.server_close()

    def call(self, method, path, query, body):
        with self.change:
            if not self.up:
                return 503, {"detail": "stopping"}
            if path[2:3] == ["register"]:
                doc = json.loads(body)
                self.known = True
                self.registrations.append(doc)
                self.change.notify_all()
                return 200, {"heartbeat_s": self.heartbeat_s, "lost_after_s": 30, "version": self.version}
            if not self.known:
                return 404, {"type": "urn:muster:problem:unknown-node", "detail": "register"}
            if path[3] == "assignments":
                until = time.monotonic() + min(float(query["wait"]), 5)
                while self.up and self.known and int(query["version"]) == self.version and time.monotonic() < until:
                    self.change.wait(until - time.monotonic())
                return 200, {"version": self.version, "assignments": self.assignments}
            if path[3] == "rendezvous":
                return self.rendezvous(method, path, query, body)
            return self.report(json.loads(body))

    def rendezvous(self, method, path, query, body):
        if method == "PUT":
            self.keys.append((path[6], base64.b64decode(body, validate=True)))
            self.change.notify_all()
            return 200, {"next": len(self.keys)}
        until = time.monotonic() + min(float(query["wait"]), 5)
        while self.up and len(self.keys) <= int(query["since"]) and time.monotonic() < until:
            self.change.wait(until - time.monotonic())
        keys = self.keys[int(query["since"]):]
        return 200, {"next": len(self.keys),
                     "keys": [{"key": k, "value": base64.b64encode(v).decode()} for k, v in keys]}

    def report(self, doc):
        assert doc["incarnation"] == self.registrations[-1]["incarnation"]
        acks = {"logs": [], "metrics": [], "events": []}
        for kind, list_of in acks.items():
            for piece in doc[kind]:
                name = (kind, piece["job"], piece["generation"], piece.get("rank"))
                stored = self.text.setdefault(name, b"")
                if piece["offset"] == len(stored):
                    self.text[name] = stored = stored + piece["text"].encode()
                ack = {k: piece[k] for k in ("job", "generation", "rank") if k in piece}
                list_of.append(dict(ack, offset=len(stored)))
        for run in doc["runs"]:
            self.runs[run["job"], run["generation"]] = run
        self.reports.append(doc)
        self.change.notify_all()
        if self.lose_answers:
            self.lose_answers -= 1
            return 503, {"detail": "busy"}
        return 200, {"acks": acks, "stale": self.stale, "forget": self.forget}

    def want(self, *assignments):
        with self.change:
            self.assignments = list(assignments)
            self.version += 1
            self.change.notify_all()

    def wait(self, condition, what):
        until = time.monotonic() + PATIENCE_S
        with self.change:
            while not condition():
                assert time.monotonic() < until, "waited in vain for: " + what
                self.change.wait(0.2)

    def states(self, job, generation=1):
        run = self.runs.get((job, generation))
        return [r["state"] for r in run["ranks"]] if run else []

    def log(self, job, rank=0, generation=1):
        return self.text.get(("logs", job, generation, rank), b"").decode()


class Node:
    def __init__(self, folder, server, name="n1", devices="cpu:4"):
        self.folder, self.server, self.name, self.devices = folder, server, name, devices
        self.state = os.path.join(folder, "state-" + name)
        self.token = os.path.join(folder, "token")
        self.log = os.path.join(folder, "agent-%s.log" % name)
        with open(self.token, "w") as f:
            f.write(server.token + "\n")
        os.chmod(self.token, 0o600)
        self.process = None

    def start(self, *more):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [AGENT, "--server", "http://127.0.0.1:%d" % self.server.port, "--token-file", self.token, "--state",
                 self.state, "--node", self.name, "--devices", self.devices, *more], stdout=log, stderr=log)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    @staticmethod
    def signals_blocked(pid):
        """The agent holds SIGTERM back: it is past its first steps and will end in order."""
        with open("/proc/%d/status" % pid) as f:
            blocked = next(line for line in f if line.startswith("SigBlk:"))
        return int(blocked.split()[1], 16) >> (signal.SIGTERM - 1) & 1

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


def processes_of(folder):
    """Processes whose environment or command line names the folder: ranks, shims and agents of a test."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                text = f.read()
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                text += f.read()
        except OSError:
            continue
        if folder.encode() in text and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def wait_until(condition, what):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "waited in vain for: " + what
        threading.Event().wait(0.02)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


@pytest.fixture
def server():
    server = Server("secret-of-the-test")
    yield server
    if server.up:
        server.stop()


@pytest.fixture
def node(folder, server):
    node = Node(folder, server)
    yield node
    if node.process and node.process.poll() is None:
        node.kill()
    if server.up and processes_of(folder):  # a test that leaves ranks running ends them with a last agent
        server.want()
        node.start("--stop-ranks-on-exit")
        wait_until(lambda: os.path.exists(node.log), "the agent")
        server.wait(lambda: len(server.registrations) > 0, "registration")
        node.end()
    wait_until(lambda: not processes_of(folder), "all processes of the test to be gone")


def assignment(folder, job="j1", generation=1, ranks=1, script="true", order="run", nodes=("n1",), slot=0, grace=10):
    return {"job": job, "generation": generation, "order": order, "grace_s": grace, "dir": folder,
            "layout": {"tp": 1, "pp": 1, "cp": 1, "dp": ranks}, "world": ranks, "master_port": 29517,
            "ranks": [{"rank": r, "node": nodes[r * len(nodes) // ranks], "slot": slot + r, "class": "cpu",
                       "address": "127.0.0.1"} for r in range(ranks)],
            "spec": {"name": "t", "devices": {"min": ranks, "max": ranks},
                     "command": {"argv": ["/bin/sh", "-c", script]}}}


def test_a_node_registers_with_its_slots(server, node):
    node.devices = "cpu:2=fast,cpu:1=slow"
    node.start()
    server.wait(lambda: server.registrations, "registration")
    doc = server.registrations[0]
    assert doc["node"] == "n1" and doc["address"] == "127.0.0.1" and doc["boot_id"] and doc["runs"] == []
    assert [(s["slot"], s["kind"], s["class"]) for s in doc["slots"]] == \
        [(0, "cpu", "fast"), (1, "cpu", "fast"), (2, "cpu", "slow")]
    node.end()


def test_a_job_runs_and_is_forgotten(server, node, folder):
    node.start()
    server.want(assignment(folder, ranks=2, script="echo I am $RANK of $WORLD_SIZE"))
    server.wait(lambda: server.states("j1") == ["exited"] * 2, "the end of both ranks")
    server.wait(lambda: server.log("j1", 1) == "I am 1 of 2\n", "the log")
    assert [r["exit_code"] for r in server.runs["j1", 1]["ranks"]] == [0, 0]
    run = os.path.join(node.state, "runs", "j1-g1")
    assert os.path.exists(os.path.join(run, "assignment.json"))
    server.forget = [{"job": "j1", "generation": 1}]  # the set still names the run, as a late one may
    wait_until(lambda: not os.path.exists(run), "the folder to go")
    before = len(server.reports)
    server.want(*server.assignments)
    server.wait(lambda: len(server.reports) > before + 2, "more reports")
    assert not os.path.exists(run)
    node.end()


def test_a_start_is_reported_at_once(server, node, folder):
    server.heartbeat_s = 60
    node.start()
    server.wait(lambda: len(server.reports) > 0, "a report")
    begun = time.monotonic()
    server.want(assignment(folder, script="exec sleep 100000"))
    server.wait(lambda: server.states("j1") == ["running"], "the start")
    assert time.monotonic() - begun < 50  # before the next report would be due
    server.want()
    server.wait(lambda: server.states("j1") == ["exited"], "the end")
    assert server.runs["j1", 1]["ranks"][0]["signal"] == signal.SIGTERM
    node.end()


def test_ranks_run_on_while_the_server_is_down(server, node, folder):
    node.start()
    server.want(assignment(folder, script="touch up; while [ ! -e go ]; do echo tick; sleep 0.05; done; exit 3"))
    wait_until(lambda: os.path.exists(os.path.join(folder, "up")), "the rank")
    server.stop()
    with open(os.path.join(folder, "go"), "w"):
        pass
    wait_until(lambda: os.path.exists(os.path.join(node.state, "runs/j1-g1/rank-00000.exit")), "the end")
    server.start()
    server.wait(lambda: server.states("j1") == ["exited"], "the report of the end")
    assert server.runs["j1", 1]["ranks"][0]["exit_code"] == 3
    with open(os.path.join(node.state, "runs/j1-g1/rank-00000.log")) as f:
        text = f.read()
    server.wait(lambda: server.log("j1") == text, "the whole log")
    assert text.count("tick") > 0
    node.end()


def test_an_unknown_node_registers_again_with_its_runs(server, node, folder):
    node.start()
    server.want(assignment(folder, script="exec sleep 100000"))
    server.wait(lambda: server.states("j1") == ["running"], "the start")
    with server.change:
        server.known = False
        server.change.notify_all()
    server.wait(lambda: len(server.registrations) == 2, "another registration")
    assert server.registrations[1]["runs"][0]["ranks"][0]["state"] == "running"
    assert server.registrations[1]["incarnation"] == server.registrations[0]["incarnation"]
    server.want()
    server.wait(lambda: server.states("j1") == ["exited"], "the end")
    node.end()


def test_a_killed_agent_s_ranks_are_adopted(server, node, folder):
    node.start()
    server.want(assignment(folder, ranks=2, script="touch up$RANK; while [ ! -e go ]; do sleep 0.05; done"))
    server.wait(lambda: server.states("j1") == ["running"] * 2, "the start")
    pids = [r["pid"] for r in server.runs["j1", 1]["ranks"]]
    node.kill()
    node.start()
    server.wait(lambda: len(server.registrations) == 2, "the new agent")
    found = server.registrations[1]["runs"][0]
    assert (found["job"], found["generation"]) == ("j1", 1)
    assert [(r["state"], r["pid"]) for r in found["ranks"]] == [("running", pid) for pid in pids]
    with open(os.path.join(folder, "go"), "w"):
        pass
    server.wait(lambda: server.states("j1") == ["exited"] * 2, "the end")
    assert server.runs["j1", 1]["ranks"][0]["exit_code"] == 0
    node.end()


def test_an_agent_killed_again_and_again_starts_nothing_twice(server, node, folder):
    node.start()
    server.want(assignment(folder, ranks=4, script="echo begun; while [ ! -e go ]; do sleep 0.05; done"))
    for n in range(6):
        threading.Event().wait(0.02 * n)
        node.kill()
        node.start()
    last = node.process.pid
    wait_until(lambda: node.signals_blocked(last), "the last agent")
    server.wait(lambda: set(server.states("j1")) & {"running", "exited"}, "the run")
    with open(os.path.join(folder, "go"), "w"):
        pass
    server.wait(lambda: server.states("j1") == ["exited"] * 4, "the end")
    for rank in range(4):
        with open(os.path.join(node.state, "runs/j1-g1/rank-%05d.log" % rank), "a+") as f:
            f.seek(0)
            assert f.read().count("begun") <= 1
    node.end()


def test_stale_runs_are_stopped(server, node, folder):
    node.start()
    server.want(assignment(folder, script="exec sleep 100000"))
    server.wait(lambda: server.states("j1") == ["running"], "the start")
    server.stale = [{"job": "j1", "generation": 1}]
    server.wait(lambda: server.states("j1") == ["exited"], "the end")
    node.end()


def test_a_new_generation_waits_for_the_slots_of_the_old(server, node, folder):
    node.start()
    server.want(assignment(folder, script="trap 'sleep 0.5; exit 0' TERM; touch up; while :; do sleep 0.05; done"))
    wait_until(lambda: os.path.exists(os.path.join(folder, "up")), "the rank")
    server.want(assignment(folder, generation=2, script="echo second"))
    server.wait(lambda: server.states("j1", 2) == ["exited"], "the second generation")
    assert server.states("j1", 1) == ["exited"]
    node.end()


def test_lost_answers_double_nothing(server, node, folder):
    node.start()
    server.want(assignment(folder, script="for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.1; done"))
    server.lose_answers = 2
    server.wait(lambda: server.states("j1") == ["exited"], "the end")
    server.wait(lambda: server.log("j1") == "".join("line %d\n" % i for i in range(1, 9)), "each line once")
    node.end()


def test_logs_survive_garbage_and_progress_bars(server, node, folder):
    node.start()
    server.want(assignment(folder, script=r"printf 'a\377b\n'; printf '\r1%%\r2%%\r3%%\n'; printf 'no end'"))
    server.wait(lambda: server.log("j1") == "a\ufffdb\n3%\nno end\n", "the cleaned log")
    node.end()


def test_a_failing_rank_ends_its_mates_and_shows_its_last_lines(server, node, folder):
    node.start()
    server.want(assignment(folder, ranks=3, script="[ $RANK = 1 ] || exec sleep 100000; echo out of luck; exit 9"))
    server.wait(lambda: server.states("j1") == ["exited"] * 3, "the end of all")
    ranks = server.runs["j1", 1]["ranks"]
    assert (ranks[1]["exit_code"], ranks[1]["log_tail"]) == (9, ["out of luck"])
    assert {ranks[0]["signal"], ranks[2]["signal"]} == {signal.SIGTERM}
    node.end()


def test_a_terminated_agent_leaves_its_ranks_or_takes_them_along(server, node, folder):
    node.start()
    server.want(assignment(folder, script="exec sleep 100000"))
    server.wait(lambda: server.states("j1") == ["running"], "the start")
    pid = server.runs["j1", 1]["ranks"][0]["pid"]
    node.end()
    os.kill(pid, 0)
    node.start("--stop-ranks-on-exit")
    server.wait(lambda: len(server.registrations) == 2, "the new agent")
    node.end()
    assert not processes_of(folder)
    assert server.states("j1") == ["exited"]  # the last report said so


def test_rendezvous_files_travel_between_nodes(server, node, folder):
    other = Node(folder, server, "n2")
    blob = bytes(range(256)) * 8
    script = ("if [ $RANK = 0 ]; then cp %s $MUSTER_RUN_DIR/rendezvous/.tmp && "
              "mv $MUSTER_RUN_DIR/rendezvous/.tmp $MUSTER_RUN_DIR/rendezvous/addr-0; exec sleep 100000; fi; "
              "while [ ! -e $MUSTER_RUN_DIR/rendezvous/addr-0 ]; do sleep 0.02; done; "
              "cmp %s $MUSTER_RUN_DIR/rendezvous/addr-0 && echo the same; exec sleep 100000")
    path = os.path.join(folder, "blob")
    with open(path, "wb") as f:
        f.write(blob)
    node.start()
    server.wait(lambda: len(server.registrations) == 1, "the first node")
    first = server.registrations[0]["incarnation"]
    # The second agent gets a server of its own that shares the keys, as one server would.
    twin = Server(server.token)
    twin.keys, twin.change = server.keys, server.change
    other.server = twin
    try:
        other.start()
        twin.wait(lambda: len(twin.registrations) == 1, "the second node")
        assert twin.registrations[0]["incarnation"] != first
        spread = assignment(folder, ranks=2, script=script % (path, path), nodes=("n1", "n2"))
        server.want(spread)
        twin.want(spread)
        twin.wait(lambda: twin.log("j1", 1) == "the same\n", "the file on the other node")
        assert server.keys == [("addr-0", blob)]
        server.want()
        twin.want()
        server.wait(lambda: server.states("j1") == ["exited"], "the end here")
        twin.wait(lambda: twin.states("j1") == ["exited"], "the end there")
    finally:
        other.end()
        twin.stop()
    node.end()


def test_an_assignment_of_a_later_protocol_is_refused_by_name_and_touches_nothing(server, node, folder):
    node.start()
    server.wait(lambda: server.registrations, "registration")
    assert server.registrations[0]["protocol"] == 2
    running = assignment(folder, script="exec sleep 1000")
    server.want(running)
    server.wait(lambda: server.states("j1") == ["running"], "the rank")
    later = assignment(folder, job="j2", slot=1)
    server.want({**running, "protocol": 3}, {**later, "protocol": 3}, assignment(folder, job="j3", slot=2))
    server.wait(lambda: server.states("j3") == ["exited"], "the run that can be read")
    assert server.states("j1") == ["running"] and server.states("j2") == []
    with open(node.log) as f:
        log = f.read()
    assert "job 'j2' speaks version 3 of the protocol" in log and "install the same release" in log
    server.want()
    server.wait(lambda: server.states("j1") == ["exited"], "the end")
    node.end()


def test_a_wrong_token_is_tried_again_gently(server, node):
    with open(node.token, "w") as f:
        f.write("wrong\n")
    node.start()
    server.wait(lambda: server.refused >= 2, "refused calls")
    assert server.refused < 20
    with open(node.token, "w") as f:
        f.write(server.token + "\n")
    server.wait(lambda: server.registrations, "registration with the right token")
    with open(node.log) as f:
        assert "401" in f.read()
    node.end()


@pytest.mark.parametrize("arguments, words", [
    (["--devices", "gpu:200"], "GPU"), (["--devices", "cpu:0"], "count"), (["--node", "a/b"], "'a/b'"),
    (["--server", "ftp://x"], "ftp://x"), (["--token-file", "/nowhere/token"], "/nowhere/token"),
    (["--threads", "x"], "--threads"), (["--memory-limit", "8 gb"], "--memory-limit"),
    (["--nic", "token-ring"], "'token-ring' is no NIC"), (["surplus"], "surplus"), (["--log-level", "loud"], "loud")])
def test_bad_arguments_are_named(server, folder, arguments, words):
    node = Node(folder, server)
    done = subprocess.run([AGENT, "--server", "http://127.0.0.1:%d" % server.port, "--token-file", node.token,
                           "--state", node.state, "--node", "n1", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode in (1, 2)
    assert words in done.stderr


def test_two_agents_of_one_folder_are_refused(server, node, folder):
    node.start()
    server.wait(lambda: server.registrations, "registration")
    second = subprocess.run([AGENT, "--server", "http://127.0.0.1:%d" % server.port, "--token-file", node.token,
                             "--state", node.state, "--node", "n2"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 1 and "another agent" in second.stderr
    node.end()


def test_an_agent_waits_for_what_a_killed_one_had_begun_to_start(server, node, folder):
    """Such a process holds the lock until it is the program that it is to be."""
    os.makedirs(node.state)
    with open(os.path.join(node.state, "agent.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pid = node.start().process.pid

        def pauses():
            """How often it has waited since it opened the lock."""
            if not any(os.path.realpath(f"/proc/{pid}/fd/{fd}") == lock.name for fd in os.listdir(f"/proc/{pid}/fd")):
                return 0
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                return int(next(line for line in f if line.startswith("voluntary_ctxt_switches")).split()[1])
        wait_until(pauses, "the lock to be opened")
        seen = pauses()
        wait_until(lambda: pauses() > seen + 2, "the agent to try again")
    server.wait(lambda: server.registrations, "registration")
    node.end()


def test_the_version_is_told():
    done = subprocess.run([AGENT, "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 and done.stdout.startswith("muster-agent ")
