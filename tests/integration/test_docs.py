"""Commands, options, targets and files that README and docs/ name are there."""
import glob
import os
import re
import shlex
import subprocess

import pytest

from tests.cluster import BIN, ROOT
from tests.patience import PATIENCE_S

PAGES = [os.path.relpath(p, ROOT) for p in
         [*glob.glob(f"{ROOT}/*.md"), *glob.glob(f"{ROOT}/docs/*.md"), *glob.glob(f"{ROOT}/examples/*.md")]]


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return f.read()


def said(program, *args):
    return subprocess.run([f"{BIN}/{program}", *args], capture_output=True, text=True, timeout=PATIENCE_S,
                          check=True).stdout


@pytest.fixture(scope="module")
def options():
    """Options by command: "muster submit", "musterd", ..."""
    found = {}
    common, *commands = said("muster", "help", "--markdown").split("\n## ")
    shared = set(re.findall(r"^- `(--[a-z-]+)", common, re.M))
    for text in commands:
        words = text.split("\n", 1)[0].split()
        name = " ".join(w for w in words[:3] if re.fullmatch(r"[a-z][a-z-]*", w))
        found[name] = shared | set(re.findall(r"^- `(--[a-z0-9-]+)", text, re.M))
    for program in ("musterd", "muster-agent"):
        found[program] = set(re.findall(r"^ +(?:-[a-z], )?(--[a-z0-9-]+)", said(program, "--help"), re.M))
    return found


def code_of(text):
    """Lines of shell blocks, joined where they go on, and what stands in backticks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return lines + [re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", prose)]


def calls_of(line):
    """The words of each call of a program of ours on a line."""
    for part in re.split(r"[;|&]+|\$\(|\bsudo\b", line.split(" #")[0]):
        try:
            words = shlex.split(part.replace("…", " "))
        except ValueError:
            words = part.split()
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and os.path.basename(words[0]) in ("muster", "musterd", "muster-agent"):
            yield [os.path.basename(words[0]), *words[1:]]


def command_of(words, options):
    for n in (3, 2, 1):
        if " ".join(words[:n]) in options:
            return " ".join(words[:n])
    return None


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_docs_are_there_with_their_options(page, options):
    for line in code_of(read(page)):
        for words in calls_of(line):
            if len(words) == 1 or (words[0] == "muster-agent" and words[1] in ("run", "shim")):
                continue
            if words[0] == "muster" and words[1] in ("--version", "--help"):
                continue
            command = command_of(words, options)
            groups = {name.split()[1] for name in options if name.count(" ") == 2}
            assert command or words[1] in groups, f"{page}: no such command: {line}"
            if command:
                own = words[:words.index("--")] if "--" in words else words  # the rest is another program's
                used = {w.split("=")[0] for w in own if re.match(r"--[a-z]", w)}
                assert used <= options[command], f"{page}: {command} takes no {used - options[command]}: {line}"


@pytest.mark.parametrize("page", PAGES)
def test_targets_and_pages_that_the_docs_name_are_there(page):
    text = read(page)
    targets = set()
    for path in [f"{ROOT}/Makefile", *glob.glob(f"{ROOT}/mk/*.mk")]:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if re.match(r"[\w./ -]+:(?!=)", line):
                    targets |= set(line.split(":")[0].split())
    benches = {f"bench-{os.path.splitext(os.path.basename(p))[0]}" for p in glob.glob(f"{ROOT}/tests/bench/*")}
    for target in re.findall(r"(?:^|&& )make (?:-\w+ )*([a-z][\w./-]*)", "\n".join(code_of(text)), re.M):
        assert target in targets | benches, f"{page}: no target '{target}'"
    for link in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", text):
        assert os.path.exists(os.path.join(ROOT, os.path.dirname(page), link)), f"{page}: {link}"


@pytest.fixture(scope="module")
def sources():
    """Text of the C files by path."""
    found = {}
    for path in subprocess.run(["git", "ls-files", "*.[ch]", "*.cu", "*.cc"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.split():
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            found[path] = f.read()
    return found


@pytest.mark.parametrize("page", PAGES)
def test_source_files_that_the_docs_name_are_there(page, sources):
    for name in re.findall(r"`([\w/]+\.(?:[ch]|cu|cc))`", read(page)):
        if not re.search("[A-Z]{3}", name):
            assert any(f"/{path}".endswith(f"/{name}") for path in sources), f"{page}: {name}"


def defined(text, function):
    return re.search(rf"^[a-z][^;=\n]*\b{function}\(", text, re.M)


def test_the_tour_names_functions_that_are_there_and_the_files_they_are_in(sources):
    page = read("docs/architecture.md")
    tour = page.split("## Three trips", 1)[1].split("\n## ", 1)[0]
    product = {p: t for p, t in sources.items() if p.split("/")[0] in ("api", "checkpoint", "scheduler", "server",
                                                                       "worker")}
    functions = re.findall(r"`(\w+)\(\)`", page)
    assert len(functions) > 50
    for name in functions:
        assert any(defined(text, name) for text in product.values()), name
    placed = [(f, name) for f, name in re.findall(r"`([\w/]+\.c)`: `(\w+)\(\)`", tour)]
    placed += [(f, name) for name, f in re.findall(r"`(\w+)\(\)`\s(?:\(|of\s)`([\w/]+\.[ch])`", tour)]
    assert len(placed) > 30
    for file, name in placed:
        assert any(defined(text, name) for path, text in product.items() if f"/{path}".endswith(f"/{file}")), \
            f"{name}() is not in {file}"


def test_the_table_of_downtime_is_what_the_model_gives():
    told = subprocess.run(["/usr/bin/python3", f"{ROOT}/tests/bench/downtime.py"], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=True).stdout
    assert told in read("docs/diagnosis.md")


def test_every_test_that_the_fault_catalogue_names_is_there():
    page = read("docs/diagnosis.md")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page[page.index("## The fault catalogue"):], re.M)
    assert [int(n) for n, _ in rows] == list(range(1, 56))
    sources = {path: read(os.path.relpath(path, ROOT)) for path in
               glob.glob(f"{ROOT}/tests/**/test_*.[cp]*", recursive=True) if path.endswith((".c", ".py"))}
    for _, row in rows:
        last = None
        for name in re.findall(r"`([^`]+)`", row):
            file, _, test = name.partition("[")[0].partition("::")
            if file.endswith((".c", ".py")):
                last = [text for path, text in sources.items() if path.endswith("/" + file.split("/")[-1])]
                assert last, name
            elif re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", file):
                test = file
            if test:
                assert any(re.search(rf"\b{test}\b", text) for text in last), name
