"""Nodes show a certificate besides their token (musterd --node-ca): what either alone is good for."""
import datetime
import glob
import os
import re
import secrets
import signal
import subprocess

import pytest
import requests

from tests import specs
from tests.attack.test_limits import audited
from tests.attack.test_nodes import agent_of
from tests.attack.test_transport import certificate
from tests.cluster import BIN, Cluster, wait_for
from tests.integration.fake_agent import FakeAgent
from tests.patience import PATIENCE_S

LIFE_S = 30 * 86400


def openssl(*argv, given=None):
    return subprocess.run(["openssl", *argv], check=True, capture_output=True, text=True, timeout=PATIENCE_S,
                          input=given).stdout


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("certificates"))
    cert, key = certificate(folder, "server")
    os.environ["REQUESTS_CA_BUNDLE"] = cert
    cluster = Cluster(os.path.join(folder, "cluster"), slots=0, server_args=[
        "--tls-cert", cert, "--tls-key", key, "--node-ca", os.path.join(folder, "ca")])
    cluster.url = cluster.url.replace("http://", "https://")
    cluster.ca, cluster.server_cert, cluster.scratch = os.path.join(folder, "ca"), cert, folder
    with cluster as c:
        yield c
    del os.environ["REQUESTS_CA_BUNDLE"]
    assert not cluster.leftovers()


def request_of(key, kind="prime256v1"):
    """A request for a certificate of a new key, which is written to that file."""
    make = ["-newkey", "rsa:2048"] if kind == "rsa" else ["-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{kind}"]
    return openssl("req", "-new", *make, "-nodes", "-subj", "/CN=whoever", "-keyout", key)


class Node(FakeAgent):
    """An agent with a token and a certificate of its own."""

    def __init__(self, cluster, node):
        super().__init__(cluster, node, token=f"mst_{secrets.token_hex(24)}")
        self.key = os.path.join(cluster.scratch, f"{node}-{secrets.token_hex(4)}.key")
        answer = requests.post(f"{cluster.url}/v1/agents/join", timeout=PATIENCE_S, json={
            "code": cluster.api("POST", f"/v1/nodes/{node}/enroll")["code"], "token": self.token,
            "request": request_of(self.key)})
        assert answer.status_code == 201 and answer.json()["node"] == node, answer.text
        self.show(answer.json()["certificate"])

    def show(self, pem, key=None):
        """The certificate of its next calls; None: none."""
        self.session = requests.Session()
        if pem:
            self.cert = f"{key or self.key}.{secrets.token_hex(4)}.pem"
            with open(self.cert, "w", encoding="ascii") as f:
                f.write(pem)
            self.session.cert = (self.cert, key or self.key)

    def refused(self):
        """The code of what its calls are refused with; all alike."""
        codes = set()
        for method, path, body in (
                ("POST", "/register", {"node": self.node, "incarnation": "i1", "slots": []}),
                ("GET", f"/{self.node}/assignments?version=0&wait=0&incarnation=i1", None),
                ("POST", f"/{self.node}/report", {"incarnation": "i1", "seq": 1, "runs": []}),
                ("PUT", f"/{self.node}/rendezvous/j1/1/ucx-0?incarnation=i1", None),
                ("GET", f"/{self.node}/rendezvous/j1/1?since=0&incarnation=i1", None),
                ("POST", f"/{self.node}/certificate", {"request": "x"})):
            status, problem = self.call(method, path, body)
            codes.add((status, problem["type"].rpartition(":")[2]))
        assert len(codes) == 1, codes
        return codes.pop()


