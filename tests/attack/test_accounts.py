"""What a job may learn and do of the machine it runs on: environment, files, accounts."""
import glob
import os
import re
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, MARK, ROOT, Cluster
from tests.patience import PATIENCE_S


def variables(cluster, job):
    """What `env` printed into a job's log."""
    return dict(line.split("=", 1) for line in cluster.log_text(job).splitlines() if "=" in line)


def test_a_job_gets_no_variable_of_the_agent_but_those_that_are_listed(tmp_path):
    agent = {"AWS_SECRET_ACCESS_KEY": "hush", "UCX_LOG_LEVEL": "warn", "UCXX": "no", "LANG": "C.UTF-8", "TZ": "UTC"}
    with Cluster(str(tmp_path), slots=1, env=agent, agent_args=["--pass-env", f"{MARK},UCX_*"]) as cluster:
        spec = specs.command("env")
        spec["command"]["env"] = {"GREETING": "hello"}
        spec["limits"] = {"time_s": 3600}  # without it there is no MUSTER_ENDS_AT
        job = cluster.submit(spec)["id"]
        cluster.wait(job, "succeeded")
        got = variables(cluster, job)
    assert not cluster.leftovers()
    of_muster = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
                 "OMP_NUM_THREADS"}
    own = {"PWD", "SHLVL", "_", "OLDPWD"}  # a shell's
    named = {"PATH", "HOME", "LANG", "TZ", "USER", MARK, "UCX_LOG_LEVEL", "GREETING", "PYTHONPATH"}
    assert {name for name in got if not name.startswith("MUSTER_")} <= of_muster | own | named
    assert (got["GREETING"], got["LANG"], got["TZ"], got["UCX_LOG_LEVEL"]) == ("hello", "C.UTF-8", "UTC", "warn")
    with open(os.path.join(ROOT, "docs", "programs.md"), encoding="utf-8") as f:
        contract = f.read()
    named = {*re.findall(r"`(MUSTER_[A-Z_]+)`", contract), "MUSTER_HOLD"} - {"MUSTER_PORT_NAME"}  # it names no ports
    assert {name for name in got if name.startswith("MUSTER_")} == named


@pytest.mark.parametrize("spoil, words", [
    (lambda path: os.chmod(path, 0o644), "mode 0644"), (lambda path: os.chmod(path, 0o660), "mode 0660"),
    (lambda path: (os.rename(path, f"{path}.real"), os.symlink(f"{path}.real", path)), "symbolic link")])
@pytest.mark.parametrize("who", ["musterd", "muster-agent", "muster"])
def test_a_token_file_that_others_can_have_is_refused_by_name(tmp_path, who, spoil, words):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    path = str(state / ("agent-token" if who == "muster-agent" else "token"))
    with open(path, "w", encoding="ascii") as f:
        f.write("mst_0123456789\n")
    os.chmod(path, 0o600)
    spoil(path)
    done = subprocess.run([f"{BIN}/{who}", *{
        "musterd": ["--state", str(state), "--port", "0"],
        "muster-agent": ["--server", "http://127.0.0.1:1", "--token-file", path, "--state", str(tmp_path / "agent")],
        "muster": ["nodes", "--server", "http://127.0.0.1:1"]}[who]], capture_output=True, text=True,
        timeout=PATIENCE_S, env=dict(os.environ, MUSTER_STATE=str(state), MUSTER_TOKEN=""), check=False)
    assert done.returncode != 0
    assert path in done.stderr and words in done.stderr


@pytest.mark.parametrize("who", ["musterd", "muster-agent"])
def test_a_state_folder_that_others_can_write_to_is_refused_by_name(tmp_path, who):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    token = tmp_path / "agent-token"
    token.write_text("mst_0123456789\n")
    token.chmod(0o600)
    done = subprocess.run([f"{BIN}/{who}", "--state", str(state), *{
        "musterd": ["--port", "0"],
        "muster-agent": ["--server", "http://127.0.0.1:1", "--token-file", str(token)]}[who]],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    assert f"'{state}' has mode 0777" in done.stderr


def test_an_agent_without_a_helper_says_once_that_its_account_is_shared(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        assert cluster.nodes()[0]["shared_account"] is True
        assert "shared account: n1 (jobs can do there what the agent can)" in cluster.muster("nodes").stdout
        assert cluster.tail("agent-n1").count("shared account") == 1


def test_the_helper_is_small_enough_to_be_read_line_by_line():
    count = 0
    for path in glob.glob(os.path.join(ROOT, "worker/helper/*.c")):
        with open(path, encoding="ascii") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        count += sum(1 for line in text.split("\n") if line.strip() and not line.startswith("#include"))
    assert count < 400, f"{count} lines of code are root"
