"""A whole Muster cluster in a temporary folder, for tests: one server with its Redis, agents, and ways to hurt them.

    with Cluster(str(tmp_path), slots=4) as cluster:
        job = cluster.submit(specs.command("echo hello"))["id"]
        assert cluster.wait(job, ["succeeded"], 30)["state"] == "succeeded"
    assert not cluster.leftovers()

Everything listens on a free port of the loopback. All processes carry a mark in their environment, by which those
that outlive the cluster are found, reported and ended. When a test fails inside `with`, the ends of all logs
are printed.
"""
import contextlib
import datetime
import glob
import json
import os
import signal
import socket
import subprocess
import time

import requests

from tests import answers
from tests.hold import Hold
from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "bin")
TAP = os.path.join(os.path.dirname(BIN), "tests", "openapi", "tap.so")
MARK = "TEST_CLUSTER_OF_MUSTER"  # an agent keeps names that begin with MUSTER_ from its ranks
# What the ranks of tests get of the agent's environment.
PASS_ENV = f"{MARK},ASAN_*,LSAN_*,TSAN_*,UBSAN_*,UCX_*,LD_*,FAKE_*,PYTHON*"
ENDED = ["succeeded", "failed", "cancelled"]


def wait_for(what, check, seconds=PATIENCE_S, every=None):
    """check() until it gives something true; that, or a failure that names `what`. Unless `every` says how often, after
    a second at half the pace: tests that wait long would keep from the others the processor that they wait for."""
    began = time.monotonic()
    deadline = began + seconds
    while True:
        got = check()
        if got:
            return got
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(every or (0.05 if now < began + 1 else 0.1))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def marked(value):
    """Process ids whose environment carries the mark, zombies aside."""
    want = f"{MARK}={value}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if want in f.read().split(b"\0"):
                        found.append(int(entry))
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class ApiError(AssertionError):
    """An answer other than 2xx to api(); `status` and `problem` hold it."""

    def __init__(self, method, path, status, problem):
        super().__init__(f"{method} {path}: {status} {json.dumps(problem)}")
        self.status, self.problem = status, problem


