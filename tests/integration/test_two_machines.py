"""The walk of docs/operations.md: a server and two agents on three hosts (network namespaces), one job across both."""
import json
import os
import shutil
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, wait_for
from tests.hosts import NEEDS, Hosts, can_make_hosts
from tests.patience import PATIENCE_S
from tests.results import digest

HOSTS = {"head": "10.77.0.1", "node1": "10.77.0.2", "node2": "10.77.0.3"}
PORT = 7717


pytestmark = pytest.mark.skipif(not can_make_hosts(), reason=NEEDS)


@pytest.fixture(name="hosts")
def three_hosts():
    with Hosts(HOSTS) as h:
        yield h


def certificate(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=muster", "-addext", f"subjectAltName=IP:{HOSTS['head']}", "-days", "2",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_the_operators_walk_over_two_machines(hosts, tmp_path):
    state, jobs = str(tmp_path / "state"), str(tmp_path / "shared")
    os.makedirs(jobs)
    log = str(tmp_path / "log")
    url = f"http://{HOSTS['head']}:{PORT}"

    # Beyond loopback the server wants TLS or a plain word.
    refused = hosts.run("head", [f"{BIN}/musterd", "--state", str(tmp_path / "refused"), "--bind", HOSTS["head"],
                                 "--port", str(PORT)])
    assert refused.returncode != 0
    assert "--insecure" in refused.stderr and "tls" in refused.stderr.lower()

    hosts.start("head", [f"{BIN}/musterd", "--state", state, "--bind", HOSTS["head"], "--port", str(PORT),
                         "--insecure", "--jobs-dir", jobs], log)
    wait_for("tokens", lambda: os.path.exists(f"{state}/token") and os.path.exists(f"{state}/server.json"))
    assert not os.path.exists(f"{state}/agent-token")  # beyond the loopback address each node has a token of its own
    assert os.stat(f"{state}/token").st_mode & 0o777 == 0o600
    with open(f"{state}/token", encoding="ascii") as f:
        env = {"MUSTER_SERVER": url, "MUSTER_TOKEN": f.read().strip()}

    def muster(*args, seconds=PATIENCE_S):
        return hosts.run("node1", [f"{BIN}/muster", *args], env, seconds)
    for node in ("node1", "node2"):
        code = muster("node", "enroll", node)
        assert code.returncode == 0, code.stderr
        hosts.start(node, [f"{BIN}/muster-agent", "--server", url, "--join", code.stdout.strip(), "--state",
                           str(tmp_path / node), "--devices", "cpu:2", "--stop-ranks-on-exit"], log)

    def ready():
        out = muster("nodes", "-o", "json")
        return out.returncode == 0 and [n["id"] for n in json.loads(out.stdout)["nodes"]
                                        if n["state"] == "ready"] == ["node1", "node2"]
    wait_for("two nodes", ready)

    corpus = specs.write_corpus(str(tmp_path / "corpus.txt"))
    spec = specs.train(corpus, steps=20, tp=2, pp=2, every_steps=10)
    (tmp_path / "job.json").write_text(json.dumps(spec))
    done = muster("submit", str(tmp_path / "job.json"), "--watch")
    assert done.returncode == 0, done.stdout + done.stderr + open(log, encoding="utf-8").read()[-4000:]
    job = json.loads(muster("show", "j1", "-o", "json").stdout)
    assert job["state"] == "succeeded"
    events = json.loads(muster("events", "j1", "-o", "json").stdout)["events"]
    places = next(e["data"]["assignment"] for e in events if (e.get("cause") or {}).get("code") == "assigned")
    assert sorted(p["node"] for p in places) == ["node1", "node1", "node2", "node2"]

    # Where the ranks were makes no difference to the bits.
    alone = str(tmp_path / "alone")
    run = subprocess.run([f"{BIN}/muster", "run", str(tmp_path / "job.json"), "--devices", "4", "--dir", alone],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert digest(f"{job['dir']}/checkpoints") == digest(f"{alone}/checkpoints")


def test_the_same_over_tls(hosts, tmp_path):
    if not shutil.which("openssl"):
        pytest.fail("openssl is missing: make deps-test installs it")
    state = str(tmp_path / "state")
    log = str(tmp_path / "log")
    cert, key = certificate(str(tmp_path))
    url = f"https://{HOSTS['head']}:{PORT}"
    hosts.start("head", [f"{BIN}/musterd", "--state", state, "--bind", HOSTS["head"], "--port", str(PORT),
                         "--tls-cert", cert, "--tls-key", key, "--agents", "shared"], log)
    wait_for("server", lambda: os.path.exists(f"{state}/server.json"))
    hosts.start("node1", [f"{BIN}/muster-agent", "--server", url, "--token-file", f"{state}/agent-token", "--state",
                          str(tmp_path / "node1"), "--node", "node1", "--devices", "cpu:1", "--ca-file", cert,
                          "--stop-ranks-on-exit"], log)
    with open(f"{state}/token", encoding="ascii") as f:
        env = {"MUSTER_SERVER": url, "MUSTER_TOKEN": f.read().strip(), "MUSTER_CACERT": cert}
    (tmp_path / "job.json").write_text(json.dumps(specs.command("echo over-$MUSTER_JOB")))
    wait_for("node", lambda: '"ready"' in hosts.run("node1", [f"{BIN}/muster", "nodes", "-o", "json"], env).stdout)
    done = hosts.run("node1", [f"{BIN}/muster", "submit", str(tmp_path / "job.json"), "--watch"], env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over-j1" in hosts.run("node1", [f"{BIN}/muster", "logs", "j1"], env).stdout
    for wrong, says in ((dict(env, MUSTER_CACERT=""), "set MUSTER_CACERT"),
                        (dict(env, MUSTER_SERVER=url.replace("https", "http")), "is it http:// or https://?")):
        out = hosts.run("node1", [f"{BIN}/muster", "list"], wrong)
        assert out.returncode == 5 and says in out.stderr