def signed_at(cluster, node, starts, ends, ca=None):
    """A certificate of that node's key and token, as the authority (or another one) makes it at another time."""
    folder, ca = os.path.join(cluster.scratch, secrets.token_hex(4)), ca or cluster.ca
    os.mkdir(folder)
    token = openssl("x509", "-in", node.cert, "-noout", "-subject", "-nameopt", "multiline")
    token = re.search(r"organizationalUnitName *= (\w+)", token).group(1)
    request = openssl("req", "-new", "-key", node.key, "-subj", f"/CN={node.node}/OU={token}")
    for name, text in (("index", ""), ("serial", "1000"), ("conf", f"""[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index
serial={folder}/serial\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=p\nx509_extensions=x\nunique_subject=no
[p]\ncommonName=supplied\norganizationalUnitName=supplied\n[x]\nextendedKeyUsage=clientAuth\n[req]
distinguished_name=n\n[n]\n"""), ("csr", request)):
        with open(f"{folder}/{name}", "w", encoding="ascii") as f:
            f.write(text)
    times = [(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=s)).strftime("%Y%m%d%H%M%SZ")
             for s in (starts, ends)]
    openssl("ca", "-batch", "-config", f"{folder}/conf", "-cert", f"{ca}/ca.pem", "-keyfile", f"{ca}/ca-key.pem", "-in",
            f"{folder}/csr", "-out", f"{folder}/cert", "-notext", "-startdate", times[0], "-enddate", times[1])
    with open(f"{folder}/cert", encoding="ascii") as f:
        return f.read()


def test_a_stolen_token_without_the_certificate_is_refused(secure):
    node = Node(secure, "n1")
    node.register()
    assert node.assignments(wait=0) == {}
    mine = node.cert
    node.show(None)
    assert node.refused() == (403, "certificate-needed")
    node.session.cert = (mine, node.key)
    node.session.close()
    node.report()
    wait_for("the audit log to say so", lambda: any(
        e["code"] == "certificate-needed" and e["path"].startswith("/v1/agents/") for e in audited(secure)))


def test_a_certificate_of_another_node_or_another_token_is_refused(secure):
    one, two = Node(secure, "n1"), Node(secure, "n2")
    with open(two.cert, encoding="ascii") as f:
        one.show(f.read(), two.key)
    assert one.refused() == (403, "certificate-other")
    again = Node(secure, "n2")  # whoever had the node's token before has none for this one
    with open(two.cert, encoding="ascii") as f:
        again.show(f.read(), two.key)
    assert again.refused() == (403, "certificate-other")


def test_a_certificate_is_void_with_its_node(secure):
    node = Node(secure, "n3")
    node.register()
    assert secure.api("DELETE", "/v1/nodes/n3/enroll")["token"]
    assert node.refused() == (401, "unknown-token")


def test_an_expired_certificate_is_refused_on_a_new_connection_and_on_an_open_one(secure):
    node = Node(secure, "n4")
    node.show(signed_at(secure, node, -LIFE_S, -60))
    assert node.refused() == (403, "certificate-expired")
    node.show(signed_at(secure, node, -60, 3))
    assert node.call("GET", "/n4/assignments?version=0&wait=0&incarnation=i1")[0] in (404, 403)  # not registered; over
    wait_for("the certificate to be over on the same connection",
             lambda: node.call("GET", "/n4/assignments?version=0&wait=0&incarnation=i1")[0] == 403)


def test_a_certificate_of_another_authority_is_refused(secure):
    node, other = Node(secure, "n5"), os.path.join(secure.scratch, "other")
    os.mkdir(other)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
            "/CN=Muster nodes", "-keyout", f"{other}/ca-key.pem", "-out", f"{other}/ca.pem")
    node.show(signed_at(secure, node, -60, LIFE_S, other))
    assert node.refused() == (403, "certificate-unknown")


@pytest.mark.parametrize("what", ["", "rubbish", "rsa", "secp384r1", "forged"])
def test_a_request_that_is_none_is_refused_and_the_code_stays_good(secure, what, tmp_path):
    code = secure.api("POST", "/v1/nodes/n6/enroll")["code"]
    good = request_of(str(tmp_path / "key"))
    request = {"": "", "rubbish": "rubbish", "forged": good.replace("\nM", "\nN", 1)}.get(what)
    if request is None:
        request = request_of(str(tmp_path / "other"), what)
    trade = {"code": code, "token": f"mst_{secrets.token_hex(24)}"}
    for asked, status in ((request, 422), (good, 201)):
        answer = requests.post(f"{secure.url}/v1/agents/join", json={**trade, "request": asked}, timeout=PATIENCE_S)
        assert answer.status_code == status, answer.text


def test_people_and_joining_agents_need_no_certificate(secure):
    assert requests.get(f"{secure.url}/healthz", timeout=PATIENCE_S).status_code == 200
    assert secure.api("GET", "/v1/nodes") is not None


