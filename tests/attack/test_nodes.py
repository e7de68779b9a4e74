"""Which machine is which node: what a stolen token, a stranger's code or another node's name is good for."""
import concurrent.futures
import os
import secrets
import signal
import subprocess

import pytest
import requests

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.integration.fake_agent import FakeAgent, run_of
from tests.patience import PATIENCE_S
from tests.sessions import BEGIN, BINARY, Refused, Session


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A server that takes agents with tokens of their own alone."""
    with Cluster(str(tmp_path_factory.mktemp("nodes")), slots=0, server_args=["--agents", "enrolled"]) as c:
        yield c
    assert not c.leftovers()


def join(cluster, code, token):
    return requests.post(f"{cluster.url}/v1/agents/join", json={"code": code, "token": token}, timeout=PATIENCE_S)


def token_of(letter):
    return f"mst_{letter * 48}"


class Enrolled(FakeAgent):
    """An agent with a token of its own."""

    def __init__(self, cluster, node):
        super().__init__(cluster, node, token=f"mst_{secrets.token_hex(24)}")
        answer = join(cluster, cluster.api("POST", f"/v1/nodes/{node}/enroll")["code"], self.token)
        assert (answer.status_code, answer.json()) == (201, {"node": node})


def two_nodes(cluster):
    one, two = Enrolled(cluster, "n1"), Enrolled(cluster, "n2")
    two.incarnation = "i2"
    one.register()
    two.register()
    return one, two


def give(cluster, agents):
    """A job that one of them is given: that agent, the other one, the job's id, its assignment."""
    job = cluster.submit(specs.command("x"))["id"]

    def given():
        for one, other in (agents, agents[::-1]):
            mine = one.assignments(wait=0).get(job)
            if mine:
                return one, other, job, mine
        return None
    return wait_for(f"{job} to be given to a node", given)


def test_a_stolen_token_speaks_for_its_own_node_alone(many):
    one, two = two_nodes(many)
    two.node = "n1"
    for method, path, body in (
            ("POST", "/register", {"node": "n1", "incarnation": "i2", "slots": []}),
            ("POST", "/register", {"node": "fake", "incarnation": "i2", "slots": []}),
            ("GET", "/n1/assignments?version=0&wait=0&incarnation=i1", None),
            ("POST", "/n1/report", {"incarnation": "i1", "seq": 1, "runs": []}),
            ("PUT", "/n1/rendezvous/j1/1/ucx-0?incarnation=i1", None),
            ("GET", "/n1/rendezvous/j1/1?since=0&incarnation=i1", None)):
        status, problem = two.call(method, path, body)
        assert (status, problem["type"]) == (403, "urn:muster:problem:other-node"), (method, path, problem)
    assert one.assignments(wait=0) == {}


def test_the_shared_token_is_not_taken_by_a_server_of_many(many):
    assert "agent-token" not in [t["user"] for t in many.api("GET", "/v1/tokens")["tokens"] if t["file"]]
    with open(f"{many.state}/agent-token", "w", encoding="ascii") as f:
        f.write("mst_stolen\n")
    os.chmod(f"{many.state}/agent-token", 0o600)
    many.kill_server(signal.SIGTERM)
    many.start_server()
    thief = FakeAgent(many, "n7", token="mst_stolen")
    status, problem = thief.call("POST", "/register", {"node": "n7", "incarnation": "i1", "slots": []})
    assert (status, problem["type"]) == (403, "urn:muster:problem:agent-not-enrolled")
    assert "muster node enroll" in problem["detail"]
    os.unlink(f"{many.state}/agent-token")


def test_every_call_of_an_agent_names_its_incarnation(many):
    one, two = two_nodes(many)
    one, two, job, mine = give(many, (one, two))
    run = f"/{one.node}/rendezvous/{job}/{mine['generation']}"
    for status, incarnation in ((422, ""), (422, "&incarnation="), (404, "&incarnation=old")):
        assert one.call("GET", f"/{one.node}/assignments?version=0&wait=0{incarnation}")[0] == status
        assert one.call("GET", f"{run}?since=0{incarnation}")[0] == status
        assert one.call("PUT", f"{run}/ucx-0?{incarnation.lstrip('&')}", None, data=b"QQ==")[0] == status
    for body in ({}, {"incarnation": ""}, {"incarnation": "old"}, {"incarnation": 7}):
        assert one.call("POST", f"/{one.node}/report", {"seq": 1, "runs": [run_of(mine, "exited")], **body})[0] == 404
    assert many.job(job)["state"] == "starting"
    one.report([run_of(mine, "running")])
    one.report([run_of(mine, "exited")])
    many.wait(job, "succeeded")


