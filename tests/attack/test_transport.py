"""What goes over the wire: TLS and its certificates, heads of requests that mean two things, tokens in the clear."""
import os
import signal
import socket
import ssl
import subprocess

import pytest

from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S


def certificate(folder, name):
    """A certificate of its own and its key."""
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True,
                   capture_output=True, timeout=PATIENCE_S)
    os.chmod(key, 0o600)
    return cert, key


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tls"))
    cert, key = certificate(folder, "first")
    os.environ["REQUESTS_CA_BUNDLE"] = cert
    cluster = Cluster(os.path.join(folder, "cluster"), slots=0, server_args=["--tls-cert", cert, "--tls-key", key])
    cluster.url = cluster.url.replace("http://", "https://")
    with cluster as c:
        c.folder_of_certificate = folder
        yield c
    del os.environ["REQUESTS_CA_BUNDLE"]
    assert not cluster.leftovers()


def s_client(cluster, *args):
    """What openssl says of a connection."""
    return subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{cluster.port}", *args], input="",
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("args", [
    ["-tls1"], ["-tls1_1"], ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256"],
    ["-tls1_2", "-cipher", "ECDHE-RSA-AES256-SHA"], ["-tls1_2", "-cipher", "AES128-SHA"],
    ["-tls1_2", "-cipher", "AES128-GCM-SHA256"]])
def test_old_versions_of_tls_and_ciphers_without_aead_are_refused(tls, args):
    told = s_client(tls, *args, "-cipher" if "-cipher" not in args else "-no_ticket",
                    *([] if "-cipher" in args else ["DEFAULT@SECLEVEL=0"]))
    assert told.returncode != 0 or "Cipher is (NONE)" in told.stdout, told.stdout


@pytest.mark.parametrize("args", [["-tls1_3"], ["-tls1_2", "-cipher", "ECDHE-RSA-AES256-GCM-SHA384"],
                                  ["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"]])
def test_versions_and_ciphers_of_today_are_taken(tls, args):
    told = s_client(tls, *args)
    assert told.returncode == 0 and "Cipher is (NONE)" not in told.stdout, told.stdout + told.stderr


def test_https_says_that_it_is_to_be_used_from_now_on(tls):
    answer = tls.session.get(f"{tls.url}/healthz", timeout=PATIENCE_S)
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


def subject(cluster):
    text = s_client(cluster, "-showcerts").stdout
    return next((line for line in text.splitlines() if line.startswith("subject=")), "")


def test_a_certificate_is_read_anew_on_sighup_and_a_bad_one_changes_nothing(tls):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", tls.port), PATIENCE_S) as plain, context.wrap_socket(plain) as old:
        assert "first" in subject(tls)
        cert, key = certificate(tls.folder_of_certificate, "second")
        tls.server.send_signal(signal.SIGHUP)
        wait_for("the new certificate", lambda: "second" in subject(tls))
        old.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")  # whoever is connected goes on
        assert b"200" in old.recv(4096)
        for path, text in ((cert, "rubbish"), (key, "rubbish"), (key, None)):
            with open(path, encoding="ascii") as f:
                before = f.read()
            if text is None:  # the key of another
                text = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True,
                                      timeout=PATIENCE_S).stdout
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
            said = tls.tail("musterd").count("the certificate stays as it was")
            tls.server.send_signal(signal.SIGHUP)
            wait_for("the server to say so",
                     lambda said=said: tls.tail("musterd").count("the certificate stays as it was") > said)
            assert "second" in subject(tls)
            with open(path, "w", encoding="ascii") as f:
                f.write(before)


@pytest.mark.parametrize("head", [
    b"Content-Length: 2\r\nContent-Length: 3\r\n", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    b"X: a\nY: b\r\n", b"X: a\0b\r\n"])
def test_a_head_that_means_two_things_is_refused_over_tls_too(tls, head):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", tls.port), PATIENCE_S) as plain, context.wrap_socket(plain) as s:
        s.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tls.token().encode() + b"\r\n" +
                  head + b"\r\n{}GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1, answer


@pytest.mark.parametrize("server, token, warned", [
    ("http://192.0.2.1:1", "t", True), ("http://127.0.0.1:1", "t", False), ("http://[::1]:1", "t", False),
    ("http://localhost:1", "t", False), ("https://192.0.2.1:1", "t", False), ("http://192.0.2.1:1", "", False),
    ("http://127.0.0.1:1,http://192.0.2.1:1", "t", True), ("http://127.0.0.1.example.invalid:1", "t", True)])
def test_the_command_line_warns_before_a_token_goes_out_in_the_clear(tmp_path, server, token, warned):
    env = dict(os.environ, MUSTER_STATE=str(tmp_path), MUSTER_TOKEN=token, http_proxy="http://127.0.0.1:9",
               https_proxy="http://127.0.0.1:9", no_proxy="")
    done = subprocess.run([f"{BIN}/muster", "token", "revoke", "abc", "--server", server], capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False, env=env)
    assert ("in the clear" in done.stderr) == warned, done.stderr
