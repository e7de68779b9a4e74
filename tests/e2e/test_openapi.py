"""The API's description and the server's table of routes say the same."""
import os
import re
import shutil
import subprocess

import pytest
import requests
import yaml

from tests import specs
from tests.answers import operations
from tests.cluster import ROOT, Cluster
from tests.patience import PATIENCE_S

TOOLS = os.path.join(ROOT, "tests", "openapi")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=1) as c:
        yield c


@pytest.fixture(scope="module")
def described(cluster):
    return yaml.safe_load(requests.get(f"{cluster.url}/openapi.yaml", timeout=PATIENCE_S).content)


def test_every_route_is_described_and_every_description_has_a_route(described):
    with open(os.path.join(ROOT, "server/control/routes.c"), encoding="utf-8") as f:
        table = re.findall(r'\{\s*"(GET|PUT|POST|PATCH|DELETE)",\s*"([^"]+)",\s*ROLE_(\w+)', f.read())
    assert len(table) > 25
    assert {(method, path) for method, path, _ in table} == set(operations(described))
    open_paths = {(method, path) for method, path, role in table if role == "NONE"}
    assert open_paths == {key for key, operation in operations(described).items() if operation.get("security") == []}


def test_every_route_refuses_parameters_that_are_not_described_and_values_out_of_their_range(cluster, described):
    """What a route says that it takes is what is described of it, with the same ranges."""
    with open(f"{cluster.state}/agent-token", encoding="ascii") as f:
        agent = f.read().strip()

    def refusal(method, path, query):
        token = agent if "/v1/agents/" in path else None
        status, answer = cluster.request(method, re.sub(r"\{\w+\}", "x", path) + query, token=token)
        assert (status, answer.get("type")) == (422, "urn:muster:problem:query-invalid"), (method, path, query, answer)
        return answer["detail"]

    for (method, path), operation in operations(described).items():
        every = operation.get("parameters", []) + described["paths"][path].get("parameters", [])
        every = [described["components"]["parameters"][p["$ref"].split("/")[-1]] if "$ref" in p else p for p in every]
        taken = {p["name"]: p["schema"] for p in every if p["in"] == "query"}
        said = re.fullmatch(r"'surplus' is no parameter of this; it takes (.*)",
                            refusal(method, path, "?surplus=1"))[1]
        assert (set() if said == "none" else set(said.split(", "))) == set(taken), (method, path)
        for name, schema in taken.items():
            if schema["type"] != "integer":
                continue
            low, high = re.search(r"from (\d+) to (\d+)", refusal(method, path, f"?{name}=many")).groups()
            assert int(low) == schema["minimum"], (path, name)
            assert int(high) == schema.get("maximum", int(high)) and int(high) in (schema.get("maximum"), 2**31 - 1,
                                                                                   2**63 - 1), (path, name)
            refusal(method, path, f"?{name}={int(high) + 1}")
            refusal(method, path, f"?{name}={low}&{name}={low}")


def test_the_description_is_served_as_it_is_written(described):
    with open(os.path.join(ROOT, "api/openapi.yaml"), encoding="utf-8") as f:
        assert described == yaml.safe_load(f)


def test_every_reference_leads_somewhere_and_every_id_is_used_once(described):
    def walk(node):
        if isinstance(node, dict):
            yield from ([node["$ref"]] if "$ref" in node else [])
            for child in node.values():
                yield from walk(child)
        elif isinstance(node, list):
            for child in node:
                yield from walk(child)
    for reference in walk(described):
        at = described
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
    ids = [operation["operationId"] for operation in operations(described).values()]
    assert len(ids) == len(set(ids))


def test_every_parameter_of_a_path_is_described(described):
    for path, item in described["paths"].items():
        named = set()
        for p in item.get("parameters", []):
            p = described["components"]["parameters"][p["$ref"].split("/")[-1]] if "$ref" in p else p
            named.add(p["name"])
        assert set(re.findall(r"\{(\w+)\}", path)) == named, path


def tool(name, *args, **more):
    return subprocess.run([os.path.join(TOOLS, "node_modules", ".bin", name), *args], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, **more)


def test_a_standard_linter_has_nothing_to_say():
    out = tool("spectral", "lint", "--fail-severity", "warn", "--ruleset", f"{TOOLS}/spectral.yaml",
               f"{ROOT}/api/openapi.yaml")
    assert out.returncode == 0, out.stdout + out.stderr


def test_a_client_from_a_public_generator_submits_waits_and_cancels(cluster, tmp_path):
    made = tool("openapi", "--input", f"{ROOT}/api/openapi.yaml", "--output", str(tmp_path / "generated"),
                "--client", "fetch", "--useUnionTypes")
    assert made.returncode == 0, made.stdout + made.stderr
    shutil.copy(f"{TOOLS}/client.ts", tmp_path)
    built = tool("tsc", "--module", "commonjs", "--target", "es2022", "--lib", "es2022,dom", "--strict",
                 "--skipLibCheck", "client.ts", cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    out = subprocess.run(["node", str(tmp_path / "client.js"), cluster.url, cluster.token()], capture_output=True,
                         text=True, timeout=PATIENCE_S, check=False)
    assert out.returncode == 0, out.stderr
    said = dict(line.split(" ", 1) for line in out.stdout.splitlines())
    assert (said["short"], said["long"]) == ("succeeded", "cancelled") and int(said["listed"]) >= 2
    assert said["unknown"] == "404 urn:muster:problem:unknown-job", said


def test_every_kind_of_answer_is_held_to_the_description(cluster):
    """Cluster.request() compares each answer; here are those that other tests seldom ask for."""
    job = cluster.submit(specs.command("echo out; exit 3", name="shape"))["id"]
    cluster.wait(job, "failed")
    for path in ("", "/events", "/logs", "/metrics", "/checkpoints", "/explain"):
        cluster.api("GET", f"/v1/jobs/{job}{path}")
    for path in ("/v1/jobs", "/v1/nodes", "/v1/events", "/v1/cluster", "/v1/projects", "/v1/projects/default",
                 "/v1/tokens", "/healthz", "/readyz"):
        cluster.api("GET", path)


def test_faults_are_problem_documents(cluster):
    faults = [("GET", "/v1/jobs/j999", None, 404), ("GET", "/v1/jbos", None, 404), ("DELETE", "/v1/jobs", None, 405),
              ("POST", "/v1/jobs", {"nmae": "x"}, 422), ("POST", "/v1/jobs", [], 422),
              ("PATCH", "/v1/jobs/j999", {}, 404), ("POST", "/v1/nodes/nowhere/drain", None, 404)]
    for method, path, body, status in faults:
        got, problem = cluster.request(method, path, body)
        assert got == status, (method, path, got, problem)
        assert problem["status"] == status and problem["type"].startswith("urn:muster:problem:")
    _, problem = cluster.request("POST", "/v1/jobs", {"nmae": "x", "prioritty": 1})
    assert {e["pointer"] for e in problem["errors"]} >= {"/nmae", "/prioritty"}
    assert any("name" in e["message"] for e in problem["errors"])
    got, problem = cluster.request("GET", "/v1/jobs", token="")
    assert (got, problem["type"]) == (401, "urn:muster:problem:no-token")
