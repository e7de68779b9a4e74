"""A server that has had too many requests: the command line waits as long as it is told to, and says so."""
import contextlib
import http.server
import json
import os
import subprocess
import threading

import pytest

from tests.cluster import BIN
from tests.patience import PATIENCE_S


@contextlib.contextmanager
def busy(refusals, after, kind="too-many-requests"):
    """A server that refuses so many requests first. Gives its address and the list of those that it had."""
    had = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            had.append((self.path, self.rfile.read(int(self.headers["Content-Length"])),
                        self.headers["Idempotency-Key"]))
            status, answer = 200, {"id": "abc"}
            if len(had) <= refusals:
                status, answer = 429, {"type": f"urn:muster:problem:{kind}", "title": "Too many", "status": 429}
            text = json.dumps(answer).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", str(after))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", had
        server.shutdown()


def drain(url, tmp_path):
    """A command whose call has no Idempotency-Key."""
    return subprocess.run([f"{BIN}/muster", "drain", "n1", "--server", url], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False,
                          env=dict(os.environ, MUSTER_STATE=str(tmp_path), MUSTER_TOKEN="t"))


def test_a_call_that_came_too_soon_is_made_again_when_the_server_said(tmp_path):
    with busy(1, 1) as (url, had):
        done = drain(url, tmp_path)
    assert done.returncode == 0 and len(had) == 2 and had[0] == had[1] and had[0][2] is None
    assert "the server has had too many requests; trying again in 1 s" in done.stderr


@pytest.mark.parametrize("after, kind", [(31, "too-many-requests"), (86400, "too-many-requests"),
                                         (0, "too-many-requests"), (-5, "too-many-requests"), (1, "too-many-bytes")])
def test_a_wait_that_is_too_long_or_changes_nothing_is_not_waited_for(tmp_path, after, kind):
    with busy(100, after, kind) as (url, had):
        done = drain(url, tmp_path)
    assert done.returncode == 4 and len(had) == 1 and "trying again" not in done.stderr and "Too many" in done.stderr
