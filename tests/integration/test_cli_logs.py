"""muster logs: attempts, last lines, matches, times."""
import glob

import pytest

from tests import specs
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("logs")), slots=1) as c:
        script = ("for i in 1 2 3 4 5; do echo attempt $MUSTER_ATTEMPT line $i; done; "
                  "printf 'no end %s' $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 2")
        job = c.submit(specs.command(script, retry={"max": 0, "user": 1}))["id"]
        c.wait(job)
        c.muster("logs", job, "--follow", check=True)  # until the last of it has come
        yield c, job


def lines(done, *args):
    cluster, job = done
    return cluster.muster("logs", job, *args, check=True).stdout.splitlines()


def test_each_attempt_is_printed_by_its_number(done):
    one = [f"attempt 1 line {i}" for i in range(1, 6)] + ["no end 1"]
    two = [line.replace("1 line", "2 line").replace("end 1", "end 2") for line in one]
    assert lines(done, "--attempt", "1") == one
    assert lines(done, "--attempt", "2") == lines(done) == two
    assert lines(done, "--all-attempts") == ["--- attempt 1 ---", *one, "--- attempt 2 ---", *two]
    cluster, job = done
    assert cluster.api("GET", f"/v1/jobs/{job}/logs")["attempts"] == [1, 2]


def test_the_last_lines_alone_are_printed(done):
    assert lines(done, "--tail", "2") == ["attempt 2 line 5", "no end 2"]
    assert lines(done, "--tail", "1", "--attempt", "1") == ["no end 1"]


def test_only_lines_with_a_match_are_printed_also_one_that_has_no_end(done):
    assert lines(done, "--grep", "line [24]$") == ["attempt 2 line 2", "attempt 2 line 4"]
    assert lines(done, "--all-attempts", "--grep", "no (end|start)") == [
        "--- attempt 1 ---", "no end 1", "--- attempt 2 ---", "no end 2"]
    cluster, job = done
    refused = cluster.muster("logs", job, "--grep", "(")
    assert refused.returncode == 2 and "--grep '(' is no pattern: a ( has no )" in refused.stderr
    assert cluster.muster("logs", job, "--follow", "--attempt", "1").returncode == 2


def test_the_server_looks_for_lines_and_the_last_are_the_last_that_match(done):
    assert lines(done, "--grep", "line", "--tail", "2") == ["attempt 2 line 4", "attempt 2 line 5"]
    of_one = ["--attempt", "1", "--rank", "0"]
    assert lines(done, "--grep", "(?i)LINE [1-3]$", "--tail", "1", *of_one) == ["attempt 1 line 3"]
    assert lines(done, "--follow", "--grep", "line 3") == ["[0] attempt 2 line 3"]
    cluster, job = done
    found = cluster.api("GET", f"/v1/jobs/{job}/logs?grep=line%20%5B12%5D")
    assert found["lines"] == ["attempt 2 line 1", "attempt 2 line 2"]
    assert found["logs"][0]["next_offset"] == found["logs"][0]["size"]
    for query, why in (("grep=(", "a ( has no )"), ("grep=" + "a" * 513, "1 to 512"), ("grep=", "1 to 512")):
        status, refused = cluster.request("GET", f"/v1/jobs/{job}/logs?{query}")
        assert status == 422 and "query-invalid" in str(refused) and why in str(refused)


def test_what_came_since_is_printed_as_the_server_noted_its_time(done):
    cluster, job = done
    whole = lines(done)
    assert lines(done, "--since", "4h") == whole
    assert lines(done, "--since", "4h", "--tail", "1") == ["no end 2"]
    times, = glob.glob(f"{cluster.jobs_dir}/.*/**/rank-00000.g2.log.t", recursive=True)
    with open(times, "r+", encoding="ascii") as f:  # as if it had come an hour earlier, but for its last two lines
        now = int(f.read(32).split()[1])
        two = len("\n".join(whole)) - len("\n".join(whole[-2:]))
        f.seek(0)
        f.write(f"{0:019d} {now - 3600:011d}\n{two:019d} {now:011d}\n")
        f.truncate()
    assert lines(done, "--since", "30m") == whole[-2:]
    assert lines(done, "--since", "2h") == whole
    assert lines(done, "--since", "30m", "--grep", "no") == whole[-1:]
    refused = cluster.muster("logs", job, "--since", "soon")
    assert refused.returncode == 2 and "'soon' is no time" in refused.stderr