def test_a_node_neither_sees_nor_ends_nor_writes_to_the_run_of_another(many):
    one, two, job, mine = give(many, two_nodes(many))
    run = f"rendezvous/{job}/{mine['generation']}"
    assert job not in two.assignments(wait=0)
    piece = {"job": job, "generation": mine["generation"], "offset": 0}
    two.report([run_of(mine, "exited")], logs=[{**piece, "rank": 0, "text": "forged\n"}],
               metrics=[{**piece, "text": '{"step": 9, "loss": 0}\n'}],
               events=[{**piece, "text": '{"type": "checkpoint", "rank": 0, "step": 5}\n'}])
    two.report([{**run_of(mine, "exited"), "proof": "0" * 64}], logs=[{**piece, "rank": 0, "text": "forged\n"}])
    assert two.call("PUT", f"/{two.node}/{run}/ucx-0?incarnation={two.incarnation}", None, data=b"QQ==")[0] == 403
    assert two.call("GET", f"/{two.node}/{run}?since=0&incarnation={two.incarnation}")[0] == 403
    assert one.call("PUT", f"/{one.node}/{run}/ucx-1?incarnation={one.incarnation}", None, data=b"QQ==")[0] == 403
    assert one.call("PUT", f"/{one.node}/{run}/ucx-0?incarnation={one.incarnation}", None, data=b"QQ==")[0] == 200
    assert many.job(job)["state"] == "starting"
    one.report([run_of(mine, "running")], logs=[{**piece, "rank": 0, "text": "honest\n"}])
    assert many.log_text(job) == "honest\n"
    assert not [e for e in many.events(job) if e["type"] == "checkpoint"]
    # What is left when the run is over is stored by its proof, also after the server's restart, and by nothing else.
    one.report([run_of(mine, "exited")])
    many.wait(job, "succeeded")
    many.kill_server()
    many.start_server()
    for agent in (one, two):
        agent.register()
    late = {**piece, "rank": 0, "offset": 7}
    two.report([run_of(mine, "exited")], logs=[{**late, "text": "forged\n"}])
    answer = one.report([run_of(mine, "exited")], logs=[{**late, "text": "forged\n"}])
    assert answer["acks"]["logs"][0]["offset"] == 14  # it is not sent for ever
    one.report([{**run_of(mine, "exited"), "proof": mine["proof"]}], logs=[{**late, "text": "last words\n"}])
    assert many.log_text(job) == "honest\nlast words\n"


def test_a_session_is_joined_by_its_ranks_node_alone(many):
    one, two, job, mine = give(many, two_nodes(many))
    one.report([run_of(mine, "running")])
    many.wait(job, "running")
    session = many.api("POST", f"/v1/jobs/{job}/exec", {"argv": ["id"], "env": {"PASSWORD": "hidden"}})["session"]
    user = many.api("POST", "/v1/tokens", {"user": "ann", "role": "admin"})["token"]
    for node, token, status in ((one.node, two.token, 403), (two.node, two.token, 404), (one.node, user, 403),
                                (one.node, "", 401), ("other", one.token, 403)):
        with pytest.raises(Refused) as refused:
            Session(many.port, f"/v1/agents/{node}/exec/{session}", token=token)
        assert refused.value.status == status, (node, status)
    its = Session(many.port, f"/v1/agents/{one.node}/exec/{session}", token=one.token)  # they took nothing from it
    kind, data = its.receive()
    assert kind == BINARY and data[0] == BEGIN and b"PASSWORD" in data
    its.close()
    many.action(job, "cancel")
    one.report([run_of(mine, "exited")])
    many.wait(job, "cancelled")


def test_a_code_is_traded_once_and_the_same_trade_is_answered_again(many):
    made = many.api("POST", "/v1/nodes/n9/enroll")
    assert made["node"] == "n9" and made["code"].startswith("mjc_") and made["expires_at"]
    assert join(many, made["code"], token_of("c")).status_code == 201
    assert join(many, made["code"], token_of("c")).status_code == 200  # the answer was lost
    many.kill_server()
    many.start_server()
    assert join(many, made["code"], token_of("c")).status_code == 200
    thief = join(many, made["code"], token_of("d"))
    assert thief.status_code == 401 and thief.json()["type"].endswith(":code-used")
    assert many.api("DELETE", "/v1/nodes/n9/enroll") == {"node": "n9", "token": True, "codes": 1}
    assert join(many, made["code"], token_of("c")).status_code == 401
    assert many.request("DELETE", "/v1/nodes/n9/enroll")[0] == 404


def test_of_many_who_trade_a_code_at_once_one_wins(many):
    code = many.api("POST", "/v1/nodes/n9/enroll")["code"]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda i: join(many, code, token_of(f"{i:x}")).status_code, range(16)))
    assert sorted(got)[:1] == [201] and set(got) <= {201, 401, 429} and got.count(201) == 1


def test_a_newer_code_takes_the_place_of_an_older_one_and_guesses_meet_a_bucket(many):
    old, new = (many.api("POST", "/v1/nodes/n9/enroll")["code"] for _ in range(2))
    assert join(many, old, token_of("e")).status_code in (401, 429)
    got = [join(many, f"mjc_{i:048x}", token_of("e")) for i in range(60)]
    assert got[-1].status_code == 429 and int(got[-1].headers["Retry-After"]) >= 1
    assert join(many, new, token_of("e")).status_code == 201  # whoever has one is not held up
    for body in ({}, {"code": new}, {"code": "mjc_1", "token": token_of("e")}, {"code": new, "token": "mst_weak"},
                 {"code": new, "token": [token_of("e")]}):
        answer = requests.post(f"{many.url}/v1/agents/join", json=body, timeout=PATIENCE_S)
        assert answer.status_code == 422, body
    for name in ("..", "a b", "n" * 64, "%2e%2e"):
        assert many.request("POST", f"/v1/nodes/{name}/enroll")[0] in (404, 422)