class Cluster:
    """slots: CPU slots of the agent n1, or 0 for no agent; devices: its --devices instead;
    server_args, agent_args: added; memory: for agents' --memory. `hold` holds its training jobs at a step; hold_at:
    from the beginning. `described`: answers are held to the API's description (tests/answers.py)."""

    open = []  # that have been entered and not left

    def __init__(self, folder, slots=4, devices=None, server_args=(), agent_args=(), env=None, memory=None,
                 hold_at=None):
        self.folder = os.path.abspath(folder)
        self.state = os.path.join(self.folder, "state")
        self.jobs_dir = os.path.join(self.folder, "jobs")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server_args, self.agent_args = list(server_args), list(agent_args)
        self.first_devices = devices or (f"cpu:{slots}" if slots else None)
        self.mark = f"{self.folder}#{os.getpid()}"
        self.hold = Hold(os.path.join(self.folder, "hold"))
        if hold_at is not None:
            self.hold.at(hold_at)
        self.env = dict(os.environ, **{MARK: self.mark, "MUSTER_STATE": self.state}, **self.hold.env, **(env or {}))
        self.memory_dir = memory
        self.programs = BIN  # of agents, and muster-train beside them
        self.described = True
        self.answers = os.path.join(self.folder, "answers")
        self.server, self.agents, self.devices = None, {}, {}
        self.stray = []
        self.session = requests.Session()
        os.makedirs(self.jobs_dir, exist_ok=True)

    def __enter__(self):
        try:
            self.start_server()
            if self.first_devices:
                self.start_agent("n1", self.first_devices)
                self.wait_nodes(["n1"])
        except BaseException:
            self.print_logs()
            self.close()
            raise
        Cluster.open.append(self)
        return self

    def __exit__(self, kind, value, trace):
        Cluster.open.remove(self)
        if kind:
            self.print_logs()
        self.close()
        if not kind and self.described:
            answers.check_tapped(self.answers, self.url)

    # --- processes ---------------------------------------------------------------------------------

    def log(self, name):
        return os.path.join(self.folder, f"{name}.log")

    def spawn(self, name, argv):
        with open(self.log(name), "ab") as out:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env,
                                    cwd=self.folder)

    def tap(self):
        """Variables of a program whose answers are written down, to be held to the description at the end."""
        others = self.env.get("LD_PRELOAD")
        return {"ANSWERS_TAP": self.answers, "LD_PRELOAD": TAP + (f":{others}" if others else "")} \
            if os.path.exists(TAP) else {}

    def start_server(self, seconds=PATIENCE_S):
        """Start musterd on the cluster's state and wait until it can write."""
        assert not self.server or self.server.poll() is not None, "the server runs already"
        self.server = self.spawn("musterd", [f"{BIN}/musterd", "--state", self.state, "--port", str(self.port),
                                             "--jobs-dir", self.jobs_dir, "--token-rate", "0", "--address-rate", "0",
                                             *self.server_args])

        def ready():
            assert self.server.poll() is None, f"musterd ended with {self.server.returncode}:\n{self.tail('musterd')}"
            with contextlib.suppress(requests.RequestException):
                return requests.get(f"{self.url}/readyz", timeout=5).status_code == 200
            return False
        wait_for("musterd to be ready", ready, seconds)

    def kill_server(self, sig=signal.SIGKILL):
        self.server.send_signal(sig)
        self.server.wait(PATIENCE_S)

    def stop_server(self):
        self.kill_server(signal.SIGTERM)

    def start_agent(self, name, devices=None):
        """Start an agent; the devices of its last start unless given."""
        self.devices[name] = devices or self.devices[name]
        self.agents[name] = self.spawn(f"agent-{name}", [
            "env", *(f"{key}={value}" for key, value in self.tap().items()),
            f"{self.programs}/muster-agent", "--server", self.url, "--token-file", f"{self.state}/agent-token",
            "--state", self.agent_state(name), "--node", name, "--devices", self.devices[name], "--stop-ranks-on-exit",
            "--profile-idle", "0",
            "--pass-env", PASS_ENV, "--memory", self.memory(name), *self.agent_args])

    def memory(self, name="n1"):
        """Where the agent keeps what outlives its ranks."""
        return os.path.join(self.memory_dir or self.agent_state(name), f"memory-{name}")

    def snapshots(self, job, name="n1"):
        """Steps of which a job has a snapshot there."""
        found = glob.glob(os.path.join(self.memory(name), "muster-*", job, "step-*", "MANIFEST"))
        return sorted(int(os.path.basename(os.path.dirname(path))[5:]) for path in found)

    def kill_agent(self, name="n1", sig=signal.SIGKILL):
        """End the agent alone: its ranks run on after SIGKILL, and are stopped with it by SIGTERM."""
        self.agents[name].send_signal(sig)
        self.agents[name].wait(PATIENCE_S)

    def agent_state(self, name="n1"):
        return os.path.join(self.folder, f"agent-{name}")

    def redis_pid(self):
        """The server's Redis, alive now."""
        for pid in marked(self.mark):
            line = command_line(pid)
            if "redis-server" in line.split(" ")[0]:
                return pid
        raise AssertionError("the server's redis-server does not run")

    def rank_pids(self, job, name=None):
        """Live ranks of a job's newest generation, in order of rank, on one node or all."""
        runs = {}
        for path in glob.glob(os.path.join(self.folder, f"agent-{name or '*'}", "runs", f"{job}-g*", "rank-*.pid")):
            generation = int(os.path.basename(os.path.dirname(path)).rsplit("-g", 1)[1])
            with contextlib.suppress(OSError, ValueError, KeyError):
                with open(path, encoding="ascii") as f:
                    pid = json.load(f)["pid"]
                if pid in self.alive():
                    runs.setdefault(generation, []).append((os.path.basename(path), pid))
        return [pid for _, pid in sorted(runs[max(runs)])] if runs else []

    def alive(self):
        return set(marked(self.mark))

    def tail(self, name, size=6000):
        with contextlib.suppress(OSError):
            with open(self.log(name), "rb") as f:
                f.seek(max(0, os.path.getsize(self.log(name)) - size))
                return f.read().decode(errors="replace")
        return ""

    def print_logs(self):
        for path in sorted(glob.glob(os.path.join(self.folder, "*.log"))):
            name = os.path.basename(path)[:-4]
            print(f"--- end of {name}.log ---\n{self.tail(name)}")
        with contextlib.suppress(Exception):
            for job in self.list_jobs()[:20]:
                print(f"--- {job['id']} {job['name']}: {job['state']} {job['reason']} {job['outcome']}")

    def close(self):
        """Stop agents, then the server, with SIGTERM; what remains is noted for leftovers() and killed."""
        for process in [*self.agents.values(), self.server]:
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    self.stray.append(f"{command_line(process.pid)} (did not end on SIGTERM)")
                    process.kill()
                    process.wait(PATIENCE_S)
        with contextlib.suppress(AssertionError):
            wait_for("no process of the cluster", lambda: not self.alive())
        for pid in self.alive():
            self.stray.append(command_line(pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.session.close()

    def leftovers(self):
        """Command lines of the processes that outlived close()."""
        return self.stray + [command_line(pid) for pid in self.alive()]

    # --- the API -----------------------------------------------------------------------------------

    def token(self):
        with open(f"{self.state}/token", encoding="ascii") as f:
            return f.read().strip()

    def request(self, method, path, body=None, headers=None, token=None, timeout=40):
        """(status, document); status 0 when there was no answer. token "" sends none."""
        sent = dict(headers or {})
        token = self.token() if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        try:
            answer = self.session.request(method, self.url + path, headers=sent, timeout=timeout,
                                          **{"data" if isinstance(body, bytes) else "json": body})
        except requests.RequestException as e:
            return 0, {"detail": str(e)}
        kind = answer.headers.get("Content-Type", "").split(";")[0]
        if "json" in kind:
            document = answer.json()
            if self.described:
                answers.check(method, path, answer.status_code, kind, document)
            return answer.status_code, document
        return answer.status_code, answer.text

    def api(self, method, path, body=None, **more):
        """The document of a 2xx answer, else an ApiError."""
        status, document = self.request(method, path, body, **more)
        if not 200 <= status < 300:
            raise ApiError(method, path, status, document)
        return document

    def submit(self, spec, key=None):
        return self.api("POST", "/v1/jobs", spec, headers={"Idempotency-Key": key} if key else None)

    def job(self, job):
        return self.api("GET", f"/v1/jobs/{job}")

    def action(self, job, verb):
        """cancel, suspend, resume, checkpoint"""
        return self.api("POST", f"/v1/jobs/{job}/{verb}")

    def wait(self, job, states=None, seconds=PATIENCE_S):
        """The job once it is in one of the states (by default, ended). Fails at once if it ends in another."""
        states = [states] if isinstance(states, str) else states or ENDED
        found = {}

        def check():
            status, found["job"] = self.request("GET", f"/v1/jobs/{job}")
            if status in (0, 503, 504):
                return None  # the server is away: that is what some tests are about
            assert status == 200, found["job"]
            state = found["job"]["state"]
            assert state in states or state not in ENDED, f"{job} ended {state}: {json.dumps(found['job'], indent=1)}"
            return found["job"] if state in states else None
        try:
            return wait_for(f"{job} in {states}", check, seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}\nlast seen: {json.dumps(found.get('job'), indent=1)}") from None

    def cancel_since(self, began):
        """Cancel the jobs that were submitted since then, as well as that goes, and wait for their devices."""
        def submitted(job):
            return datetime.datetime.fromisoformat(job["submitted_at"].replace("Z", "+00:00")).timestamp()

        def mine():
            return [job["id"] for job in self.list_jobs()
                    if job["state"] not in ENDED and submitted(job) >= began - 0.001]

        with contextlib.suppress(Exception):  # the server may be what the test has hurt
            for job in mine():
                self.action(job, "cancel")
            wait_for("what a failed test has left to end", lambda: not mine())

    def list(self, path, field, query=""):
        """All pages of a list."""
        found, cursor = [], None
        while True:
            page = self.api("GET", f"{path}?limit=100{query}" + (f"&cursor={cursor}" if cursor else ""))
            found += page[field]
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def list_jobs(self):
        return self.list("/v1/jobs", "jobs")

    def events(self, job=None):
        return self.list(f"/v1/jobs/{job}/events" if job else "/v1/events", "events")

    def nodes(self):
        return self.api("GET", "/v1/nodes")["nodes"]

    def wait_nodes(self, names):
        """Wait until these nodes are ready."""
        wait_for(f"nodes {names}", lambda: set(names) <= {n["id"] for n in self.nodes() if n["state"] == "ready"})

    def log_text(self, job, rank=0):
        pieces = self.api("GET", f"/v1/jobs/{job}/logs?rank={rank}")["logs"]
        return "".join(p["text"] for p in pieces)

    def muster(self, *args, check=False):
        """Run the CLI against this cluster."""
        return subprocess.run([f"{BIN}/muster", *args], capture_output=True, text=True, timeout=PATIENCE_S,
                              env=self.cli_env(), check=check, cwd=self.folder)

    def cli_env(self):
        return dict(self.env, MUSTER_SERVER=self.url, MUSTER_TOKEN=self.token(), NO_COLOR="1", **self.tap())
