"""Bad input to a real server and agent: each gets words naming what and where, and leaves nothing behind."""
import glob
import json
import os
import random
import socket

import pytest
import requests

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("bad")), slots=4) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def changed(spec, pointer, value):
    """A copy of spec with the value at a JSON pointer replaced."""
    spec = json.loads(json.dumps(spec))
    *way, last = pointer.strip("/").split("/")
    at = spec
    for name in way:
        at = at.setdefault(name, {})
    at[last] = value
    return spec


@pytest.mark.parametrize("pointer, value, words", [
    ("/train/model/heads", 3, "heads"),
    ("/parallel/tp", 3, "heads"),
    ("/parallel/pp", 8, "layers"),
    ("/devices", {"min": 64, "max": 64}, "at most 4"),
    ("/train/steps", "many", "/train/steps"),
    ("/train/steps", -1, "/train/steps"),
    ("/train/stesp", 5, "stesp"),
    ("/train/data/format", "parquet", "parquet"),
    ("/train/data/path", "relative/corpus.txt", "/train/data/path"),
    ("/train/optimizer/lr", "fast", "/train/optimizer/lr"),
    ("/checkpoint/every_steps", 1.5, "/checkpoint/every_steps"),
    ("/parallel/tp", 2 ** 40, "/parallel/tp"),
    ("/name", "x" * 5000, "/name"),
    ("/kind", "dance", "kind"),
])
def test_a_spec_that_cannot_be_is_refused_at_submit(cluster, corpus, pointer, value, words):
    before = len(cluster.list_jobs())
    status, problem = cluster.request("POST", "/v1/jobs", changed(specs.train(corpus), pointer, value))
    assert status == 422, problem
    assert words in json.dumps(problem)
    assert len(cluster.list_jobs()) == before


def test_all_faults_come_at_once_with_their_places(cluster, corpus):
    spec = changed(changed(changed(specs.train(corpus), "/train/steps", 0), "/parallel/tp", "two"), "/extra", 1)
    status, problem = cluster.request("POST", "/v1/jobs", spec)
    assert status == 422
    assert {"/train/steps", "/parallel/tp", "/extra"} <= {e["pointer"] for e in problem["errors"]}


@pytest.mark.parametrize("make, words", [
    (lambda d: str(d / "missing.txt"), "missing.txt"),
    (lambda d: str(d), "directory"),
    (lambda d: str((d / "empty.txt").write_text("") and "" or d / "empty.txt"), "empty.txt"),
    (lambda d: str((d / "one.txt").write_text("short\n%\n") and d / "one.txt"), "one.txt"),
])
def test_data_that_cannot_be_read_fails_the_job_and_is_named(cluster, tmp_path, make, words):
    job = cluster.submit(changed(specs.train("/x"), "/train/data/path", make(tmp_path)))["id"]
    failed = cluster.wait(job, "failed")
    assert failed["outcome"]["class"] == "user", failed["outcome"]
    assert words in json.dumps(failed["outcome"]), failed["outcome"]
    assert failed["generation"] == 1  # the same again would fail the same
    wait_for("no rank", lambda: not cluster.rank_pids(job))


def test_a_folder_of_damaged_checkpoints_is_named_and_kept(cluster, corpus, tmp_path):
    spec = specs.train(corpus, steps=10, every_steps=5)
    spec["checkpoint"]["dir"] = str(tmp_path / "ckpt")
    cluster.wait(cluster.submit(spec)["id"], "succeeded")
    parts = sorted(glob.glob(str(tmp_path / "ckpt/step-*/rank-*.mck")))
    assert parts
    for path in parts:
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            f.write(b"\xff" * 64)
    spec["train"]["steps"] = 20
    job = cluster.submit(spec)["id"]
    ended = cluster.wait(job, ["failed", "succeeded"])
    assert ended["state"] == "failed", ended
    assert "step-" in json.dumps(ended["outcome"]) or "checkpoint" in json.dumps(ended["outcome"]), ended["outcome"]
    assert sorted(glob.glob(str(tmp_path / "ckpt/step-*/rank-*.mck"))) == parts
    verdict = cluster.muster("checkpoint", "verify", str(tmp_path / "ckpt"))
    assert verdict.returncode != 0 and "rank-" in verdict.stdout + verdict.stderr


def test_an_oversized_body_is_refused_before_it_is_read(cluster):
    body = b'{"name": "' + b"x" * (9 << 20) + b'"}'
    try:
        answer = requests.post(f"{cluster.url}/v1/jobs", data=body, timeout=PATIENCE_S,
                               headers={"Authorization": f"Bearer {cluster.token()}"})
        assert answer.status_code == 413, answer.text
    except requests.ConnectionError:
        pass  # the answer may be lost when the connection ends in the middle of the body
    assert cluster.request("GET", "/readyz")[0] == 200


GARBAGE = {
    "TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "random": random.Random(5).randbytes(4096),
    "version": b"GET /v1/jobs HTTP/9.9\r\n\r\n",
    "long path": b"GET " + b"/" * 70000 + b" HTTP/1.1\r\n\r\n",
    "negative length": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "blank lines": b"\r\n\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_on_the_port_hurts_nobody(cluster, kind):
    # Where the end arrives with the garbage the server may see it only when the connection has idled for a minute. No
    # answer until then is as good as a closed connection, so nobody waits for it here.
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=3) as s:
        try:
            s.sendall(GARBAGE[kind])
            s.shutdown(socket.SHUT_WR)
            said = b""
            while part := s.recv(65536):
                said += part
        except OSError:  # hung up on: as good an answer
            said = b""
    assert not said or said.startswith(b"HTTP/1."), said[:80]
    assert b" 200 " not in said[:20]
    assert cluster.request("GET", "/readyz")[0] == 200


HOSTILE = {
    "deep": b"[" * 500000,
    "deep object": b'{"a":' * 100000 + b"1" + b"}" * 100000,
    "long number": b'{"priority": ' + b"9" * 500000 + b"}",
    "huge number": b'{"priority": 1e999}',
    "not UTF-8": b'{"name": "\xff\xfe\xc0\x80"}',
    "NUL": b'{"name": "a\\u0000b"}',
    "twice": b'{"name": "a", "name": "b"}',
    "many fields": b"{" + b",".join(b'"x%d": 1' % i for i in range(60000)) + b"}",
    "many arguments": b'{"command": {"argv": [' + b",".join([b'"x"'] * 200000) + b"]}}",
    "long key": b'{"' + b"x" * 900000 + b'": 1}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_body_is_refused_in_words_and_at_once(cluster, kind):
    before = len(cluster.list_jobs())
    answer = requests.post(f"{cluster.url}/v1/jobs", data=HOSTILE[kind], timeout=PATIENCE_S,
                           headers={"Authorization": f"Bearer {cluster.token()}"})
    assert answer.status_code in (400, 422), answer.text[:500]
    assert answer.json()["detail"] and len(answer.content) < 100000
    assert answer.elapsed.total_seconds() < 3
    assert len(cluster.list_jobs()) == before


def test_the_cli_says_what_the_server_says(cluster, corpus, tmp_path):
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(changed(specs.train(corpus), "/parallel/tp", 3)))
    said = cluster.muster("submit", str(spec))
    assert said.returncode != 0
    assert "heads" in said.stderr and "parallel" in said.stderr, said.stderr
    assert said.stdout == ""
