"""Several musterd that take over from each other: one Redis, one folder of jobs, a state folder each, one machine.

    with Servers(str(tmp_path), slots=2) as servers:
        servers.kill(servers.leader())
"""
import contextlib
import os
import signal
import subprocess
import time

import requests

from tests.cluster import BIN, Cluster, free_port, wait_for
from tests.patience import PATIENCE_S


class Servers(Cluster):
    """names: of the servers, all with --standby. Requests go to whichever leads, as the CLI and agents do it."""

    def __init__(self, folder, names=("a", "b"), lease=2, **more):
        super().__init__(folder, **more)
        self.names, self.lease = names, lease
        self.ports = {name: free_port() for name in names}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.url = ",".join(self.urls.values())
        self.state = self.state_of(names[0])  # the first one leads first: its tokens are everybody's
        self.servers, self.redis = {}, None

    def state_of(self, name):
        return os.path.join(self.folder, f"state-{name}")

    # --- processes ---------------------------------------------------------------------------------

    def start_redis(self):
        folder = os.path.join(self.folder, "redis")
        os.makedirs(folder, exist_ok=True)
        self.redis = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--appendonly", "yes", "--appendfsync",
             "always", "--save", "", "--logfile", "redis.log"], cwd=folder, env=self.env)
        self.redis_url = f"unix://{folder}/redis.sock"

    def start(self, name):
        self.servers[name] = self.spawn(f"musterd-{name}", [
            f"{BIN}/musterd", "--state", self.state_of(name), "--port", str(self.ports[name]), "--jobs-dir",
            self.jobs_dir, "--redis", self.redis_url, "--standby", "--lease", str(self.lease), *self.server_args])

    def start_server(self, seconds=PATIENCE_S):
        self.start_redis()
        for name in self.names:
            self.start(name)
            wait_for(f"'{name}' to answer", lambda name=name: self.ask(name, "/healthz") == 200, seconds)
            wait_for("a leader", self.leader, seconds)

    def ask(self, name, path):
        """The status of an answer of one of them, 0: there is none."""
        with contextlib.suppress(requests.RequestException):
            return requests.get(self.urls[name] + path, timeout=5, allow_redirects=False).status_code
        return 0

    def leader(self):
        """The name of the one that leads; None."""
        return next((name for name in self.names if self.ask(name, "/readyz") == 200), None)

    def kill(self, name, sig=signal.SIGKILL):
        self.servers[name].send_signal(sig)
        self.servers[name].wait(PATIENCE_S)

    def take_over(self, restart=True):
        """Kill the leader. Seconds until another one leads and is ready."""
        was = wait_for("a leader", self.leader)
        others = [name for name in self.names if name != was]
        self.kill(was)
        began = time.monotonic()
        wait_for("another leader", lambda: any(self.ask(name, "/readyz") == 200 for name in others), every=0.02)
        took = time.monotonic() - began
        if restart:
            self.start(was)
            wait_for(f"'{was}' to stand by", lambda: self.ask(was, "/readyz") == 503)
        return took

    def close(self):
        for process in [*self.agents.values(), *self.servers.values()]:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in [*self.agents.values(), *self.servers.values()]:
            process.wait(PATIENCE_S)
        if self.redis:
            self.redis.terminate()
            self.redis.wait(PATIENCE_S)
        super().close()

    # --- the API -----------------------------------------------------------------------------------

    def request(self, method, path, body=None, headers=None, token=None, timeout=40):
        """As Cluster.request, of the one that leads; status 0 where none does."""
        every = self.url
        try:
            for name in self.names:
                self.url = self.urls[name]
                if self.ask(name, "/readyz") == 200:
                    return super().request(method, path, body, headers, token, timeout)
        finally:
            self.url = every
        return 0, {"detail": "nobody leads"}
