#!/usr/bin/env python3
"""Check the house rules of CONTRIBUTING.md on the files named: floors, banned calls, length, layout."""
import functools
import os
import re
import sys

# Folder -> folders it may include from (itself always). The floor table of CONTRIBUTING.md.
FLOORS = {
    "base": [],
    "compress": ["base"],
    "scheduler": ["base"],
    "checkpoint": ["base", "compress"],
    "api/program": [],
    "api/state": ["base", "checkpoint", "compress", "scheduler/sequence"],
    "api/cli": ["base", "api", "checkpoint", "scheduler"],
    "api": ["base", "scheduler/plan", "scheduler/diagnose"],
    "worker": ["base", "compress", "scheduler/sequence", "scheduler/plan", "scheduler/diagnose", "checkpoint", "api"],
    "server": ["base", "scheduler", "api"],
}
# Room -> rooms of the same folder it may include from.
ROOMS = {
    "worker/engine/kernels": [], "worker/flight": [], "worker/profiler": ["worker/flight"], "worker/engine/text": [],
    "worker/engine/data": ["worker/engine/text"],
    "worker/engine/comm": ["worker/engine/comm/transport", "worker/flight"],
    "worker/engine/comm/transport": ["worker/engine/comm", "worker/flight"],
    "worker/engine/model": ["worker/engine/comm", "worker/engine/kernels", "worker/engine/model/context",
                            "worker/engine/model/retain"],
    "worker/engine/model/context": ["worker/engine/comm", "worker/engine/kernels", "worker/engine/model"],
    "worker/engine/model/retain": [],
    "worker/engine/optim": ["worker/engine/comm", "worker/engine/kernels", "worker/engine/model"],
    "worker/snapshot": [],
    "worker/engine/recover": ["worker/engine/comm", "worker/snapshot"],
    "worker/engine/train": ["worker/engine", "worker/flight", "worker/snapshot"],
    "worker/helper": [],
    "worker/agent": ["worker/flight", "worker/helper", "worker/snapshot"],
    "checkpoint/format": [], "checkpoint/read": ["checkpoint/format"],
    "checkpoint/write": ["checkpoint/format", "checkpoint/read"],
    "checkpoint/tools": ["checkpoint/format", "checkpoint/read", "checkpoint/write"],
    "server/http": [], "server/cluster": [],
    "server/store": ["server/cluster"],
    "server/control": ["server/http", "server/store", "server/cluster"],
}
# Folder -> its only headers for others.
PUBLIC = {
    "checkpoint": ["checkpoint/checkpoint.h", "checkpoint/parts.h"],
    "worker/engine/comm": [f"worker/engine/comm/{name}.h" for name in ("comm", "mesh", "pairs", "wire")],
    "worker/engine/comm/transport": [f"worker/engine/comm/transport/{name}.h" for name in ("transport", "fabric")],
}
# Folder -> its modules from the bottom up, those of a layer together; x stands for x_y, too, and x/ for a folder.
# None includes a header of a layer above its own, so no calls go round.
LAYERS = {"worker/engine/comm": [
    ["comm", "failure", "frame", "mesh", "reduce"], ["wait"], ["rendezvous"], ["transport/"], ["message"],
    ["group"], ["sum"], ["gpu"], ["direct"], ["collective", "p2p"], ["coded"], ["cost"], ["pairs", "probe"], ["wire"],
    ["world"],
], "worker/engine/model": [
    ["carve", "family", "model", "param", "rope", "site"], ["context/", "retain/"], ["stage"],
    ["block", "gpt2", "llama"],
], "server/cluster": [
    ["classes", "health", "job", "notes", "powers", "project"], ["array", "catalog", "node", "pace", "roster"],
    ["cluster", "step_parts"],
    ["allocations", "bookings", "fleet", "links", "profiles", "shares", "topology"], ["stragglers"], ["slots"],
    ["gpus", "meter", "spares"],
], "server/control": [
    ["agent_rights", "audit_entry", "audit_file", "entry", "files", "moment", "node_ca", "provider", "queries",
     "otlp", "readers", "sealing", "span", "stalls", "standby", "waiters"],
    ["auth"], ["table"], ["device_uses", "state"],
    ["kinds", "trace"],
    ["admission", "audit", "booking", "bundles", "ceilings", "events", "incidents", "offsets", "plans", "ports",
     "proofs", "quarantine", "records", "rendezvous", "retire", "rights", "scrapes", "secrets", "storing"],
    ["energy", "predictions", "usage"], ["ledger"], ["round"],
    ["change", "estimates", "finishes", "swaps", "timeline"],
    ["care", "enroll", "places", "source_nodes", "wall", "webhook"], ["link_care", "replay", "slow_care"],
    ["learn", "runs", "view"],
    ["after", "arrays", "contact", "deltas", "dispatch", "hangs", "lags", "limits", "load", "log_quota", "looks",
     "measures", "outlook", "rank_steps", "saves"],
    ["bulk", "jobs", "listing", "nodes", "polls", "projects", "reports", "salvage", "sessions",
     "tokens"], ["leaving", "supply"], ["agents", "batch", "checkpoints"], ["schedules"],
    ["schedule_calls"],
    ["turn"],
    ["routes"],
], "worker/engine/train": [
    ["batch", "cadence", "fit", "gpu_check", "hold", "image", "measure", "owner", "pipe", "progress", "report", "run",
     "state", "summary"],
    ["rank", "sample", "source_node"],
    ["device_test", "links", "peak", "source", "store"], ["shard"], ["eval", "handover"],
    ["resume", "save"], ["step"], ["train"], ["main"],
]}
# Folder -> a room of it whose names for what it has inside nobody else in the folder says.
UNNAMED = {"worker/engine/comm": ("worker/engine/comm/transport", ["nccl", "shm", "ucx"])}
PURE = {"scheduler"}  # no I/O, no clock, no chance
IMPURE_CALLS = (r"\b(fopen|open|read|write|printf|fprintf|time|"
                r"clock_gettime|clock_\w+_us|rand|getenv)\s*\(")
