"""The store is a Redis with a replica, watched by Sentinels: what was acknowledged is there when the replica leads."""
import os
import shutil
import signal
import time

import pytest

from tests import specs
from tests.cluster import Cluster, free_port, wait_for
from tests.patience import PATIENCE_S
from tests.servers import Servers
from tests.store import Store

pytestmark = pytest.mark.skipif(not shutil.which("redis-sentinel"), reason="redis-sentinel is not installed")


class Watched(Servers):
    """Two Redis, one the other's replica, and three Sentinels beside the servers."""

    def start_redis(self):
        self.redis_port = {name: free_port() for name in ("r1", "r2")}
        sentinel_port = {name: free_port() for name in ("s1", "s2", "s3")}
        self.stores = {}
        self.start_store("r1")
        self.start_store("r2", "r1")
        wait_for("the replica to be in step", lambda: self.role("r1")[2])
        for name, port in sentinel_port.items():
            path = os.path.join(self.folder, f"{name}.conf")
            with open(path, "w", encoding="ascii") as f:
                f.write(f"port {port}\nbind 127.0.0.1\ndir {self.folder}\nprotected-mode no\n"
                        f"sentinel monitor main 127.0.0.1 {self.redis_port['r1']} 2\n"
                        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n")
            self.stores[name] = self.spawn(name, ["redis-sentinel", path])
        for port in sentinel_port.values():
            wait_for("the Sentinels to know each other", lambda port=port: self.peers(port) == 2)
        self.redis_url = "sentinel://" + ",".join(f"127.0.0.1:{p}" for p in sentinel_port.values()) + "/main"

    def start_store(self, name, master=None):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        self.stores[name] = self.spawn(name, [
            "redis-server", "--port", str(self.redis_port[name]), "--bind", "127.0.0.1", "--dir", folder,
            "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--repl-diskless-sync-delay", "0",
            *(["--replicaof", f"127.0.0.1 {self.redis_port[master]}"] if master else [])])

    def role(self, name):
        try:
            with Store(self.redis_port[name]) as store:
                return store("ROLE")
        except OSError:
            return [b"away", 0, []]

    @staticmethod
    def peers(port):
        try:
            with Store(port) as sentinel:
                answer = sentinel("SENTINEL", "MASTER", "main")
        except (OSError, RuntimeError):
            return 0
        return int(answer[answer.index(b"num-other-sentinels") + 1])

    def kill_store(self, name):
        self.stores[name].send_signal(signal.SIGKILL)
        self.stores[name].wait(PATIENCE_S)

    def close(self):
        for process in [*self.agents.values(), *self.servers.values()]:
            process.terminate()
            process.wait(PATIENCE_S)
        for name in self.stores:
            self.kill_store(name)  # a Redis that becomes a replica just now may not hear a SIGTERM
        super().close()


def jobs_in(servers, name):
    """Numbers of the jobs that a Redis has."""
    with Store(servers.redis_port[name]) as store:
        return sorted(int(key.rpartition(b":")[2]) for key in store("KEYS", "muster:job:*") if key.count(b":") == 2)


def submit_once(servers, key):
    """The status and answer of a submit that is not waited for."""
    url, servers.url = servers.url, servers.urls["a"]
    try:
        return Cluster.request(servers, "POST", "/v1/jobs", specs.command("true"), {"Idempotency-Key": key}, timeout=2)
    finally:
        servers.url = url


def test_what_was_acknowledged_is_on_the_replica_that_takes_over_and_without_one_nothing_is(tmp_path):
    with Watched(str(tmp_path), names=("a",), slots=1) as servers:
        runs = servers.submit(specs.command("sleep 100000"))["id"]
        servers.wait(runs, "running")
        known = [runs, *(servers.submit(specs.command("true"), key=f"k{i}")["id"] for i in range(20))]
        servers.stores["r2"].send_signal(signal.SIGSTOP)  # what the replica does not have is not acknowledged
        status, problem = submit_once(servers, "slow")
        assert status in (0, 503, 504), problem
        servers.stores["r2"].send_signal(signal.SIGCONT)
        known.append(wait_for("the submit", lambda: submit_once(servers, "slow")[1].get("id")))
        servers.kill_store("r1")
        began = time.monotonic()
        wait_for("the replica to take over", lambda: servers.role("r2")[0] == b"master")
        print(f"the replica leads after {time.monotonic() - began:.1f} s")
        assert jobs_in(servers, "r2") == sorted(int(job[1:]) for job in known)
        # It has no replica now: nothing is acknowledged, and the server says so.
        status, problem = submit_once(servers, "late")
        assert status in (0, 503, 504), problem
        wait_for("the server to tell", lambda: servers.ask("a", "/readyz") == 503)
        wait_for("its log", lambda: "0 of 1 replicas have it" in servers.tail("musterd-a"))
        servers.start_store("r1", "r2")
        late = wait_for("the replica to be back", lambda: submit_once(servers, "late")[1].get("id"))
        assert [job["id"] for job in servers.list_jobs()] == sorted([*known, late], key=lambda j: -int(j[1:]))
        assert servers.job(runs)["generation"] == 1  # it ran all the time
    assert not servers.leftovers()


def test_a_server_goes_on_without_a_replica_where_it_was_told_to(tmp_path):
    with Watched(str(tmp_path), names=("a",), slots=0, server_args=["--replicas", "0"]) as servers:
        servers.kill_store("r2")
        assert servers.submit(specs.command("true"))["id"] == "j1"
    assert not servers.leftovers()
