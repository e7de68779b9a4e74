"""Jobs that come again, by the command line: made, shown, run, switched off and forgotten."""
import json

import pytest

from tests import specs
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("schedules")), slots=1) as c:
        yield c
    assert not c.leftovers()


def test_a_schedule_is_made_shown_run_switched_and_forgotten(cluster, tmp_path):
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(specs.command("echo again", name="again")))
    made = cluster.muster("schedule", "add", "yearly", "0 12 1 1 *", str(spec), "--timezone", "Europe/Berlin",
                          check=True)
    assert "schedule  yearly (sc_" in made.stdout and "at        0 12 1 1 *, Europe/Berlin" in made.stdout
    assert "-01-01T11:00:00" in made.stdout, "noon in Berlin, in January"
    job = cluster.muster("schedule", "run", "yearly", check=True).stdout.strip()
    assert cluster.wait(job, "succeeded")["name"] == "again"
    assert cluster.log_text(job) == "again\n"
    shown = json.loads(cluster.muster("schedule", "show", "yearly", "-o", "json", check=True).stdout)
    assert shown["last_job"] == job and shown["runs"] == 1 and shown["spec"]["name"] == "again"
    cluster.muster("schedule", "disable", "yearly", check=True)
    listed = cluster.muster("schedule", "list", check=True).stdout.splitlines()
    assert listed[1].split()[0] == "yearly" and listed[1].split()[3] == "off", listed
    cluster.muster("schedule", "delete", "yearly", check=True)
    assert cluster.muster("schedule", "show", "yearly").returncode == 3


@pytest.mark.parametrize("cron, zone, says", [
    ("0 25 * * *", "UTC", "'25' is no hour"), ("@daily", "Mars/Olympus", "no time zone 'Mars/Olympus'"),
    ("* * *", "UTC", "3 fields; want five")])
def test_a_time_that_is_none_is_refused_in_words(cluster, tmp_path, cron, zone, says):
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(specs.command("true")))
    done = cluster.muster("schedule", "add", "bad", cron, str(spec), "--timezone", zone)
    assert done.returncode != 0 and says in done.stderr, done.stderr