BANNED = ["strcpy", "strcat", "sprintf", "vsprintf", "strtok", "atoi", "atol", "atof", "gets", "alloca", "system",
          "sleep", "usleep"]
BANNED_CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
# Modules that own what the store keeps of one thing, as records.c does of most: each reads and puts that alone.
OWN_ROWS = [f"server/control/{module}.c" for module in (
    "audit", "auth_load", "events", "load", "offsets", "quarantine")]
PAGES = ["listing", "timeline"]  # answers that are read from the store: nothing is decided there, and nothing put
# Folder -> calls that are made in these files alone: everything else there is given what they give.
SEAMS = {
    "server/": [(r"job_(transition|apply)", "only server/control/change.c lets a job change",
                 ["server/control/change.c", "server/cluster/job.c", "server/cluster/job.h"])],
    "server/cluster/": [(r"clock_\w+_us|clock_gettime|time", "no clock is read here: take the time as an argument", []),
                        (r"(job_)?store_\w+|history_\w+", "no store is called here: give back what changed", [])],
    "server/control/": [
        (r"getrandom|random|rand", "no chance is drawn here: see base/chance.h", []),
        (r"clock_\w+_us|clock_gettime|time", "only the turn reads the clock: see moment.h", ["server/control/turn.c"]),
        (r"(job_)?store_(put|drop|add|end)\w*|history_(add|skip|drop)\w*|aside_(put|drop|hide|show)\w*|audit_log_"
         r"(add|put|trim)\w*", "decisions put nothing into the store: see records.h",
         ["server/control/records.c", *OWN_ROWS, "server/control/turn.c"]),
        (r"(job_)?store_(read|find|active|ended|rows)\w*|history_read\w*|aside_read\w*|audit_log_(read|size)",
         "decisions read nothing from the store: see records.h",
         ["server/control/records.c", *OWN_ROWS, *(f"server/control/{page}.c" for page in PAGES)]),
        (r"store_(commit|renew\w*|epoch|mark|batch\w*|up|leader|open|close)", "only the turn leads the store",
         ["server/control/turn.c", "server/control/load.c", "server/control/state.h", "server/control/audit.c",
          "server/control/routes.c", "server/control/scrapes.c"]),  # whether it is up is told by the doors, too
    ],
}
# Rooms each of whose modules has a header of its own, whose functions all have the module's name as their prefix.
MODULES = ("server/http/", "server/store/", "server/cluster/", "server/control/")
DEFINITION = re.compile(r"^(?!static\b|typedef\b)[a-z][\w \*]*?(\w+)\((?:[^;{}()]|\([^()]*\))*\)\n\{", re.M)
# What a header declares is what its reader keeps in mind: so many functions. A list of commands, all of one form, and
# the one door of checkpoint/ have more.
PROTOTYPES = 30
LONG_HEADERS = {"api/cli/commands.h": None, "checkpoint/checkpoint.h": 33}
PROTOTYPE = re.compile(r"^(?!typedef\b|static\b)[A-Za-z_][\w \*]*?\w+\((?:[^;{}()]|\((?:[^;{}()]|\([^;{}()]*\))*\))*\)"
                       r"[^;{}=]*;", re.M)
