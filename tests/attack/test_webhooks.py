"""What receivers of notices can do to a server, and what users could make it call: over real sockets.

Receivers listen on 127.0.0.2, which this server may call; 127.0.0.1, where the server itself listens, is closed to it.
"""
import base64
import hashlib
import hmac
import http.server
import json
import socket
import threading
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.patience import PATIENCE_S

OPEN, CLOSED = "127.0.0.2", "127.0.0.1"


class Receiver(http.server.ThreadingHTTPServer):
    """Takes what comes, and answers by the path: /ok, /moved?URL, /silent, /huge."""
    daemon_threads = True

    def __init__(self, address):
        self.got, self.hung, self.written = [], threading.Event(), 0
        super().__init__((address, 0), Handler)
        self.url = f"http://{address}:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def paths(self, path):
        return [one for one in self.got if one["path"].startswith(path)]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append({"path": self.path, "headers": dict(self.headers), "body": body})
        if self.path.startswith("/silent"):
            self.server.hung.wait(PATIENCE_S)
            return
        if self.path.startswith("/moved"):
            self.send_response(307)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path.startswith("/huge"):
            try:
                for _ in range(160):
                    self.wfile.write(b"x" * 65536)
                    self.server.written += 65536
            except OSError:
                pass

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


@pytest.fixture(name="receiver", scope="module")
def receiver_fixture():
    server = Receiver(OPEN)
    yield server
    server.hung.set()
    server.shutdown()


class Relay:
    """As much of a mail relay as a client asks for."""

    def __init__(self):
        self.socket = socket.create_server((CLOSED, 0))
        self.port = self.socket.getsockname()[1]
        self.mails = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as f:
                self.talk(f)

    def talk(self, f):
        def say(text):
            f.write(text + b"\r\n")
            f.flush()
        say(b"220 here")
        mail, inside = b"", False
        for line in f:
            if inside and line == b".\r\n":
                self.mails.append(mail)
                inside = False
                say(b"250 taken")
            elif inside:
                mail += line
            elif line.startswith(b"DATA"):
                inside = True
                say(b"354 go on")
            else:
                mail += line
                say(b"250 well")


@pytest.fixture(name="relay", scope="module")
def relay_fixture():
    relay = Relay()
    yield relay
    relay.socket.close()


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(tmp_path_factory, relay):
    with Cluster(str(tmp_path_factory.mktemp("webhooks")), slots=0, server_args=[
            "--webhook-http", "--webhook-allow", f"{OPEN}/32", "--mail-relay", f"smtp://{CLOSED}:{relay.port}",
            "--mail-from", "muster@example.org"]) as c:
        yield c
    assert not c.leftovers()


def add(cluster, name, url, **more):
    return cluster.api("POST", "/v1/webhooks", {"name": name, "url": url, **more})


def tried(cluster, name):
    """A test of a webhook, once it was tried."""
    sent = cluster.api("POST", f"/v1/webhooks/{name}/test")["id"]

    def done():
        return next((d for d in cluster.api("GET", f"/v1/webhooks/{name}/deliveries")["deliveries"]
                     if d["id"] == sent and d["tries"]), None)
    return wait_for(f"a try of {name}", done)


def test_the_end_of_a_job_arrives_signed(cluster, receiver):
    secret = add(cluster, "jobs", f"{receiver.url}/jobs")["secret"]
    spec = specs.command("true")
    spec["notify"] = {"webhook": "jobs", "on": ["cancelled"]}
    job = cluster.submit(spec)["id"]
    cluster.action(job, "cancel")
    got = wait_for("the notice", lambda: receiver.paths("/jobs"))[0]
    head = {name.lower(): value for name, value in got["headers"].items()}
    told = json.loads(got["body"])
    assert (told["type"], told["data"]["job"]) == ("job.cancelled", job)
    mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")),
                   f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + got["body"], hashlib.sha256)
    assert head["webhook-signature"] == "v1," + base64.b64encode(mac.digest()).decode()
    assert abs(int(head["webhook-timestamp"]) - time.time()) < PATIENCE_S


