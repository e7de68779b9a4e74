"""The REST client of the Python package, muster.client and muster.aio, against a real server; in between, where a test
says so, a real proxy that loses, delays and cuts."""
import asyncio
import inspect
import socket
import subprocess
import sys
import threading

import pytest

from tests import specs
from tests.cluster import ROOT, Cluster, wait_for
from tests.patience import PATIENCE_S

sys.path.insert(0, f"{ROOT}/api/python")
from muster import _http, _routes, aio  # noqa: E402  pylint: disable=wrong-import-position
from muster.client import ApiError, Client, NotFound, Unreachable  # noqa: E402  pylint: disable=wrong-import-position


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("client")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture
def client(cluster):
    return Client(cluster.url, cluster.token())


class Proxy:
    """Passes connections on to a server, each as `plan` says for it: "pass", "drop" (after the request went through,
    before any answer), a number of bytes of the answer after which it is cut, or an answer to be given instead."""

    def __init__(self, port):
        self.port_behind, self.plan, self.seen = port, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                front, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(front, self.plan.pop(0) if self.plan else "pass"),
                             daemon=True).start()

    def one(self, front, plan):
        with front, socket.create_connection(("127.0.0.1", self.port_behind)) as back:
            request = front.recv(65536)
            while b"\r\n\r\n" not in request or len(request.split(b"\r\n\r\n", 1)[1]) < length_of(request):
                request += front.recv(65536)
            self.seen.append(request.decode())
            if isinstance(plan, bytes):
                front.sendall(plan)
                return
            back.sendall(request)
            left = plan if isinstance(plan, int) else None
            while data := back.recv(65536 if left is None else max(1, left)):
                if plan == "drop":
                    return
                front.sendall(data)
                left = None if left is None else left - len(data)
                if left is not None and left <= 0:
                    return


def length_of(request):
    for line in request.split(b"\r\n\r\n", 1)[0].split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


@pytest.fixture
def proxy(cluster):
    made = Proxy(cluster.port)
    yield made
    made.listener.close()


def test_the_methods_are_those_of_the_routes(tmp_path):
    subprocess.run([sys.executable, f"{ROOT}/api/python_client.py", f"{ROOT}/api/openapi.yaml", str(tmp_path)],
                   check=True)
    for name in "_routes.py", "types.py", "spec_types.py", "node_types.py":
        with open(f"{ROOT}/api/python/muster/{name}", encoding="utf-8") as f:
            assert f.read() == (tmp_path / name).read_text(encoding="utf-8"), f"{name}: run `make openapi`"


def test_a_job_is_submitted_awaited_and_read(client):
    job = client.submit({**specs.command("echo one; echo two", devices=2), "name": "read"})
    assert job.wait(PATIENCE_S)["state"] == "succeeded"
    assert sorted((p["rank"], p["text"]) for p in job.logs()) == [(0, "one\ntwo\n"), (1, "one\ntwo\n")]
    assert "".join(p["text"] for p in job.logs(rank=1, follow=True)) == "one\ntwo\n"
    assert [e["to"] for e in job.events() if e["type"] == "state"][-1] == "succeeded"
    assert job.id in [j["id"] for j in client.jobs(name="read")]
    assert [e["id"] for e in job.events()] == [e["id"] for e in client.list_job_events(job.id)["events"]]