def of_agent(state):
    """The agent's certificate: its file, and when it ends."""
    path, = glob.glob(f"{state}/node-*.pem")
    assert os.stat(path).st_mode & 0o777 == 0o600
    end = openssl("x509", "-in", path, "-noout", "-enddate").strip().partition("=")[2]
    return path, datetime.datetime.strptime(end, "%b %d %H:%M:%S %Y %Z").timestamp()


def test_an_agent_gets_a_certificate_renews_it_by_itself_and_runs_jobs(secure, tmp_path):
    state = str(tmp_path / "agent")
    agent = secure.spawn("agent-real", [*agent_of(secure, state, "--join", secure.api(
        "POST", "/v1/nodes/real/enroll")["code"]), "--ca-file", secure.server_cert])
    wait_for("the agent to register", lambda: "registered" in secure.tail("agent-real"))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE_S) == 0
    path, end = of_agent(state)
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None).timestamp()
    assert LIFE_S - 600 < end - now <= LIFE_S + 60

    # Two thirds of its time are over: the agent asks for the next one, and goes on by that.
    class Held:  # what the agent has, as a node of the tests
        node, cert, key = "real", path, path
    text = signed_at(secure, Held, -20 * 86400 - 60, 10 * 86400 - 60)
    with open(path, encoding="ascii") as f:
        key = f.read().partition("-----END CERTIFICATE-----\n")[2]
    os.unlink(path)
    with open(os.open(f"{state}/node-{int(end) - 20 * 86400}.pem", os.O_WRONLY | os.O_CREAT, 0o600), "w",
              encoding="ascii") as f:
        f.write(text + key)
    agent = secure.spawn("agent-again", [*agent_of(secure, state), "--ca-file", secure.server_cert])
    wait_for("the certificate to be renewed", lambda: "of node real was renewed" in secure.tail("agent-again"))
    assert of_agent(state)[1] > now + LIFE_S - 600
    with open(of_agent(state)[0], encoding="ascii") as f:
        assert key not in f.read()
    secure.kill_server()
    secure.start_server()  # the same authority
    job = secure.api("POST", "/v1/jobs", specs.command("echo done"))["id"]
    secure.wait(job, "succeeded")
    job = secure.api("POST", "/v1/jobs", specs.command("exec sleep 3600"))["id"]
    secure.wait(job, "running")
    done = subprocess.run([f"{BIN}/muster", "exec", job, "-i", "--", "wc", "-c"], input=b"x" * 300000, check=False,
                          capture_output=True, timeout=PATIENCE_S,
                          env=dict(secure.cli_env(), MUSTER_CACERT=secure.server_cert))
    assert (done.returncode, done.stdout) == (0, b"300000\n"), done.stderr  # a session is encrypted at both ends, too
    secure.action(job, "cancel")
    secure.wait(job, "cancelled")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("args, words", [([], "--tls-cert"), (["tls", "--agents", "shared"], "--agents shared")])
def test_an_authority_wants_tls_and_tokens_of_nodes(tmp_path, args, words):
    cert, key = certificate(str(tmp_path), "x")
    args = ["--tls-cert", cert, "--tls-key", key, *args[1:]] if args else []
    done = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path / "state"), "--port", "0", "--node-ca",
                           str(tmp_path / "ca"), *args], capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    assert done.returncode == 1 and words in done.stderr


def test_an_authority_whose_key_others_can_read_is_refused_by_name(secure, tmp_path):
    ca = tmp_path / "ca"
    ca.mkdir(mode=0o700)
    for name in ("ca.pem", "ca-key.pem"):
        with open(f"{secure.ca}/{name}", encoding="ascii") as f:
            (ca / name).write_text(f.read())
    (ca / "ca-key.pem").chmod(0o644)
    cert, key = certificate(str(tmp_path), "x")
    done = subprocess.run([f"{BIN}/musterd", "--state", str(tmp_path / "state"), "--port", "0", "--node-ca", str(ca),
                           "--tls-cert", cert, "--tls-key", key], capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    assert done.returncode == 1 and f"'{ca}/ca-key.pem' has mode 0644" in done.stderr