# Folders without chains of "if (r == 0) r = ...": a function is left by TRY or goto, or parted.
UNCHAINED = ("api/", "base/", "compress/", "scheduler/", "worker/engine/data/", "worker/engine/text/")
CHAIN = re.compile(r"if \((?:!(?:r|status|code)|(?:r|status|code) == 0)\b[^\n]*\)(?: \{)?\n\s+(?:r|status|code) = ")
# Nowhere three or more of them, one after the other.
LONG_CHAIN = re.compile(r"(?:[ \t]+if \((?:!(?:r|rc|status|code)|(?:r|rc|status|code) == 0)(?: && [^\n]*)?\)\n"
                        r"\s+(?:r|rc|status|code) = [^;]*;\n){3,}")
# Private words -> the field's; `givers` is a field of the protocol, as which it may stand in quotes.
PRIVATE_WORDS = {
    r"givers?": "source node", r"oust(?:s|ed|ing)?": "preempt", r"pardon(?:s|ed|ing)?": "say what is forgiven",
    r"doz(?:e|es|ed|ing)": "wait", r"mend(?:s|ed|ing)?": "repair", r"held-out loss": "evaluation loss",
}
CURL = [f"api/client/{module}.c" for module in ("calls", "duplex", "post")]  # the only files that call it
COLUMNS = 120
LINES = 900
WRITTEN = ("api/python/muster/types.py",)  # by programs: as long as what they are of


