"""What a job prints cannot work the terminal of those who read it."""
import json
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eevil\x08\x7f\ttab \u00e9"
SEEN = "^[]0;title^G^[[2J<U+009B>31m<U+202E>evil^H^?\ttab \u00e9"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("terminal")), slots=2) as c:
        yield c
    assert not c.leftovers()


def prints(cluster, script="", devices=1):
    spec = specs.command(f'printf "%s\\n" "$EVIL"; {script}', devices=devices)
    spec["command"]["env"] = {"EVIL": EVIL}
    return cluster.submit(spec)["id"]


@pytest.mark.parametrize("options", [[], ["--follow"], ["--rank", "0"]], ids=["all", "follow", "rank"])
def test_logs_show_escape_sequences_instead_of_sending_them(cluster, options):
    job = prints(cluster)
    cluster.wait(job, "succeeded")
    said = cluster.muster("logs", job, *options).stdout
    assert said.removeprefix("[0] ") == f"{SEEN}\n"
    assert cluster.muster("logs", job, "--raw", *options).stdout.removeprefix("[0] ") == f"{EVIL}\n"
    assert json.loads(cluster.muster("logs", job, "-o", "json").stdout)["lines"] == [EVIL]


def test_logs_that_are_followed_while_they_come_show_them_too(cluster, tmp_path):
    go = tmp_path / "go"
    job = prints(cluster, f"while [ ! -e {go} ]; do sleep 0.05; done", devices=2)
    cluster.wait(job, "running")
    with open(tmp_path / "out", "wb") as out:
        with subprocess.Popen([f"{BIN}/muster", "logs", job, "-f"], stdout=out, env=cluster.cli_env()) as following:
            wait_for("two lines", lambda: (tmp_path / "out").read_text().count("\n") == 2)
            go.touch()
            assert following.wait() == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines) == [f"[{rank}] {SEEN}" for rank in (0, 1)]


def test_the_words_of_a_failure_show_them_too(cluster):
    job = prints(cluster, "exit 3")
    cluster.wait(job, "failed")
    for words in (["watch", job], ["show", job]):
        done = cluster.muster(*words)
        said = done.stdout + done.stderr
        assert "evil" in said and not set("\x1b\x07\x08\x7f\x9b") & set(said), (words, said)