def test_a_redirect_to_this_host_is_not_followed(cluster, receiver):
    inner = Receiver(CLOSED)
    add(cluster, "moved", f"{receiver.url}/moved?{inner.url}/inside")
    delivery = tried(cluster, "moved")
    assert (delivery["state"], delivery["status"]) == ("waiting", 307)
    assert not inner.got
    inner.shutdown()


def test_no_name_of_this_host_is_called(cluster):
    """A name is looked at as the address that it is resolved to, when the connection is made."""
    inner = Receiver(CLOSED)
    for i, host in enumerate(["localhost", "LOCALHOST.", CLOSED, "127.1", "0x7f.1", "2130706433", "0", "[::1]",
                              "[::ffff:127.0.0.1]"]):
        add(cluster, f"inner-{i}", f"http://{host}:{inner.server_port}/")
        delivery = tried(cluster, f"inner-{i}")
        assert delivery["status"] is None and not inner.got, (host, delivery)
        assert "not of the public Internet" in delivery["why"] or "resolve" in delivery["why"], (host, delivery)
    inner.shutdown()


def test_an_answer_of_10_mb_is_cut_and_counts_as_what_its_status_says(cluster, receiver):
    add(cluster, "huge", f"{receiver.url}/huge")
    delivery = tried(cluster, "huge")
    assert (delivery["state"], delivery["status"]) == ("delivered", 200)
    assert receiver.written < 10 << 20


def test_a_receiver_that_never_answers_holds_up_nobody_and_hears_again_after_a_kill(cluster, receiver):
    add(cluster, "silent", f"{receiver.url}/silent")
    add(cluster, "beside", f"{receiver.url}/beside")
    for _ in range(8):
        cluster.api("POST", "/v1/webhooks/silent/test")
    wait_for("calls that hang", lambda: len(receiver.paths("/silent")) == 4)
    assert tried(cluster, "beside")["state"] == "delivered"
    before = {one["headers"]["webhook-id"] for one in receiver.paths("/silent")}
    cluster.kill_server()
    cluster.start_server()
    wait_for("the same ones again", lambda: len(receiver.paths("/silent")) == 8)
    assert {one["headers"]["webhook-id"] for one in receiver.paths("/silent")} == before
    assert cluster.api("GET", "/v1/webhooks/silent")["waiting"] == 8
    cluster.api("DELETE", "/v1/webhooks/silent")


def test_mail_goes_through_the_relay(cluster, relay):
    add(cluster, "mail", "mailto:ann@example.org", format="email")
    delivery = tried(cluster, "mail")
    assert (delivery["state"], delivery["status"]) == ("delivered", 250)
    mail = relay.mails[0].decode()
    assert "RCPT TO:<ann@example.org>" in mail and "Subject: [muster] webhook.test" in mail
    assert f"Message-ID: <{delivery['id']}@muster>" in mail


def test_the_commands_make_test_and_show_a_webhook(cluster, receiver):
    made = cluster.muster("webhook", "add", "cli", f"{receiver.url}/cli", "--on", "job.failed,job.hung",
                          check=True).stdout
    assert "whsec_" in made and "job.failed, job.hung" in made
    assert "answered 200" in cluster.muster("webhook", "test", "cli", check=True).stdout
    assert "delivered" in cluster.muster("webhook", "deliveries", "cli", check=True).stdout
    assert "cli" in cluster.muster("webhook", "list", check=True).stdout
    cluster.muster("webhook", "disable", "cli", check=True)
    assert "off" in cluster.muster("webhook", "show", "cli", check=True).stdout
    refused = cluster.muster("webhook", "test", "cli")
    assert refused.returncode != 0 and "switched off" in refused.stderr
    cluster.muster("webhook", "enable", "cli", check=True)
    cluster.muster("webhook", "delete", "cli", check=True)
    assert cluster.muster("webhook", "show", "cli").returncode == 3
