"""The answers that agents and the command line get are held to api/openapi.yaml, too."""
import os
import subprocess

import pytest

from tests import answers, specs
from tests.cluster import BIN, TAP, Cluster

URL = "http://127.0.0.1:1"


def test_answers_to_agents_and_to_the_command_line_are_seen(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        go = tmp_path / "go"
        job = cluster.submit(specs.command(f"env | grep -E 'TAP|tap.so'; until [ -e {go} ]; do sleep 0.05; done; "
                                           "echo over"))["id"]
        cluster.wait(job, "running")
        with subprocess.Popen([f"{BIN}/muster", "logs", job, "-f"], stdout=subprocess.PIPE, text=True,
                              env=cluster.cli_env()) as following:
            assert cluster.muster("list").returncode == 0
            go.touch()
            assert "over" in following.stdout.read()
        assert cluster.log_text(job) == "over\n"  # ranks have nothing of it
    if not os.path.exists(TAP):
        pytest.skip("under a sanitizer nothing else is loaded first")
    seen = {(method, answers.template_of(method, url[len(cluster.url):]), kind)
            for method, url, _, kind, _ in answers.tapped(cluster.answers)}
    agent, cli = "/v1/agents/{node}/", "/v1/jobs"
    assert {("POST", "/v1/agents/register", "application/json"), ("POST", agent + "report", "application/json"),
            ("GET", agent + "assignments", "application/json"), ("GET", cli, "application/json")} <= seen, seen
    assert any(kind == "text/event-stream" for _, _, kind in seen), seen


@pytest.mark.parametrize("line, body, fault", [
    ("GET /v1/jobs 200 application/json", '{"jobs": [], "more": 1}', "more"),
    ("GET /v1/jobs 203 application/json", '{"jobs": []}', "status 203"),
    ("GET /v1/jobs/j1/events 200 text/event-stream", 'event: log\ndata: {"line": 1}\n\nevent: cut', "event log"),
])
def test_an_answer_that_is_not_as_described_fails(tmp_path, line, body, fault):
    method, path, rest = line.split(" ", 2)
    (tmp_path / "answers").write_text(f"{method} {URL}{path} {rest} {len(body)}\n{body}\n", encoding="ascii")
    with pytest.raises(AssertionError, match=fault):
        answers.check_tapped(str(tmp_path / "answers"), URL)
    assert answers.check_tapped(str(tmp_path / "answers"), "http://elsewhere") == 0