@pytest.mark.parametrize("refused", [False, True])
def test_who_waits_for_a_job_follows_its_events_and_asks_again_where_these_are_refused(cluster, proxy, tmp_path,
                                                                                       monkeypatch, refused):
    monkeypatch.setattr("muster.client.SIGN_S", 0.5)
    monkeypatch.setattr("muster.client.POLL_S", 0.05)
    job = Client(cluster.url, cluster.token()).submit(
        specs.command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"))
    waiting = Client(proxy.url, cluster.token()).job(job.id)
    busy = (b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\nContent-Length: 2\r\n"
            b"Connection: close\r\n\r\n{}")
    proxy.plan = ["pass", busy, "pass", busy] if refused else []
    ended = []
    thread = threading.Thread(target=lambda: ended.append(waiting.wait()), daemon=True)
    thread.start()
    follows = wait_for("its stream", lambda: [r for r in proxy.seen if "text/event-stream" in r][1 if refused else 0:])
    assert "/events" in follows[0]
    (tmp_path / "go").write_text("")
    thread.join(PATIENCE_S)
    assert ended and ended[0]["state"] == "succeeded"
    if not refused:  # the job, its stream and the job again, however long it took
        assert ["/events" in r for r in proxy.seen] == [False, True, False]


def test_jobs_are_listed_page_after_page(client):
    made = {client.submit({**specs.command("true"), "labels": {"of": "pages"}}).id for _ in range(5)}
    assert {j["id"] for j in client.jobs(label="of=pages", limit=2)} == made


def test_a_job_is_acted_on(client, cluster):
    job = client.submit(specs.command("trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    wait_for("it to run", lambda: job.get()["state"] == "running")
    job.suspend()
    wait_for("it to be suspended", lambda: job.get()["state"] == "suspended")
    assert job.priority(80)["priority"] == 80
    assert job.explain()
    job.resume()
    with pytest.raises(TimeoutError):
        job.wait(0.01)
    job.cancel()
    assert cluster.wait(job.id, "cancelled")


@pytest.mark.parametrize("name", [n for n, _ in inspect.getmembers(_routes.Routes, inspect.isfunction)
                                  if n.startswith(("list_", "get_", "read_", "explain_", "health", "ready", "metrics",
                                                   "diagnose_"))])
def test_each_route_that_reads_answers_or_refuses_in_words(client, name):
    call = getattr(client, name)
    arguments = [{"int": 1}.get(p.annotation, "j1") for p in inspect.signature(call).parameters.values()
                 if p.kind is p.POSITIONAL_OR_KEYWORD]
    try:
        assert call(*arguments) is not None
    except ApiError as e:
        assert 400 <= e.status < 500 and len(str(e)) > 10, e


def test_what_is_refused_says_why(client):
    with pytest.raises(ApiError) as refused:
        client.submit({"command": "true", "devices": {"min": 0}, "frobnicate": 1})
    assert refused.value.status == 422 and "/devices/min: " in str(refused.value)
    assert "/frobnicate: " in str(refused.value)
    with pytest.raises(NotFound):
        client.get_job("j999999")
    with pytest.raises(ApiError) as refused:
        Client(client._transport.urls[0], "wrong").list_jobs()
    assert refused.value.status == 401
    with pytest.raises(ValueError):
        Client("ftp://host").list_jobs()


def test_a_server_that_is_away_is_said_to_be(monkeypatch):
    monkeypatch.setattr(_http, "WAIT_S", (0.01, 0.01))
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with pytest.raises(Unreachable) as away:
        Client(f"http://127.0.0.1:{port}").list_jobs()
    assert str(port) in str(away.value)
    monkeypatch.setenv("MUSTER_STATE", "/nonexistent")
    monkeypatch.delenv("MUSTER_SERVER", raising=False)
    with pytest.raises(Unreachable, match="muster up"):
        Client()


def test_a_submit_whose_answers_are_lost_makes_one_job(cluster, proxy):
    proxy.plan = ["drop", 10, b"HTTP/1.1 503 x\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n", "pass"]
    before = len(cluster.list_jobs())
    job = Client(proxy.url, cluster.token()).submit(specs.command("true"))
    assert len(cluster.list_jobs()) == before + 1 and len(proxy.seen) == 4
    assert len({line for r in proxy.seen for line in r.split("\r\n") if line.startswith("Idempotency-Key")}) == 1
    assert job.wait(PATIENCE_S)["state"] == "succeeded"


def test_a_token_whose_answer_is_lost_is_not_made_again(cluster, proxy):
    proxy.plan = ["drop"]
    with pytest.raises(Unreachable, match="may have been done"):
        Client(proxy.url, cluster.token()).create_token({"user": "eve"})
    assert len(proxy.seen) == 1


def test_who_comes_too_often_waits_as_told(cluster, proxy):
    proxy.plan = [b"HTTP/1.1 429 x\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n"] * 2
    assert Client(proxy.url, cluster.token()).list_jobs()["jobs"] is not None and len(proxy.seen) == 3
    proxy.plan = [b"HTTP/1.1 429 x\r\nContent-Length: 0\r\nRetry-After: 86400\r\n\r\n"]
    with pytest.raises(ApiError) as busy:
        Client(proxy.url, cluster.token()).list_jobs()
    assert busy.value.status == 429


def test_a_server_that_stands_by_is_passed_over_and_gets_nothing_twice(cluster, proxy):
    proxy.plan = [b"HTTP/1.1 307 x\r\nLocation: http://elsewhere:1/\r\nContent-Length: 0\r\n\r\n"]
    client = Client(f"{proxy.url},{cluster.url}", cluster.token())
    before = len(cluster.list_jobs())
    client.submit(specs.command("true"))
    client.submit(specs.command("true"))  # the one that answered last comes first
    assert len(cluster.list_jobs()) == before + 2 and len(proxy.seen) == 1


@pytest.mark.parametrize("cut", [300, 700, 1100, 1700])
def test_a_stream_that_is_cut_goes_on_without_loss_or_repetition(cluster, proxy, client, cut):
    job = client.submit(specs.command("echo x"))
    job.wait(PATIENCE_S)
    want = [e["id"] for e in client.list_job_events(job.id)["events"]]
    proxy.plan = [cut, "drop", cut, cut]
    assert [e["id"] for e in Client(proxy.url, cluster.token()).events(job.id)] == want
    assert any("Last-Event-ID" in r for r in proxy.seen) or cut < 1700  # nothing whole came before the cut


def test_output_is_whole_though_its_stream_is_cut(cluster, proxy):
    job = Client(cluster.url, cluster.token()).submit(
        specs.command("i=0; while [ $i -lt 40 ]; do echo line $i ü; i=$((i+1)); sleep 0.02; done"))
    proxy.plan = ["pass", 600, "drop", 900, 900]
    said = "".join(p["text"] for p in Client(proxy.url, cluster.token()).job(job.id).logs(follow=True))
    assert said == "".join(f"line {i} ü\n" for i in range(40))


def test_the_client_for_asyncio_does_the_same(cluster):
    async def both():
        client = aio.Client(cluster.url, cluster.token())
        jobs = await asyncio.gather(*(client.submit(specs.command(f"echo {i}")) for i in range(3)))
        ended = await asyncio.wait_for(asyncio.gather(*map(client.wait, jobs)), PATIENCE_S)
        said = ["".join([p["text"] async for p in client.logs(job)]) for job in jobs]
        first = None
        async for event in client.events(jobs[0]):  # left in the middle
            first = event
            break
        with pytest.raises(NotFound):
            await client.get_job("j999999")
        return [j["state"] for j in ended], said, first
    states, said, first = asyncio.run(both())
    assert states == ["succeeded"] * 3 and said == ["0\n", "1\n", "2\n"] and first["type"] == "submitted"


def test_importing_the_package_imports_no_client():
    script = (f"import sys; sys.path.insert(0, '{ROOT}/api/python'); import muster; "
              "print([m for m in ('http', 'ssl', 'asyncio', 'urllib') if m in sys.modules])")
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
