"""Notebooks and TensorBoard as jobs (`muster notebook`, `muster tensorboard`): reached, kept while somebody is there,
ended when nobody is. Small HTTP servers stand in for both programs (tests/web_programs.py)."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests import specs
from tests.cluster import BIN, ROOT, Cluster
from tests.patience import PATIENCE_S
from tests.web_programs import make_programs

@pytest.fixture(scope="module", name="cluster")
def a_cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("notebook")), slots=4) as c:
        make_programs(f"{c.folder}/bin", "jupyter-notebook", "tensorboard")
        make_programs(f"{c.folder}/bare")
        yield c
    assert not c.leftovers()


def muster(cluster, *args, path="bin"):
    """A command of muster whose job finds programs in a folder."""
    words = [f"{BIN}/muster", args[0], "--set", f"command.env.PATH={cluster.folder}/{path}", *args[1:]]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.cli_env(),
                            cwd=cluster.folder)


@contextlib.contextmanager
def page(cluster, *args):
    """The address that a command says."""
    with muster(cluster, *args) as cli:
        address = cli.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address + cli.stderr.read()
        try:
            yield address
        finally:
            cli.send_signal(signal.SIGINT)
            assert cli.wait(PATIENCE_S) == 130


def get(address):
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def test_a_notebook_is_reached_with_its_token_and_again_from_another_command(cluster):
    with page(cluster, "notebook", "--name", "mine") as address:
        assert "--no-browser" in get(address)
        with pytest.raises(urllib.error.HTTPError):
            get(address.split("?")[0])
        job, = (j["id"] for j in cluster.list_jobs() if j["name"] == "mine")
        assert address.split("?token=")[1] not in json.dumps(cluster.job(job))  # the job's folder has it, for its user
        files = [os.path.join(d, f) for d, _, names in os.walk(cluster.folder) for f in names if f == "serve.json"]
        assert [os.stat(f).st_mode & 0o777 for f in files] == [0o600]
        with page(cluster, "notebook", "--job", job) as again:
            assert get(again) == get(address)
    cluster.action(job, "cancel")


def test_a_notebook_is_opened_at_a_file_of_its_folder_and_at_no_other(cluster):
    os.makedirs(f"{cluster.folder}/plots", exist_ok=True)
    with open(f"{cluster.folder}/plots/my loss.ipynb", "w", encoding="ascii") as f:
        f.write("{}")
    with page(cluster, "notebook", "./plots/my loss.ipynb", "--name", "file") as address:
        assert "/notebooks/plots/my%20loss.ipynb?token=" in address
        assert "--no-browser" in get(address)
    job, = (j["id"] for j in cluster.list_jobs() if j["name"] == "file")
    cluster.action(job, "cancel")
    with muster(cluster, "notebook", "x.ipynb", "--job", job) as cli:
        assert cli.wait(PATIENCE_S) == 2
    for file, why in (("missing.ipynb", "does not see the file"), ("../x.ipynb", "is not below")):
        with muster(cluster, "notebook", file) as cli:
            _, said = cli.communicate(timeout=PATIENCE_S)
        assert cli.returncode == 1 and why in said, said


def test_jupyter_lab_opens_a_file_at_an_address_of_its_own(monkeypatch, tmp_path):
    module = serve(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a#b.ipynb").touch()
    assert module.page_of("/opt/bin/jupyter-lab", "a#b.ipynb") == "/lab/tree/a%23b.ipynb"
    for file in ("/etc/passwd", "..", "a/../../x", "none.ipynb", "."):
        with pytest.raises(SystemExit):
            module.page_of("jupyter-lab", file)


def test_it_succeeds_once_nobody_has_been_there_for_so_long(cluster):
    with muster(cluster, "submit", "--", "python3", "-m", "muster.serve", "notebook", "--idle", "0.5") as cli:
        job = cli.stdout.readline().split()[1]
    cluster.wait(job, ["succeeded"])
    assert "nobody has had a connection open for 0.5 s: ended" in cluster.log_text(job)


def test_a_node_without_the_program_is_told_which_package_has_it(cluster):
    for command, package in (("notebook", "jupyter-notebook"), ("tensorboard", "tensorboard of pip")):
        job = cluster.submit(specs.command("true"))["id"] if command == "tensorboard" else None
        with muster(cluster, command, *filter(None, [job]), path="bare") as cli:
            _, said = cli.communicate(timeout=PATIENCE_S)
        assert cli.returncode == 1 and "muster: this node has no" in said and package in said, said


def test_tensorboard_shows_the_folders_of_the_jobs_that_are_named(cluster):
    jobs = [cluster.submit(specs.command("true"))["id"] for _ in range(2)]
    dirs = [cluster.wait(job, ["succeeded"])["dir"] for job in jobs]
    with page(cluster, "tensorboard", *jobs, "--name", "board") as address:
        assert f"--logdir_spec={jobs[0]}:{dirs[0]},{jobs[1]}:{dirs[1]}" in get(address)
    job, = (j["id"] for j in cluster.list_jobs() if j["name"] == "board")
    cluster.action(job, "cancel")
    with muster(cluster, "tensorboard") as cli:
        assert cli.wait(PATIENCE_S) == 2


def serve(monkeypatch):
    monkeypatch.syspath_prepend(f"{ROOT}/api/python")
    from muster import serve as module  # pylint: disable=import-outside-toplevel
    return module


def test_an_open_connection_keeps_it_and_the_time_without_one_begins_anew(monkeypatch):
    module, seen, now = serve(monkeypatch), [], [0.0]
    counts = [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]  # one look a second

    class Child:
        returncode = None
        ended_s = None

        def poll(self):
            return self.returncode

        def wait(self, seconds=None):
            now[0] += 1
            if self.returncode is None:
                raise subprocess.TimeoutExpired("x", seconds)

        def terminate(self):
            self.ended_s, self.returncode = now[0], 0

    def connections(port):
        seen.append(port)
        return counts[len(seen) - 1]
    child = Child()
    monkeypatch.setattr(module, "connections", connections)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert module.watch(child, 8888, 4) == 0
    assert child.ended_s == 13  # four seconds after the last look that saw a connection, the ninth


def test_connections_are_those_that_are_established_to_the_port_on_either_family(monkeypatch, tmp_path):
    module = serve(monkeypatch)
    os.makedirs(tmp_path / "self" / "net")
    (tmp_path / "self" / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:22B8 00000000:0000 0A\n"   # listens
        "   1: 0100007F:22B8 0100007F:9999 01\n"
        "   2: 0100007F:9999 0100007F:22B8 01\n"   # the other end of it
        "   3: 0100007F:22B8 0100007F:9998 06\n")  # is over
    (tmp_path / "self" / "net" / "tcp6").write_text(
        "   0: 0000000000000000FFFF00000100007F:22B8 0000000000000000FFFF00000100007F:1 01\n")
    assert module.connections(8888, str(tmp_path)) == 2
    assert module.connections(8889, str(tmp_path)) == 0


def test_a_folder_that_the_node_does_not_see_is_named(monkeypatch):
    with pytest.raises(SystemExit) as ended:
        serve(monkeypatch).serve("tensorboard", 1, ["j17:/no/such/folder"])
    assert "/no/such/folder" in str(ended.value)
    assert sys.modules["muster.serve"]
