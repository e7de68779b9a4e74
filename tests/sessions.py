"""The client's end of a session, message by message: a WebSocket of the protocol muster.exec.v1 over a socket."""
import base64
import os
import socket
import struct

from tests.patience import PATIENCE_S

INPUT, OUTPUT, ERROR_OUTPUT, RESIZE, EXIT, SIGNAL, END, USED, BEGIN, WORDS = range(10)
WINDOW = 256 << 10
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10

# Sends back what it gets and, once that has ended, how much it was.
ECHO = """import os, socket, threading
def serve(c):
    n = 0
    while data := c.recv(65536):
        c.sendall(data)
        n += len(data)
    c.sendall(b"|%d" % n)
    c.close()
s = socket.create_server(("127.0.0.1", 0), backlog=64)
with open("port.new", "w") as f:
    f.write(str(s.getsockname()[1]))
os.rename("port.new", "port")
while True:
    threading.Thread(target=serve, args=s.accept()[:1], daemon=True).start()
"""


class Refused(AssertionError):
    """The server did not make it a WebSocket; `status` says how it answered."""

    def __init__(self, head):
        super().__init__(head)
        self.status = int(head.split(" ")[1])


class Session:
    """Opened by a POST of `body`, and joined with its ticket unless path says otherwise. What comes is kept in output;
    nothing is said to be used up unless `uses`."""

    def __init__(self, port, path, token=None, uses=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.pending, self.output, self.words, self.exit, self.uses = b"", b"", b"", None, uses
        head = [f"GET {path} HTTP/1.1", "Host: test", "Upgrade: websocket", "Connection: Upgrade",
                f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Protocol: muster.exec.v1"]
        if token:
            head.append(f"Authorization: Bearer {token}")
        self.socket.sendall("\r\n".join(head + ["", ""]).encode())
        while b"\r\n\r\n" not in self.pending:
            got = self.socket.recv(65536)
            assert got, "the server hung up"
            self.pending += got
        answer, self.pending = self.pending.split(b"\r\n\r\n", 1)
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise Refused(answer.decode())

    def frame(self, kind, data):
        mask = os.urandom(4)
        if len(data) < 126:
            head = struct.pack(">BB", 0x80 | kind, 0x80 | len(data))
        else:
            head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, len(data))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def send(self, kind, data=b""):
        self.frame(BINARY, bytes([kind]) + data)

    def take(self, n):
        while len(self.pending) < n:
            got = self.socket.recv(65536)
            if not got:
                raise EOFError("the server hung up")
            self.pending += got
        data, self.pending = self.pending[:n], self.pending[n:]
        return data

    def receive(self):
        """The next frame, its kind and bytes."""
        kind, size = self.take(2)
        if size == 126:
            size, = struct.unpack(">H", self.take(2))
        elif size == 127:
            size, = struct.unpack(">Q", self.take(8))
        return kind & 0x7f, self.take(size)

    def one(self):
        """Take in one frame. The code and text of a close, else None."""
        kind, data = self.receive()
        if kind == CLOSE:
            self.frame(CLOSE, data[:2])
            return struct.unpack(">H", data[:2])[0], data[2:].decode()
        if kind == PING:
            self.frame(PONG, data)
        elif data[0] in (OUTPUT, ERROR_OUTPUT):
            self.output += data[1:]
            if self.uses:
                self.send(USED, struct.pack(">I", len(data) - 1))
        elif data[0] == EXIT:
            self.exit = struct.unpack(">iI", data[1:])
        elif data[0] == WORDS:
            self.words += data[1:]
        return None

    def until(self, check):
        while not check():
            closed = self.one()
            assert not closed, f"closed: {closed}, {self.output[-200:]} {self.words}"

    def closed(self):
        """To the end: the code and text of the close."""
        while True:
            closed = self.one()
            if closed:
                return closed

    def close(self):
        self.socket.close()


def open_session(cluster, job, argv, uses=True, token=None, **more):
    """Open a session of a cluster (tests/cluster.py) and join it."""
    ticket = cluster.api("POST", f"/v1/jobs/{job}/exec", {"argv": argv, **more}, token=token)
    return Session(cluster.port, ticket["url"], uses=uses)
