"""A web program as a job: `python3 -m muster.serve notebook --idle 1800`, which `muster notebook` submits.

The program listens on a port of 127.0.0.1 that is free. Where to reach it is in serve.json of the run's folder, for the
job's user alone, once it answers. It is ended when nobody has had a connection to the port open for --idle seconds.
`python3 -m muster.serve where`, in a session beside the rank, waits for that file and prints it.
"""
from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from types import FrameType
from typing import Dict, List, NamedTuple, Optional, Sequence
from urllib.parse import quote

LOOK_S = 5.0  # at the connections
READY_S = 120.0  # for the program to answer
END_S = 10.0  # for it to end
NAME = "serve.json"
ESTABLISHED = "01"


class Program(NamedTuple):
    """What is started: words with {port}, variables with {token}, and what a browser asks for."""

    names: Sequence[str]
    package: str
    words: Sequence[str]
    env: Dict[str, str]
    path: str


PROGRAMS = {
    "notebook": Program(("jupyter-lab", "jupyter-notebook"),
                        "Jupyter: Debian's package jupyter-notebook, or jupyterlab of pip",
                        ("--no-browser", "--ip=127.0.0.1", "--port={port}", "--port-retries=0"),
                        {"JUPYTER_TOKEN": "{token}"}, "/?token={token}"),
    "tensorboard": Program(("tensorboard",), "TensorBoard: tensorboard of pip",
                           ("--host=127.0.0.1", "--port={port}"), {}, "/"),
}


def free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def connections(port: int, proc: str = "/proc") -> int:
    """How many to this port of the node are open."""
    n = 0
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"{proc}/self/net/{name}", encoding="ascii") as f:
            for line in f:
                words = line.split()
                n += len(words) > 3 and words[3] == ESTABLISHED and words[1].endswith(f":{port:04X}")
    return n


def command(name: str, port: int, token: str, folders: Sequence[str]) -> List[str]:
    """The program's command line; it ends this one where there is none on the node."""
    program = PROGRAMS[name]
    found: Optional[str] = next(filter(None, map(shutil.which, program.names)), None)
    if not found:
        sys.exit(f"muster: this node has no {program.package}; none of {', '.join(program.names)} is in PATH")
    words: List[str] = [found, *(word.format(port=port) for word in program.words)]
    if name == "notebook" and os.geteuid() == 0:
        words.append("--allow-root")
    if folders:
        words.append("--logdir_spec=" + ",".join(folders))
    return words


def page_of(program: str, file: str) -> str:
    """Where a file of this folder, which is Jupyter's, is opened."""
    path = os.path.normpath(file)
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        sys.exit(f"muster: {file} is not below {os.getcwd()}, the folder that Jupyter shows")
    if not os.path.isfile(path):
        sys.exit(f"muster: this node does not see the file {os.path.abspath(path)}")
    return ("/lab/tree/" if os.path.basename(program) == "jupyter-lab" else "/notebooks/") + quote(path)


def publish(port: int, path: str) -> None:
    name = os.path.join(os.environ["MUSTER_RUN_DIR"], NAME)
    with open(os.open(name + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
        json.dump({"port": port, "path": path}, f)
    os.rename(name + ".new", name)


def await_answer(child: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and child.poll() is None:
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
            return True
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
    return False


def end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def watch(child: subprocess.Popen[bytes], port: int, idle: float) -> int:
    """Until it ends, or nobody has been there for so long. Returns an exit status."""
    last = time.monotonic()
    while child.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(min(LOOK_S, idle / 4))
        if connections(port):
            last = time.monotonic()
        elif child.poll() is None and time.monotonic() - last >= idle:
            print(f"muster: nobody has had a connection open for {idle:g} s: ended", flush=True)
            end(child)
            return 0
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def serve(name: str, idle: float, folders: Sequence[str], file: Optional[str] = None) -> int:
    for folder in folders:
        if not os.path.isdir(folder.split(":", 1)[1]):
            sys.exit(f"muster: this node does not see the folder {folder.split(':', 1)[1]}")
    port, token = free_port(), secrets.token_urlsafe(24)
    words = command(name, port, token, folders)
    page = PROGRAMS[name].path.format(token=token)
    if file is not None:
        page = page_of(words[0], file) + page[1:]
    env = {key: value.format(token=token) for key, value in PROGRAMS[name].env.items()}
    child = subprocess.Popen(words, env={**os.environ, **env})

    def pass_on(number: int, frame: Optional[FrameType]) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    if not await_answer(child, port):
        print(f"muster: {words[0]} does not answer on port {port}", file=sys.stderr, flush=True)
        end(child)
        return child.returncode if child.returncode > 0 else 1
    publish(port, page)
    print(f"muster: {words[0]} answers; it ends after {idle:g} s without a connection", flush=True)
    return watch(child, port, idle)


def where() -> int:
    """Print where to reach it, once it is known."""
    name = os.path.join(os.environ["MUSTER_RUN_DIR"], NAME)
    deadline = time.monotonic() + READY_S
    while not os.path.exists(name):
        if time.monotonic() > deadline:
            print(f"the job has not said for {READY_S:.0f} s where to reach its program", file=sys.stderr)
            return 1
        time.sleep(0.1)
    with open(name, encoding="ascii") as f:
        print(f.read())
    return 0


def main(args: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m muster.serve", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=[*PROGRAMS, "where"])
    parser.add_argument("--idle", type=float, default=1800, metavar="SECONDS")
    parser.add_argument("--file", help="of this folder, which a notebook opens")
    parser.add_argument("folder", nargs="*", metavar="NAME:DIR", help="of what TensorBoard shows")
    given = parser.parse_intermixed_args(args)
    return where() if given.what == "where" else serve(given.what, given.idle, given.folder, given.file)


if __name__ == "__main__":
    sys.exit(main())
