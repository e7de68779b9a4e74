"""What a test does to the server's store behind its back: commands to a Redis, by its socket or port."""
import os
import socket


class Store:
    """store("GET", "key"): the reply; bytes, int, list or None. An error reply is raised."""

    def __init__(self, where):
        if isinstance(where, int):
            self.socket = socket.create_connection(("127.0.0.1", where), timeout=30)
        else:
            folder = os.open(where, os.O_PATH | os.O_DIRECTORY)  # the path of a socket is short
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(30)
            self.socket.connect(f"/proc/self/fd/{folder}/redis.sock")
            os.close(folder)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def __call__(self, *args):
        parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in (b"+", b""):
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if int(rest) < 0:
            return None
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2]
        return [self.reply() for _ in range(int(rest))]


def store_of(cluster):
    """The private Redis of a cluster."""
    return Store(f"{cluster.state}/redis")
