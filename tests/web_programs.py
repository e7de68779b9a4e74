"""What stands in for Jupyter and TensorBoard: an HTTP server that takes their options and asks for their token."""
import os
import sys

STANDS_IN = """#!/usr/bin/env python3
import http.server, os, sys
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
token = os.environ.get("JUPYTER_TOKEN")
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        good = not token or self.path.endswith("?token=" + token)
        text = " ".join(sys.argv[1:]).encode()
        self.send_response(200 if good else 403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
at = options.get("host") or options["ip"], int(options["port"])
http.server.ThreadingHTTPServer(at, Page).serve_forever()
"""


def make_programs(folder, *names):
    """A folder for PATH with a python3 and these."""
    os.makedirs(folder)
    os.symlink(sys.executable, os.path.join(folder, "python3"))
    for name in names:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(STANDS_IN)
        os.chmod(path, 0o755)
