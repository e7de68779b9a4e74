"""muster-setup, which writes the settings of a server or a node, below a folder that stands for a system."""
import os
import shutil
import stat
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SETUP = os.path.join(ROOT, "deploy/setup/muster-setup")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may set up a system")


@pytest.fixture
def system(tmp_path):
    """The accounts of the units, and the units."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nmuster:x:901:901::/var/lib/muster:/bin/false\n"
        "muster-agent:x:902:901::/var/lib/muster-agent:/bin/false\nmuster-job:x:903:903::/:/bin/false\n")
    units = tmp_path / "lib/systemd/system"
    units.mkdir(parents=True)
    for unit in ("musterd", "muster-agent"):
        shutil.copy(os.path.join(ROOT, f"deploy/systemd/{unit}.service"), units)
    return tmp_path


def muster_setup(system, *args, code=None):
    return subprocess.run([SETUP, args[0], "--root", str(system), *args[1:]], input=code, capture_output=True,
                          text=True, timeout=60)


def settings(system, name):
    text = (system / "etc/muster" / name).read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")


def enabled(system, unit):
    return os.path.islink(system / "etc/systemd/system/multi-user.target.wants" / f"{unit}.service")


def test_a_server_of_one_machine_takes_no_option(system):
    done = muster_setup(system, "server")
    assert done.returncode == 0, done.stderr
    assert settings(system, "musterd.env") == {"MUSTERD_BIND": "127.0.0.1", "MUSTERD_PORT": "7717",
                                               "MUSTERD_OPTIONS": ""}
    assert "MUSTER_SERVER=http://127.0.0.1:7717" in done.stdout and enabled(system, "musterd")


def test_a_server_that_others_reach_has_a_certificate_of_its_own_and_a_key_that_its_group_alone_reads(system):
    done = muster_setup(system, "server", "--bind", "10.0.0.1", "--self-signed", "--jobs-dir", "/shared/jobs")
    assert done.returncode == 0, done.stderr
    key, jobs = os.stat(system / "etc/muster/key.pem"), os.stat(system / "shared/jobs")
    assert (stat.S_IMODE(key.st_mode), key.st_uid, key.st_gid) == (0o640, 0, 901)
    assert (stat.S_IMODE(jobs.st_mode), jobs.st_uid, jobs.st_gid) == (0o2771, 901, 901)
    shown = subprocess.run(["openssl", "x509", "-noout", "-text", "-in", system / "etc/muster/cert.pem"],
                           capture_output=True, text=True, check=True).stdout
    assert "IP Address:10.0.0.1" in shown
    assert settings(system, "musterd.env")["MUSTERD_OPTIONS"] == \
        "--jobs-dir /shared/jobs --tls-cert /etc/muster/cert.pem --tls-key /etc/muster/key.pem"
    assert "https://10.0.0.1:7717" in done.stdout and "MUSTER_CACERT" in done.stdout


def test_a_node_has_its_code_where_its_agent_alone_reads_it_and_shows_it_to_nobody(system):
    (system / "etc/ca.pem").write_text("a certificate")
    done = muster_setup(system, "agent", "--server", "https://head:7717", "--join", "-", "--ca-file", "/etc/ca.pem",
                 "--devices", "gpu:2=fast,cpu:1", code="mj-abc123\n")
    assert done.returncode == 0, done.stderr
    code = os.stat(system / "etc/muster/join-code")
    assert (stat.S_IMODE(code.st_mode), code.st_uid, code.st_gid) == (0o600, 902, 901)
    assert (system / "etc/muster/join-code").read_text() == "mj-abc123\n"
    assert settings(system, "agent.env") == {"MUSTER_AGENT_SERVER": "https://head:7717",
                                             "MUSTER_AGENT_DEVICES": "gpu:2=fast,cpu:1",
                                             "MUSTER_AGENT_OPTIONS": "--ca-file /etc/ca.pem"}
    assert "mj-abc" not in done.stdout + done.stderr and enabled(system, "muster-agent")


def test_settings_that_are_there_are_kept_unless_they_are_to_be_replaced(system):
    assert muster_setup(system, "server", "--port", "7800").returncode == 0
    again = muster_setup(system, "server", "--port", "7900")
    assert again.returncode == 1 and "--replace" in again.stderr
    assert settings(system, "musterd.env")["MUSTERD_PORT"] == "7800"
    assert muster_setup(system, "server", "--port", "7900", "--replace").returncode == 0
    assert settings(system, "musterd.env")["MUSTERD_PORT"] == "7900"


@pytest.mark.parametrize("args, says", [
    (["server", "--bind", "10.0.0.1"], "--self-signed, or --insecure"),
    (["server", "--bind", "10.0.0.1\nMUSTERD_OPTIONS=--insecure"], "want letters"),
    (["server", "--port", "80x"], "want a number"),
    (["server", "--jobs-dir", "jobs"], "want a path"),
    (["server", "--tls-cert", "/c.pem"], "both"),
    (["server", "--self-signed", "--insecure"], "one of"),
    (["server", "--join", "x"], "unknown option --join of server"),
    (["server", "--port"], "wants a value"),
    (["agent", "--join", "x"], "want --server"),
    (["agent", "--server", "http://h:1"], "want --join"),
    (["agent", "--server", "http://h:1 --no-exec", "--join", "x"], "want letters"),
    (["agent", "--server", "http://h:1", "--join", "a b"], "want letters"),
    (["agent", "--server", "http://h:1", "--join", "-"], "no code"),
    (["agent", "--server", "http://h:1", "--join", "x", "--ca-file", "/gone.pem"], "/gone.pem"),
])
def test_what_cannot_be_is_refused_and_nothing_written(system, args, says):
    done = muster_setup(system, *args, code="")
    assert done.returncode in (1, 2) and says in done.stderr, done.stderr
    assert not [name for _, _, names in os.walk(system / "etc/muster") for name in names]


def test_a_system_without_the_accounts_is_told_how_to_get_them(system):
    (system / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    done = muster_setup(system, "server")
    assert done.returncode == 1 and "systemd-sysusers" in done.stderr