def test_only_an_admin_enrolls_and_forgets(many):
    token = many.api("POST", "/v1/tokens", {"user": "mallory"})["token"]
    for method in ("POST", "DELETE"):
        assert many.request(method, "/v1/nodes/n1/enroll", token=token)[0] == 403


def test_a_forgotten_node_hears_nothing_more(many):
    one, two = two_nodes(many)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.call, "GET", "/n1/assignments?version="
                              f"{one.assignments(wait=0) and 0 or one.version}&wait=30&incarnation=i1")
        assert many.api("DELETE", "/v1/nodes/n1/enroll")["token"]
        assert waiting.result(PATIENCE_S)[0] in (401, 404, 429)
    assert one.call("POST", "/n1/report", {"incarnation": "i1", "seq": 1, "runs": []})[0] in (401, 429)
    assert [n["state"] for n in many.nodes() if n["id"] == "n1"] == ["unknown"]
    two.report()


def agent_of(cluster, folder, *args):
    return [f"{BIN}/muster-agent", "--server", cluster.url, "--state", folder, "--devices", "cpu:1", "--memory", "none",
            "--stop-ranks-on-exit", *args]


def test_an_agent_joins_by_a_file_and_is_the_same_node_ever_after(many, tmp_path):
    state, code = str(tmp_path / "agent"), tmp_path / "code"
    made = subprocess.run([f"{BIN}/muster", "node", "enroll", "real"], capture_output=True, text=True, check=True,
                          timeout=PATIENCE_S, env=dict(os.environ, MUSTER_STATE=many.state)).stdout
    code.write_text(made)
    code.chmod(0o600)

    for i, args in enumerate((["--join-file", str(code)], ["--join-file", str(code)], [])):
        agent = many.spawn(f"agent-real-{i}", agent_of(many, state, *args))
        wait_for("the agent to register", lambda name=f"agent-real-{i}": "registered" in many.tail(name))
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE_S) == 0
    assert "real" in [n["id"] for n in many.nodes()]
    for name in ("token", "joined"):
        assert os.stat(f"{state}/{name}").st_mode & 0o777 == 0o600
    assert not os.path.exists(f"{state}/joining")
    with open(f"{state}/token", encoding="ascii") as f:
        assert f.read().strip() not in made
    # Another machine with the same code, or this one by another name, is refused and stays away.
    for folder, args, words in ((str(tmp_path / "other"), ["--join", made.strip()], "traded for a token already"),
                                (state, ["--node", "other"], "is of node 'real'"),
                                (str(tmp_path / "third"), [], "muster node enroll"),
                                (str(tmp_path / "third"), ["--join", "mjc_1"], "no join code")):
        done = subprocess.run(agent_of(many, folder, *args), capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        assert done.returncode in (1, 2, 3) and words in done.stderr, done.stderr


def test_an_agent_killed_while_it_joins_ends_the_trade_later(many, tmp_path):
    """The server has bound the token, and the agent died before it heard so."""
    state = tmp_path / "agent"
    state.mkdir(mode=0o700)
    code = many.api("POST", "/v1/nodes/late/enroll")["code"]
    first = subprocess.run(agent_of(many, str(state), "--join", code, "--node", "wrong"), capture_output=True,
                           text=True, timeout=PATIENCE_S, check=False)
    assert first.returncode == 2 and "is of node 'late'" in first.stderr  # it joined, and ended
    token = (state / "token").read_text()
    mark = (state / "joined").read_text().split()[1]
    (state / "joining").write_text(f"{mark} {token}")
    (state / "joining").chmod(0o600)
    (state / "joined").unlink()
    (state / "token").unlink()
    agent = many.spawn("agent-late", agent_of(many, str(state), "--join", code))
    wait_for("the node to be ready", lambda: [n for n in many.nodes() if n["id"] == "late" and n["state"] == "ready"])
    assert (state / "token").read_text() == token
    agent.send_signal(signal.SIGTERM)
    agent.wait(PATIENCE_S)


def test_the_shared_token_does_not_speak_for_an_enrolled_node(tmp_path):
    with Cluster(str(tmp_path), slots=0) as cluster:
        thief = FakeAgent(cluster, "n1")
        thief.register()
        Enrolled(cluster, "n1").call("POST", "/register", {"node": "n1", "incarnation": "i9", "slots": []})
        status, problem = thief.call("POST", "/n1/report", {"incarnation": "i1", "seq": 1, "runs": []})
        assert (status, problem["type"]) == (403, "urn:muster:problem:agent-enrolled")
    assert not cluster.leftovers()
