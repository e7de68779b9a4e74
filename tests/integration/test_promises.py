"""What the scheduler promises, through REST and the CLI: starts and how good they were, maintenance, reservations."""
import datetime
import json
import os

import pytest

from tests.cluster import ApiError, Cluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("promises"), slots=1) as c:
        yield c


def until(cluster, name):
    """A job that runs until the file of this name is there."""
    path = os.path.join(cluster.folder, name)
    return path, {"command": {"argv": ["sh", "-c", f"until test -e {path}; do sleep 0.1; done"]}}


def test_show_says_the_place_in_the_queue_and_by_whose_limit_a_job_starts_and_the_report_how_good_that_was(cluster):
    go, spec = until(cluster, "go1")
    first = cluster.submit({**spec, "limits": {"time_s": 3600}})["id"]
    cluster.wait(first, ["running"])
    second = cluster.submit({"command": {"argv": ["true"]}})["id"]
    wait_for("a start to be told", lambda: cluster.job(second).get("estimate"))
    shown = cluster.muster("show", second, check=True).stdout
    assert f", after {first}'s time limit" in shown and "queue         0 ahead of it" in shown, shown
    assert f"after {first}'s time limit" in cluster.muster("explain", second, check=True).stdout
    with open(go, "w", encoding="utf-8"):
        pass
    assert cluster.wait(second)["estimate"]["late_s"] < -3000
    report = json.loads(cluster.muster("report", "estimates", "-o", "json", check=True).stdout)["estimates"]
    assert [r["count"] for r in report if r["basis"] == "time-limits"] == [1]
    assert "100 %" in cluster.muster("report", "estimates", check=True).stdout


def test_maintenance_is_added_listed_and_deleted_and_keeps_long_jobs_off(cluster):
    node = cluster.api("GET", "/v1/nodes")["nodes"][0]["id"]
    cluster.muster("maintenance", "add", "--nodes", node, "--from", "+1h", "--to", "+2h", "--every", "7d",
                   "--reason", "fans", check=True)
    shown = cluster.muster("maintenance", "list", check=True).stdout
    assert node in shown and "fans" in shown and "7d" in shown
    job = cluster.submit({"command": {"argv": ["true"]}, "limits": {"time_s": 7200}})["id"]
    reason = wait_for("the reason", lambda: cluster.job(job)["reason"] if
                      cluster.job(job)["reason"]["code"] == "closing" else None)
    assert "time limit" in reason["text"]
    short = cluster.submit({"command": {"argv": ["true"]}, "limits": {"time_s": 600}})["id"]
    assert cluster.wait(short)["state"] == "succeeded"
    booked = json.loads(cluster.muster("maintenance", "list", "-o", "json", check=True).stdout)["maintenance"]
    begin, end = (datetime.datetime.fromisoformat(booked[0][k].replace("Z", "+00:00")) for k in ("from", "to"))
    assert end - begin == datetime.timedelta(hours=2)  # an end is told from the beginning on
    cluster.muster("maintenance", "delete", booked[0]["id"], check=True)
    assert cluster.wait(job)["state"] == "succeeded"
    assert cluster.muster("maintenance", "delete", "m999").returncode == 3
    assert cluster.muster("maintenance", "add", "--nodes", node, "--to", "soon").returncode == 2


def test_a_reservation_is_for_the_jobs_that_name_it(cluster):
    done = cluster.muster("reserve", "--devices", "1", "--to", "+1h", "--user", "admin", "-o", "json", check=True)
    name = json.loads(done.stdout)["id"]
    other = cluster.submit({"command": {"argv": ["true"]}})["id"]
    done = cluster.muster("submit", "--reservation", name, "-o", "json", "--", "true", check=True)
    its = json.loads(done.stdout)["id"]
    assert cluster.wait(its)["state"] == "succeeded"
    assert cluster.job(other)["state"] == "queued"
    assert name in cluster.muster("reservation", "list", check=True).stdout
    with pytest.raises(ApiError) as refused:
        cluster.submit({"command": {"argv": ["true"]}, "reservation": "r999"})
    assert refused.value.status == 422
    cluster.muster("reservation", "delete", name, check=True)
    assert cluster.wait(other)["state"] == "succeeded"
