"""The Debian packages, built and installed for real: in a copy of this machine's system that a mount namespace holds.
It takes minutes: make test-all runs it."""
import glob
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"))

# A system over this machine's, with processes and a network of its own: what is written goes to a memory file system,
# and all of it ends with the namespaces.
IN_COPY = """
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" "$1/root"
mount -t proc none "$1/root/proc"
for d in dev sys; do mount --rbind "/$d" "$1/root/$d"; done
for d in run tmp; do mount -t tmpfs -o mode=1777 none "$1/root/$d"; done
mkdir "$1/root/packages"
mount --bind "$2" "$1/root/packages"
ip link set lo up
exec chroot "$1/root" /bin/sh -euc "$3"
"""


def in_copy(folder, packages, script, seconds=300):
    return subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", IN_COPY, "sh",
                           str(folder), packages, script],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    if os.geteuid() != 0 or in_copy(tmp_path_factory.mktemp("copy"), "/tmp", "true").returncode:
        pytest.skip("this machine permits no copy of its system: want root and overlay mounts")
    done = subprocess.run(["make", "-s", "deb"], cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return os.path.join(BUILD, "deb")


def test_all_packages_have_the_version_of_the_programs(packages):
    with open(os.path.join(ROOT, "base/version.h"), encoding="ascii") as f:
        version = re.search(r'MUSTER_VERSION "(.*)"', f.read()).group(1)
    names = {tuple(os.path.basename(p).split("_")[:2]) for p in glob.glob(f"{packages}/*.deb") if "-dbgsym_" not in p}
    names.discard(("muster-cuda", version))  # where CUDA's compiler is
    assert names == {(n, version) for n in ("muster", "muster-server", "muster-agent", "python3-muster")}


# Server and agent as their units start them, but for systemd, which does not run in the copy.
CLUSTER = """
trap 'cat /tmp/*.log >&2 || true' EXIT
rm -rf /var/lib/muster* /etc/muster  # of a Muster that this machine has
dpkg -i $(ls /packages/*.deb | grep -v dbgsym)
muster-setup server --port 7799
install -d -o muster -g muster -m 0700 /var/lib/muster
install -d -o muster -g muster -m 2771 /var/lib/muster-jobs
setpriv --reuid muster --regid muster --clear-groups musterd --state /var/lib/muster --jobs-dir /var/lib/muster-jobs \
    --port 7799 --agents enrolled 2>/tmp/server.log &
export MUSTER_SERVER=http://127.0.0.1:7799
until curl -fs $MUSTER_SERVER/readyz >/dev/null; do kill -0 $!; sleep 0.1; done
export MUSTER_TOKEN=$(cat /var/lib/muster/token)
muster node enroll here -o json >/tmp/code.json
python3 -c 'import json; print(json.load(open("/tmp/code.json"))["code"])' |
    muster-setup agent --server $MUSTER_SERVER --join - --devices cpu:1
install -d -o muster-agent -g muster -m 0711 /var/lib/muster-agent
muster-helper muster-agent muster-job /usr/bin/muster-agent --server $MUSTER_SERVER \
    --join-file /etc/muster/join-code --state /var/lib/muster-agent --devices cpu:1 2>/tmp/agent.log &
"""


def test_a_machine_with_the_packages_and_a_join_code_runs_programs_and_trains(packages, tmp_path):
    done = in_copy(tmp_path, packages, CLUSTER + """
cd /tmp
timeout 60 muster submit --follow -- id -un || { muster explain j1; exit 1; }
timeout 60 muster submit --follow -- python3 -c 'import muster; print("from", muster.__file__)'
cat >spec.yaml <<'END'
train: {model: gpt2-tiny, data: {path: /usr/share/common-licenses/GPL-3}, batch: {sequences: 2}, steps: 3}
END
timeout 60 muster submit --follow spec.yaml
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "muster-job" in done.stdout and "from /usr/lib" in done.stdout, done.stdout
    assert "step 3 of 3" in done.stdout, done.stdout


@pytest.mark.parametrize("answer, left", [("false", True), ("true", False)])
def test_what_is_purged_leaves_the_data_unless_told_otherwise(packages, tmp_path, answer, left):
    done = in_copy(tmp_path, packages, f"""
rm -rf /var/lib/muster* /etc/muster  # of a Muster that this machine has
dpkg -i $(ls /packages/*.deb | grep -v dbgsym)
muster-setup server
mkdir -p /var/lib/muster /var/lib/muster-jobs /var/lib/muster-agent
touch /var/lib/muster/queue-of-a /var/lib/muster-jobs/job-of-b /var/lib/muster-agent/run-of-c
for p in server agent; do echo "muster-$p muster-$p/remove-data boolean {answer}"; done | debconf-set-selections
dpkg --purge muster-cuda python3-muster muster-server muster-agent muster 1>&2
ls /var/lib/muster /var/lib/muster-jobs /var/lib/muster-agent /etc/muster /usr/bin/muster* || true
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name in done.stdout for name in ("queue-of-a", "job-of-b", "run-of-c")] == [left] * 3, done.stdout
    assert "/usr/bin/muster" not in done.stdout and "musterd.env" not in done.stdout
