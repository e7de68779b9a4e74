"""Calls between the files of a room go one way: no file calls another that calls it back, not even by a detour.

Read from the symbols of the objects that were built, so a function pointer in a table counts as a call.
"""
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"))
ROOMS = ["base", "compress", "scheduler", "api/cli", "api/client", "api", "server/http", "server/store",
         "server/cluster", "server/control", "worker/flight", "worker/snapshot", "worker/engine/comm",
         "worker/engine/text", "worker/engine/data", "worker/engine/optim"]
APART = {"api": ["api/protocol/", "api/cli/"]}  # rooms within a room that are not looked at with it


def symbols(path):
    """What an object defines, and what it wants of others."""
    out = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return ({r[2] for r in rows if len(r) == 3 and r[1] in "TDRBVW"}, {r[1] for r in rows if r[0] == "U"})


def circles(objects):
    """Of {name: path of an object}, the calls that are part of a circle: ["a calls f of b", ...]."""
    found = {name: symbols(path) for name, path in objects.items()}
    home = {symbol: name for name, (defined, _) in found.items() for symbol in defined}
    calls = {name: {home[s]: s for s in wanted if s in home and home[s] != name}
             for name, (_, wanted) in found.items()}
    reached = {}
    for start in calls:
        seen, left = set(), [start]
        while left:
            for other in calls[left.pop()]:
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        reached[start] = seen
    return [f"{a} calls {symbol} of {b}" for a in calls for b, symbol in calls[a].items() if a in reached[b]]


def objects_of(room):
    """The objects of a room's sources, but those of rooms apart."""
    sources = subprocess.run(["git", "ls-files", f"{room}/*.c"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    found = {s: os.path.join(BUILD, "obj", s[:-2] + ".o") for s in sources
             if not s.startswith(tuple(APART.get(room, ["/"])))}
    return {s: path for s, path in found.items() if os.path.exists(path)}  # CUDA is not built everywhere


@pytest.mark.parametrize("room", ROOMS)
def test_calls_between_the_files_of_a_room_go_one_way(room):
    objects = objects_of(room)
    assert objects, "nothing is built: make all"
    assert not circles(objects)


def test_a_planted_circle_is_found(tmp_path):
    texts = {"a": "int b(void); int a(void) { return b(); }", "b": "int c(void); int b(void) { return c(); }",
             "c": "int a(void); int c(void) { return a(); }", "d": "int a(void); int d(void) { return a(); }"}
    objects = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
        objects[name] = str(tmp_path / f"{name}.o")
        subprocess.run(["gcc", "-c", "-o", objects[name], str(tmp_path / f"{name}.c")], check=True)
    assert sorted(circles(objects)) == ["a calls b of b", "b calls c of c", "c calls a of a"]
    del objects["b"]
    assert not circles(objects)