def strip_comments_and_strings(text):
    """The same text with comments and literals blanked, line numbers kept."""
    pattern = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def folder_of(path):
    for folder in sorted(FLOORS, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return folder
    return None


def room_of(path):
    """Which room a file is in, or None."""
    return next((room for room in sorted(ROOMS, key=len, reverse=True) if path.startswith(room + "/")), None)


def check_private(path, number, target, complain):
    """A header NAME_priv.h is for its own folder, that folder's unit tests, fuzz targets, the simulator and benches,
    which stand in for it here and there."""
    home = target.rpartition("/")[0]
    if target.endswith("_priv.h") and path.rpartition("/")[0] != home and \
            not path.startswith((f"tests/unit/{home.split('/')[0]}/", "tests/fuzz/", "tests/sim/",
                                 "tests/bench/")):
        complain(path, number, f"{target} is for {home}/ alone: put what others need into a header of its own")


def check_public(path, number, target, complain):
    """What is outside a folder of PUBLIC sees its public headers alone; tests see all."""
    for home, headers in PUBLIC.items():
        if target.startswith(home + "/") and target not in headers and not path.startswith((home + "/", "tests/")):
            complain(path, number, f"{target} is for {home}/ alone: others include {' or '.join(headers)}")


def layer_of(folder, path):
    """The number of a file's layer in a folder of LAYERS, from 0 at the bottom, or None."""
    name = path[len(folder) + 1:]
    module = name.rpartition(".")[0]
    for number, modules in enumerate(LAYERS[folder]):
        if any(name.startswith(m) if m.endswith("/") else (module + "_").startswith(m + "_") for m in modules):
            return number
    return None


def check_layers(path, number, target, complain):
    """No file of a folder of LAYERS includes what is above it."""
    for folder in LAYERS:
        if not path.startswith(folder + "/") or not target.startswith(folder + "/"):
            continue
        here, there = layer_of(folder, path), layer_of(folder, target)
        if here is None or there is None:
            complain(path, number, f"{path if here is None else target} has no layer in LAYERS of tests/lint/rules.py")
        elif there > here:
            complain(path, number, f"{target} is above {path}: see LAYERS in tests/lint/rules.py")


def check_names(path, number, line, complain):
    """What a room of UNNAMED has inside is not named by the code above it."""
    for folder, (room, names) in UNNAMED.items():
        if not path.startswith(folder + "/") or path.startswith(room + "/"):
            continue
        found = re.search(r"(?<![^\W_])(" + "|".join(names) + r")(?![^\W_])", line, re.I)
        if found:
            complain(path, number, f"{found.group(1)} is a name of {room}/ alone: ask for what it can do")


def check_seams(path, code, complain):
    """Calls that only some files of a folder may make. Definitions that are static are a file's own."""
    own = set(re.findall(r"^static [\w \*]*?(\w+)\(", code, re.M))
    for folder, seams in SEAMS.items():
        for calls, says, files in seams:
            if not path.startswith(folder) or path in files:
                continue
            for number, line in enumerate(code.split("\n"), 1):
                called = re.search(rf"(?<![\w.>])({calls})\s*\(", line)
                if called and called.group(1) not in own:
                    complain(path, number, f"{called.group(1)}(): {says}")


def check_module(path, text, code, complain):
    """A file of a room of modules: its header is the first that it includes, and it defines what has its name."""
    if not path.startswith(MODULES) or not path.endswith(".c"):
        return
    stem = path.rpartition("/")[2][:-2]
    first = re.search(r'^#include (.*)', text, re.M)
    if not first or first.group(1) not in (f'"{path[:-2]}.h"', f'"{path[:-2]}_priv.h"'):
        complain(path, 1, f"a module has a header of its own: include {path[:-2]}.h first")
    for definition in DEFINITION.finditer(code):
        name = definition.group(1)
        if not name.startswith((stem + "_", stem.split("_")[0] + "_")):
            complain(path, code.count("\n", 0, definition.start(1)) + 1,
                     f"{name}() has not its file's name as its prefix: {stem}_...")


@functools.lru_cache(None)
def rooms_of(folder):
    """The C files under a folder, without .c: name -> rooms that have one."""
    rooms = {}
    for room, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if f != "node_modules"]
        for name in names:
            if name.endswith(".c"):
                rooms.setdefault(name[:-2], []).append(room)
    return rooms


def check_place(path, complain):
    """tests/unit/FOLDER/ROOM/test_X.c tests FOLDER/ROOM/X.c, or ROOM as a whole; worker/engine/ROOM is worker/ROOM."""
    test = re.fullmatch(r"tests/unit/(.+)/test_(\w+)\.c", path)
    if not test:
        return
    here = {test.group(1), re.sub("^worker/", "worker/engine/", test.group(1))}
    rooms = rooms_of(test.group(1).split("/")[0])
    homes = rooms.get(test.group(2), [])
    if homes and here.isdisjoint(homes):
        complain(path, 1, f"{test.group(2)}.c is in {homes[0]}/: its test stands in the room of that name")
    elif not any(here.intersection(found) for found in rooms.values()):
        complain(path, 1, f"{test.group(1)}/ is no room with code: a test stands in the room that it tests")


def check_cleared(path, code, complain):
    """What is cleared at the end of its block has a value before the block can be left: gcc does not always see it."""
    lines = code.split("\n")
    for at, line in enumerate(lines):
        declared = re.match(r"\s+(?:[A-Z_]+_AUTO|json_auto_t)\b([^;()]*);", line)
        for name in re.findall(r"(?:^|,)[^,=]*?(\w+)\s*(?=,|$)", declared.group(1)) if declared else []:
            for number, later in enumerate(lines[at + 1:], at + 2):
                if re.search(rf"\b{name}\b", later) or later.startswith("}"):
                    break
                if re.search(r"\breturn\b|\bgoto\b|\bTRY\(", later):
                    complain(path, number, f"'{name}' has no value yet and is cleared here")
                    break


