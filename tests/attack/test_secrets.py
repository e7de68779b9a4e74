"""What a job's variables and a user's secrets tell, and to whom."""
import glob
import hashlib
import json
import os
import subprocess

import pytest
import requests

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.integration.fake_agent import make_token
from tests.patience import PATIENCE_S

HUSH = "hush-0123456789"
SEALED = "sealed-9876543210"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("secrets")), slots=2, server_args=["--log-level", "debug"]) as c:
        yield c
    assert not c.leftovers()


def spec_with(env, script="true"):
    spec = specs.command(script)
    spec["command"]["env"] = env
    return spec


def stream(cluster, path, token, until):
    """A stream of events, up to one of this type."""
    text = ""
    with requests.get(cluster.url + path, stream=True, timeout=PATIENCE_S, headers={
            "Authorization": f"Bearer {token}", "Accept": "text/event-stream"}) as answer:
        for line in answer.iter_lines(decode_unicode=True):
            text += line + "\n"
            if line == f"event: {until}":
                return text
    return text


def test_values_of_variables_are_for_their_user_and_admins_alone(cluster):
    ann, bob = (make_token(cluster, name)["token"] for name in ("ann", "bob"))
    viewer = make_token(cluster, "grafana", "viewer")["token"]
    manager = make_token(cluster, "boss")["token"]
    spec = spec_with({"KEY": HUSH, "OTHER": ""})
    status, job = cluster.request("POST", "/v1/jobs", spec, token=ann)
    assert status == 201
    job = job["id"]
    cluster.wait(job, "succeeded")

    def all_that(token):
        """All that a caller is told of the job."""
        told = [cluster.request("GET", path, token=token)[1] for path in (
            f"/v1/jobs/{job}", f"/v1/jobs/{job}/events", "/v1/events", "/v1/jobs", f"/v1/jobs/{job}/explain")]
        return json.dumps(told) + stream(cluster, f"/v1/jobs/{job}/events", token, "end")
    for token in (ann, None):
        assert HUSH in all_that(token or cluster.token())
    assert HUSH not in all_that(viewer)
    assert cluster.request("GET", f"/v1/jobs/{job}", token=viewer)[1]["spec"]["command"]["env"] == {
        "KEY": "***", "OTHER": "***"}
    for token in (bob, manager):
        assert cluster.request("GET", f"/v1/jobs/{job}", token=token)[0] == 404
    logs = "".join(open(path, encoding="utf-8", errors="replace").read()
                   for path in glob.glob(f"{cluster.folder}/*.log"))
    assert HUSH not in logs


def files_with(folder, text):
    """Files of a cluster's folder that hold a text, but for what the test itself wrote down of answers."""
    found = subprocess.run(["grep", "-rlaF", text, folder], capture_output=True, text=True, check=False)
    return [path for path in found.stdout.split() if path != f"{folder}/answers"]


