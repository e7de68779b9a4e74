"""libmuster.so.1: what other people's binaries rely on stays as it is, and a real C program uses it as a job."""
import itertools
import os
import re
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, ROOT, Cluster, wait_for

LIB = os.path.join(os.path.dirname(BIN), "lib", "muster")
LIBRARY = f"{LIB}/libmuster.so.1"


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def compile_c(source, out, *args):
    run(os.environ.get("CC", "cc").split()[-1], "-Wall", "-Wextra", "-Werror", "-o", str(out), str(source),
        f"-I{ROOT}/api/program", *args)


@pytest.mark.parametrize("header, abi, library", [
    ("api/program/muster.h", "api/program/muster.abi", LIBRARY),
    ("api/state/muster_state.h", "api/state/state.abi", f"{LIB}/libmuster-state.so.1")])
def test_symbols_versions_and_structs_are_those_of_the_stored_list(tmp_path, header, abi, library):
    """A row may be added; one that goes or changes breaks binaries, and raises the library's number."""
    with open(f"{ROOT}/{abi}", encoding="ascii") as f:
        stored = f.read().splitlines()
    dynamic = run("readelf", "-dW", library)
    found = re.findall(r"SONAME.*\[(.*)\]", dynamic)
    found += sorted(f"needs {name}" for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    found += sorted(line.split()[2] for line in run("nm", "-D", "--defined-only", "--with-symbol-versions",
                                                    library).splitlines() if " A " not in line)
    rows = [row.split() for row in stored if row.startswith(("struct", "enum"))]
    exprs = {row[1]: f"offsetof(struct {row[1].replace('.', ',')})" if "." in row[1] else
             f"sizeof(struct {row[1]})" if row[0] == "struct" else row[1] for row in rows}
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "{ROOT}/{header}"\nint main(void)\n{{\n' + "".join(
        f'    printf("{kind} {name} %d\\n", (int)({exprs[name]}));\n' for kind, name, _ in rows) + "}\n",
        encoding="ascii")
    compile_c(source, tmp_path / "sizes")
    found += run(str(tmp_path / "sizes")).splitlines()
    assert found == stored
    with open(f"{ROOT}/{header}", encoding="ascii") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    assert set(re.findall(r"\b(m\w+_\w+)\(", text)) == {row.split("@")[0] for row in stored if "@@" in row}
    for struct, body in re.findall(r"struct (\w+) \{(.*?)\};", text, flags=re.S):
        members = [name for names in re.findall(r"[\w ]+?[ *]((?:\*?\w+(?:\[\w+\])?(?:, )?)+);", body)
                   for name in re.findall(r"(\w+)(?:\[|,|$)", names)]
        assert {f"{struct}.{name}" for name in members[1:]} == {
            row[1] for row in rows if row[1].startswith(f"{struct}.")}


def test_the_plugin_for_nccl_shows_its_tables_and_nothing_else():
    """NCCL loads it into programs of users: no symbol of ours may stand in for one of theirs."""
    plugin = f"{LIB}/libmuster-nccl-profiler.so"
    assert [line.split()[2] for line in run("nm", "-D", "--defined-only", plugin).splitlines()] == [
        "ncclProfiler_v4", "ncclProfiler_v5"]
    assert set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", plugin))) <= {"libc.so.6", "ld-linux-x86-64.so.2"}


def test_it_has_no_thread_and_does_nothing_before_it_is_opened(tmp_path):
    source = tmp_path / "threads.c"
    source.write_text("""
#include <dlfcn.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <muster.h>
static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}
int main(int argc, char **argv)
{
    int (*opens)(const struct muster_options *, muster **);
    void (*closes)(muster *);
    void *lib = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    muster *m;
    printf("%d", threads());
    *(void **)&opens = dlsym(lib, "muster_open");
    *(void **)&closes = dlsym(lib, "muster_close");
    printf(" %d", opens(NULL, &m));
    printf(" %d", threads());
    closes(m);
    printf(" %d %d\\n", threads(), dlclose(lib));
    return 0;
}
""", encoding="ascii")
    compile_c(source, tmp_path / "threads", "-ldl")
    assert run("env", f"MUSTER_RUN_DIR={tmp_path}", "RANK=0", str(tmp_path / "threads"), LIBRARY) == "1 0 2 1 0\n"
    assert run("env", "-u", "MUSTER_RUN_DIR", str(tmp_path / "threads"), LIBRARY) == "1 1 1 1 0\n"


def test_the_headers_are_c_and_cpp(tmp_path):
    for header, (name, *flags) in itertools.product(("api/program/muster.h", "api/state/muster_state.h"), (
            ("x.c", "-std=c99", "-pedantic"), ("x.cc", "-std=c++11"))):
        (tmp_path / name).write_text(f'#include "{ROOT}/{header}"\nint main() {{ return 0; }}\n', encoding="ascii")
        compile_c(tmp_path / name, tmp_path / "x", *flags)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("program") / "program"
    compile_c(f"{ROOT}/examples/program.c", out, LIBRARY, f"-Wl,-rpath,{LIB}")
    return str(out)


def test_a_c_program_logs_is_told_to_stop_acknowledges_and_goes_on_where_it_was(program, tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        spec = specs.command("")
        spec["command"]["argv"] = [program, "1000000"]
        job = cluster.submit(spec)["id"]
        wait_for("some steps", lambda: (cluster.job(job)["progress"] or {"step": 0})["step"] > 20)
        cluster.action(job, "suspend")
        stopped = cluster.wait(job, "suspended")
        at = int(open(os.path.join(stopped["dir"], "checkpoints", "at"), encoding="ascii").read())
        assert at > 20 and stopped["restarts"] == {"user": 0, "system": 0, "node": 0}
        assert stopped["checkpoint"]["step"] == at
        cluster.action(job, "resume")
        wait_for("steps beyond it", lambda: cluster.job(job)["progress"]["step"] > at)
        assert f"begins at step {at}\n" in cluster.log_text(job)
        steps = cluster.api("GET", f"/v1/jobs/{job}/metrics?names=loss")["metrics"]["step"]
        assert steps == sorted(set(steps)) and max(steps) > at > min(steps)
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
        spec["command"]["argv"][1] = "30"
        assert cluster.wait(cluster.submit(spec)["id"])["state"] == "succeeded"
    assert not cluster.leftovers()


def test_agents_tell_commands_where_the_library_is(program, tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        job = cluster.submit(specs.command("echo $MUSTER_LIB; ls $MUSTER_LIB"))["id"]
        cluster.wait(job, "succeeded")
        assert cluster.log_text(job).splitlines()[0] == LIB
        assert "libmuster.so.1" in cluster.log_text(job)