def check_c(path, text, complain):
    folder = folder_of(path)
    code = strip_comments_and_strings(text)
    check_place(path, complain)
    check_seams(path, code, complain)
    check_module(path, text, code, complain)
    check_cleared(path, code, complain)
    for number, line in enumerate(text.split("\n"), 1):
        include = re.match(r'#include "([^"]+)"', line)
        if folder and line.startswith("#include <curl/") and path not in CURL:
            complain(path, number, "HTTP calls are made by api/client/calls.h")
        if include:
            check_private(path, number, include.group(1), complain)
            check_public(path, number, include.group(1), complain)
            check_layers(path, number, include.group(1), complain)
        if include and folder:
            target = include.group(1)
            allowed = [folder] + FLOORS[folder] + (["gen"] if folder == "server" else [])
            if "/" in target and not any(target.startswith(a + "/") for a in allowed):
                complain(path, number, f"{folder}/ may not include {target}: see the floor table")
            here, there = room_of(path), room_of(target) if folder_of(target) == folder else None
            if here and there and there != here and not any((there + "/").startswith(r + "/") for r in ROOMS[here]):
                complain(path, number, f"{here}/ may not include {target}: see ROOMS in tests/lint/rules.py")
    for number, line in enumerate(code.split("\n"), 1):
        check_names(path, number, line, complain)
        banned = BANNED_CALL.search(line)
        if banned:
            complain(path, number, f"banned call {banned.group(1)}()")
        if folder and re.search(r"\bgetopt(_long)?\s*\(", line):
            complain(path, number, "a command line is read by its table: base/options.h")
        if folder in PURE and re.search(IMPURE_CALLS, line):
            complain(path, number, f"{folder}/ is pure: no I/O, clock or chance")
    for chain in (CHAIN if path.startswith(UNCHAINED) else LONG_CHAIN).finditer(code) if folder else []:
        complain(path, code[:chain.start()].count("\n") + 1, "a chain of codes: leave by TRY (base/try.h) or goto")
    if re.search(r"_(int|impl)\.h$", path):
        complain(path, 1, "a private header's name ends in _priv.h")
    functions = len(PROTOTYPE.findall(code)) if folder and path.endswith(".h") else 0
    if functions > (LONG_HEADERS.get(path, PROTOTYPES) or functions):
        complain(path, 1, f"{functions} functions in a header: split it by who reads it, or hide what only tests call")
    if path.endswith(".h") and not re.match(r"/\* [\w./-]+ - ", text):
        complain(path, 1, "a header opens with '/* name - one sentence'")


def check_code_words(path, text, complain):
    """Names, comments and messages of the code have them, too; a name is parted at each _."""
    for number, line in enumerate(re.sub(r"""\\?["']givers\\?["']""", "", text).split("\n"), 1):
        for word, instead in PRIVATE_WORDS.items():
            found = re.search(rf"(?<![a-z]){word}(?![a-z])", line, re.I)
            if found:
                complain(path, number, f"'{found.group()}' is a private word: {instead}")


def check_words(path, text, complain):
    """A page of the docs has the words of the field."""
    blank = re.sub(r"^```.*?^```|`[^`]*`", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.M | re.S)
    for number, line in enumerate(blank.split("\n"), 1):
        for word, instead in PRIVATE_WORDS.items():
            found = re.search(rf"\b{word}\b", line, re.I)
            if found:
                complain(path, number, f"'{found.group()}' is a private word: {instead}")


def main():
    faults = []

    def complain(path, number, what):
        faults.append(f"{path}:{number}: {what}")

    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if path.endswith(".md"):
            check_words(path, text, complain)
            continue
        lines = text.split("\n")
        if len(lines) > LINES and path not in WRITTEN:
            complain(path, len(lines), f"longer than {LINES} lines: split it")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                complain(path, number, f"longer than {COLUMNS} columns")
            if line != line.rstrip():
                complain(path, number, "space at the end of the line")
            if "\t" in line and path.endswith((".c", ".h", ".cu", ".cc", ".py")):
                complain(path, number, "tab")
            if re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
                complain(path, number, "unfinished: finish it or say so to the user")
        if path.endswith((".c", ".h", ".cu", ".cc")):
            check_c(path, text, complain)
            check_code_words(path, text, complain)
    print("\n".join(faults[:200]))
    if faults:
        print(f"lint: {len(faults)} faults", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