def test_a_secret_reaches_its_users_job_and_lies_nowhere_in_the_clear(cluster):
    ann, bob = (make_token(cluster, name)["token"] for name in ("ann2", "bob2"))
    value = f"{SEALED}-ä-'\"$(x)"
    assert cluster.request("PUT", "/v1/secrets/hf", {"value": "before"}, token=ann)[0] == 201
    status, told = cluster.request("PUT", "/v1/secrets/hf", {"value": value}, token=ann)
    assert status == 200 and set(told) == {"name", "set_at"}
    assert [s["name"] for s in cluster.request("GET", "/v1/secrets", token=ann)[1]["secrets"]] == ["hf"]
    assert cluster.request("GET", "/v1/secrets", token=bob)[1]["secrets"] == []
    assert cluster.request("GET", "/v1/secrets/hf", token=ann)[0] == 405
    cluster.kill_server()
    cluster.start_server()

    spec = spec_with({"HF_TOKEN": {"secret": "hf"}, "PLAIN": "p"}, 'printf %s "$HF_TOKEN" | sha256sum; exec sleep 1000')
    refused = cluster.request("POST", "/v1/jobs", spec, token=bob)
    assert refused[0] == 422 and refused[1]["errors"][0]["pointer"] == "/command/env/HF_TOKEN"
    assert "muster secret set hf" in refused[1]["errors"][0]["message"]
    job = cluster.request("POST", "/v1/jobs", spec, token=ann)[1]["id"]
    cluster.wait(job, "running")
    digest = hashlib.sha256(value.encode()).hexdigest()
    wait_for("the job to have it", lambda: digest in cluster.log_text(job))
    assert cluster.request("GET", f"/v1/jobs/{job}", token=ann)[1]["spec"]["command"]["env"]["HF_TOKEN"] == {
        "secret": "hf"}
    busy = cluster.request("DELETE", "/v1/secrets/hf", token=ann)
    assert busy[0] == 409 and job in busy[1]["detail"]
    # Its folder, the store, the logs and what an agent that adopts the run reads: none has it.
    cluster.kill_agent("n1")
    cluster.start_agent("n1")
    assert not files_with(cluster.folder, SEALED)
    cluster.request("POST", f"/v1/jobs/{job}/cancel", token=ann)
    cluster.wait(job, "cancelled")
    assert cluster.request("DELETE", "/v1/secrets/hf", token=ann)[0] == 200
    assert cluster.request("DELETE", "/v1/secrets/hf", token=ann)[0] == 404


@pytest.mark.parametrize("name, body, status", [
    ("a b", {"value": "x"}, 422), ("..", {"value": "x"}, 404), ("n" * 64, {"value": "x"}, 422), ("a", {}, 422),
    ("a", {"value": 7}, 422), ("a", {"value": "x", "more": 1}, 422), ("a", {"value": "x" * 32769}, 422),
    ("a", {"value": "x\0y"}, 400), (".a", {"value": "x"}, 422)])
def test_what_is_no_secret_is_refused(cluster, name, body, status):
    assert cluster.request("PUT", f"/v1/secrets/{name}", body)[0] == status


@pytest.mark.parametrize("value", [
    {"secret": ""}, {"secret": "a/b"}, {"secret": "a", "x": 1}, {"x": "a"}, {}, ["a"], 7])
def test_a_variable_that_is_neither_a_text_nor_a_secret_is_refused(cluster, value):
    status, problem = cluster.request("POST", "/v1/jobs", spec_with({"A": value}))
    assert status == 422 and problem["errors"][0]["pointer"] == "/command/env/A"


def test_a_user_has_so_many_secrets_and_no_more(cluster):
    token = make_token(cluster, "hoarder")["token"]
    got = [cluster.request("PUT", f"/v1/secrets/s{i}", {"value": "x"}, token=token)[0] for i in range(66)]
    assert got == [201] * 64 + [409] * 2


def test_the_command_line_sets_lists_and_deletes_secrets(cluster):
    def muster(*args, text=""):
        return subprocess.run([f"{BIN}/muster", "secret", *args], input=text, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True, env=dict(os.environ, MUSTER_STATE=cluster.state)).stdout
    assert "is set" in muster("set", "cli", text=f"{HUSH}\n")
    job = cluster.submit(spec_with({"A": {"secret": "cli"}}, '[ "$A" = ' + HUSH[:5] + '"' + HUSH[5:] + '" ]'))["id"]
    cluster.wait(job, "succeeded")
    assert "cli" in muster("list") and HUSH not in muster("list", "-o", "json")
    assert "is deleted" in muster("delete", "cli")


def test_a_server_with_another_key_says_that_a_secret_does_not_open(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        assert cluster.request("PUT", "/v1/secrets/hf", {"value": HUSH})[0] == 201
        assert os.stat(f"{cluster.state}/secret-key").st_mode & 0o777 == 0o600
        cluster.kill_server()
        os.unlink(f"{cluster.state}/secret-key")
        cluster.start_server()
        status, problem = cluster.request("POST", "/v1/jobs", spec_with({"A": {"secret": "hf"}}))
        assert status == 422 and "set it again" in problem["detail"]
    assert not cluster.leftovers()
