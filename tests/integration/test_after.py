"""Jobs that come after others, through REST and the CLI."""
import pytest

from tests import specs
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("after")), slots=2) as c:
        yield c


def submit(cluster, *args):
    return cluster.muster("submit", *args, check=True).stdout.split()[1]


def test_a_job_reads_what_the_one_before_it_left(cluster):
    first = submit(cluster, "--", "sh", "-c", "echo 42 > $MUSTER_JOB_DIR/answer")
    second = submit(cluster, "--after", first, "--", "cat", "${{after.0.dir}}/answer")
    assert cluster.wait(second)["state"] == "succeeded"
    assert "42" in cluster.log_text(second)
    assert cluster.job(first)["state"] == "succeeded"


def test_which_end_of_the_others_a_job_is_for(cluster):
    gate = cluster.submit(specs.command("sleep 1000"))["id"]
    ok = submit(cluster, "--after", gate, "--", "true")
    both = submit(cluster, "--after-any", f"{gate},{ok}", "--", "true")
    failed = submit(cluster, "--after-failed", gate, "--", "true")
    assert cluster.job(ok)["reason"] == {"code": "dependency", "text": f"waits for {gate} to succeed"}
    assert f"{gate} to end" in cluster.muster("explain", both, check=True).stdout
    cluster.wait(gate, "running")
    cluster.action(gate, "cancel")
    assert cluster.wait(ok)["reason"]["code"] == "dependency-failed"
    assert cluster.wait(both)["state"] == cluster.wait(failed)["state"] == "succeeded"


DAG = """
jobs:
- name: merge
  after: [{job: left}, {job: right}]
  command: {argv: [sh, -c, "cat ${{after.0.dir}}/out ${{after.1.dir}}/out"]}
- name: left
  after: [{job: prepare}]
  command: {argv: [sh, -c, "cat ${{after.0.dir}}/out > $MUSTER_JOB_DIR/out; echo left >> $MUSTER_JOB_DIR/out"]}
- name: right
  after: [{job: prepare}]
  command: {argv: [sh, -c, "echo right > $MUSTER_JOB_DIR/out"]}
- name: prepare
  command: {argv: [sh, -c, "echo first > $MUSTER_JOB_DIR/out"]}
"""


def test_a_file_with_a_list_of_jobs_queues_all_of_them_by_their_names(cluster, tmp_path):
    (tmp_path / "dag.yaml").write_text(DAG)
    ids = {}
    for line in cluster.muster("submit", "--key", "dag-1", str(tmp_path / "dag.yaml"), check=True).stdout.splitlines():
        ids[line.split("(")[1][:-1]] = line.split()[1]
    assert cluster.wait(ids["merge"])["state"] == "succeeded"
    assert cluster.log_text(ids["merge"]).split() == ["first", "left", "right"]
    again = cluster.muster("submit", "--key", "dag-1", str(tmp_path / "dag.yaml"), check=True).stdout
    assert again.count("submitted before:") == 4 and ids["merge"] in again


def test_a_list_with_a_fault_or_a_circle_queues_none(cluster):
    def refused(*jobs):
        before = [j["id"] for j in cluster.list_jobs()]
        status, problem = cluster.request("POST", "/v1/jobs:batch", {"jobs": list(jobs)})
        assert status == 422 and [j["id"] for j in cluster.list_jobs()] == before
        return problem
    good = {"name": "good", "command": {"argv": ["true"]}}
    assert refused(good, {"name": "bad", "command": {"argv": []}})["errors"][0]["pointer"].startswith("/jobs/1/command")
    assert "job 2 of the batch" in refused(good, {**good, "devices": {"min": 99, "max": 99}})["detail"]
    assert refused({**good, "after": [{"job": "b"}]}, {**good, "name": "b", "after": [{"job": "good"}]})["detail"]
    assert refused(good, {**good, "after": [{"job": "nobody"}]})["errors"][0]["pointer"] == "/jobs/1/after/0"
    assert refused()["detail"]


def test_a_job_that_there_is_not_cannot_be_waited_for(cluster):
    done = cluster.muster("submit", "--after", "j99999", "--", "true")
    assert done.returncode != 0 and "j99999" in done.stderr
    done = cluster.muster("submit", "--after", "soon", "--", "true")
    assert done.returncode != 0 and "/after/0" in done.stderr
