"""The store is damaged: the server says what and where, by name, and everything else works."""
from tests import specs
from tests.cluster import Cluster, wait_for
from tests.store import store_of


def test_unreadable_records_are_in_quarantine_by_name_and_the_rest_works(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        runs = cluster.submit(specs.command("sleep 100000"))["id"]
        cluster.wait(runs, "running")
        waits = [cluster.submit(specs.command("true"))["id"] for _ in range(3)]
        cluster.api("PUT", "/v1/projects/prod", {"quota": 1})
        with store_of(cluster) as store:
            was = store("HGET", "muster:job:2", "rec")
            store("HSET", "muster:job:2", "rec", b"\xff\x00 no record")
            store("DEL", "muster:job:3", "muster:job:3:events")
            store("SET", "muster:job:3", "of another kind")
            store("HSET", "muster:nodes", b"n\xff9", "{}")
            store("HSET", "muster:projects", "prod", b"\x00{")
            store("HSET", "muster:tokens", "f00", "[]")
            store("LPUSH", "muster:job:1:events", "nonsense")
        cluster.kill_server()
        cluster.start_server()
        status, ready = cluster.request("GET", "/readyz", token="")
        assert (status, ready) == (200, {"status": "degraded", "quarantined": 5})
        said = cluster.muster("list", check=True)
        assert f"5 records of the store cannot be read, among them of {waits[0]}, {waits[1]}" in said.stderr
        assert [line.split()[0] for line in said.stdout.splitlines()[1:]] == [waits[2], runs]
        told = cluster.muster("quarantine", "list", check=True).stdout
        for name in ("job:j2", "job:j3", "node:n_9", "project:prod", "token:f00"):
            assert name in told and f"'{name.split(':')[1]}' goes into quarantine" in cluster.tail("musterd"), name
        assert cluster.request("GET", "/v1/jobs/j2")[0] == 409
        assert cluster.request("GET", "/v1/quarantine", token="x")[0] == 401
        assert [e["type"] for e in cluster.events(runs)][0] == "unreadable"
        assert cluster.job(runs)["generation"] == 1  # it ran on
        cluster.action(runs, "cancel")
        cluster.wait(waits[2], "succeeded")
        assert cluster.muster("quarantine", "retry", "job:j2").returncode == 4
        with store_of(cluster) as store:
            store("HSET", "muster:job:2", "rec", was)
        cluster.muster("quarantine", "retry", "job:j2", check=True)
        cluster.wait(waits[0], "succeeded")
        for name in ("job:j3", "node:n_9", "project:prod", "token:f00"):
            cluster.muster("quarantine", "drop", name, check=True)
        assert cluster.request("GET", "/readyz", token="")[1] == {"status": "ready"}
        cluster.kill_server()
        cluster.start_server()
        wait_for("all to be read", lambda: cluster.request("GET", "/readyz", token="")[1] == {"status": "ready"})
        assert cluster.request("GET", f"/v1/jobs/{waits[1]}")[0] == 404
        assert cluster.submit(specs.command("true"))["id"] == "j5"
    assert not cluster.leftovers()
