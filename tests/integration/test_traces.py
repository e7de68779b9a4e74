"""Traces: a caller's context goes on through musterd into the program, and a collector is sent what happened."""
import http.server
import json
import subprocess
import threading

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def spans(self, trace):
        return {span["name"]: span for path, _, body in self.bodies for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]
                if path == "/v1/traces" and span["traceId"] == trace}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


@pytest.fixture(name="collector", scope="module")
def collector_fixture():
    server = Collector()
    yield server
    server.shutdown()


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(tmp_path_factory, collector):
    with Cluster(str(tmp_path_factory.mktemp("traces")), slots=1,
                 server_args=["--otlp", f"http://127.0.0.1:{collector.server_port}"]) as c:
        yield c
    assert not c.leftovers()


def test_a_trace_goes_through_the_job_into_its_program_and_to_the_collector(cluster, collector, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(specs.command("echo $TRACEPARENT")))
    done = subprocess.run([f"{BIN}/muster", "submit", str(spec), "-o", "json"], capture_output=True, text=True,
                          env=dict(cluster.cli_env(), TRACEPARENT=f"00-{TRACE}-{PARENT}-01"), check=False)
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["id"]
    cluster.wait(job, "succeeded")
    wait_for("its last span", lambda: "job" in collector.spans(TRACE))
    spans = collector.spans(TRACE)
    assert {"POST /v1/jobs", "queue", "decide", "attempt", "start", "job"} <= set(spans)
    assert spans["POST /v1/jobs"]["parentSpanId"] == PARENT
    assert spans["job"]["parentSpanId"] == spans["POST /v1/jobs"]["spanId"]
    assert cluster.log_text(job) == f"00-{TRACE}-{spans['attempt']['spanId']}-01\n"
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans.values())
    attributes = {a["key"]: a["value"] for a in spans["job"]["attributes"]}
    assert attributes["muster.job.id"] == {"stringValue": job}
    assert attributes["muster.job.state"] == {"stringValue": "succeeded"}
    _, headers, body = collector.bodies[0]
    assert headers["Content-Type"] == "application/json"
    assert body["resourceSpans"][0]["resource"]["attributes"][0] == {
        "key": "service.name", "value": {"stringValue": "musterd"}}


def test_a_job_of_nobodys_trace_has_one_of_its_own(cluster, collector):
    job = cluster.submit(specs.command("echo $TRACEPARENT"))["id"]
    cluster.wait(job, "succeeded")
    trace = cluster.log_text(job).split("-")[1]
    wait_for("its span", lambda: "job" in collector.spans(trace))
    assert "parentSpanId" not in collector.spans(trace)["POST /v1/jobs"]


def test_a_collector_that_is_no_address_is_refused_at_the_start(tmp_path):
    done = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path), "--port", "0", "--otlp", "there"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "--otlp 'there'" in done.stderr, done.stderr
