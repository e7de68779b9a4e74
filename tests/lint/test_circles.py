"""Calls between files go one way: none calls another that calls it back, not even by a detour through other rooms.

Read from the symbols of the objects that were built, so a function pointer in a table counts as a call.
"""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"))
PRODUCT = ["base", "compress", "scheduler", "checkpoint", "api", "worker", "server"]


def symbols(objects):
    """{name: what that object defines, and what it wants of others} of {name: path}."""
    found = {path: (set(), set()) for path in objects.values()}
    out = subprocess.run(["nm", "-A", *found], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        path, row = line.split(":", 1)
        row = row.split()
        if len(row) == 3 and row[1] in "TDRBVW":
            found[path][0].add(row[2])
        elif row[0] == "U":
            found[path][1].add(row[1])
    return {name: found[path] for name, path in objects.items()}


def circles(objects):
    """Of {name: path of an object}, the calls that are part of a circle: ["a calls f of b", ...]."""
    found = symbols(objects)
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


def test_calls_between_the_files_of_the_product_go_one_way():
    sources = subprocess.run(["git", "ls-files", *(f"{folder}/*.c" for folder in PRODUCT)], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout.split()
    objects = {s: os.path.join(BUILD, "obj", s[:-2] + ".o") for s in sources}
    built = {s: path for s, path in objects.items() if os.path.exists(path)}  # CUDA is not built everywhere
    assert len(built) > 400, "not all is built: make all"
    assert not circles(built)


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
