"""What a session beside a rank carries: bytes both ways, and how long a keystroke's echo takes.

    python3 tests/bench/exec.py [--quick]

Prints one JSON object a line. The same bytes go through a `cat` behind a plain TCP connection of the loopback in turns
with one behind `muster exec`, in the same run; their SHA-256 is compared.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pty
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tty

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests import specs  # noqa: E402 pylint: disable=wrong-import-position
from tests.cluster import BIN, Cluster  # noqa: E402 pylint: disable=wrong-import-position

PIECE = hashlib.shake_256(b"exec").digest(1 << 20)


def both_ways(pieces, to, back):
    """Seconds in which so many pieces went there and came back whole."""
    def send():
        for i in range(pieces):
            to.write(i.to_bytes(4, "big") + PIECE[4:])
        to.close()
    sent, got = hashlib.sha256(), hashlib.sha256()
    for i in range(pieces):
        sent.update(i.to_bytes(4, "big") + PIECE[4:])
    begin = time.perf_counter()
    writer = threading.Thread(target=send)
    writer.start()
    while data := back.read1(1 << 20):
        got.update(data)
    writer.join()
    took = time.perf_counter() - begin
    assert got.digest() == sent.digest(), "what came back is not what was sent"
    return took


def plain(pieces):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with there, subprocess.Popen(["cat"], stdin=there, stdout=there) as cat:
            there.close()

            class Out:
                write = staticmethod(client.sendall)

                @staticmethod
                def close():
                    client.shutdown(socket.SHUT_WR)
            with client, client.makefile("rb") as back:
                took = both_ways(pieces, Out, back)
            cat.wait()
    return took


def through_exec(cluster, job, pieces):
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "-i", "--", "cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env=cluster.cli_env()) as cli:
        took = both_ways(pieces, cli.stdin, cli.stdout)
        assert cli.wait() == 0
    return took


@contextlib.contextmanager
def terminal(cluster, job):
    """Both ends of a terminal, the far one a program that reads nothing: what is typed is echoed by its terminal."""
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "sh", "-c", "echo ready; exec sleep 3600"], stdin=theirs,
                          stdout=theirs, stderr=theirs, env=cluster.cli_env(), start_new_session=True) as cli:
        seen = b""
        while b"ready\r\n" not in seen:
            seen += os.read(ours, 4096)
        yield ours
        os.write(ours, b"\x03")
        cli.wait()
    os.close(ours)
    os.close(theirs)


def echoes(fd, n):
    for i in range(n):
        key = bytes([ord("a") + i % 26])
        begin = time.perf_counter()
        os.write(fd, key)
        got = os.read(fd, 16)
        yield time.perf_counter() - begin
        assert got == key, got


def tell(what, **more):
    print(json.dumps({"what": what, **more}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="64 MiB and 100 keystrokes instead of 1 GiB and 1000")
    pieces, turns, keys = (64, 1, 100) if parser.parse_args().quick else (1024, 3, 1000)
    with tempfile.TemporaryDirectory() as folder, Cluster(folder, slots=1) as cluster:
        job = cluster.submit(specs.command("exec sleep 100000"))["id"]
        cluster.wait(job, ["running"])
        took = {"a plain connection": [], "muster exec": []}
        for _ in range(turns):
            took["a plain connection"].append(plain(pieces))
            took["muster exec"].append(through_exec(cluster, job, pieces))
        for what, seconds in took.items():
            tell(f"{pieces} MiB both ways, {what}", mib_per_s=[round(pieces / s) for s in seconds],
                 load=os.getloadavg()[0])
        with terminal(cluster, job) as fd:
            all_of_them = sorted(1e3 * s for s in echoes(fd, keys))
        tell("a keystroke's echo", unit="ms", n=keys, p50=round(statistics.median(all_of_them), 2),
             p99=round(all_of_them[int(0.99 * (keys - 1))], 2), load=os.getloadavg()[0])
        cluster.action(job, "cancel")


if __name__ == "__main__":
    main()
