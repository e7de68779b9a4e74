"""Programs in images: what podman is called with, and podman itself where the machine lets it run."""
import os
import shutil
import subprocess
import tempfile

import pytest

from tests import specs
from tests.cluster import ApiError, Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("images")), slots=2) as c:
        yield c
    assert not c.leftovers()


def in_image(image, text, path=None, **more):
    spec = specs.command(text, retry={"max": 0})
    spec["command"].update(image=image, env={**({"PATH": path} if path else {}), "SECRET": "hush"}, **more)
    return spec


def test_the_program_is_handed_to_the_podman_of_the_node(cluster, tmp_path):
    fake = tmp_path / "podman"
    fake.write_text("#!/bin/sh\nfor word; do echo \"<$word>\"; done\necho \"$SECRET\"\n")
    fake.chmod(0o755)
    job = cluster.submit(in_image("docker://localhost/mini:1", "echo hello", f"{tmp_path}:/usr/bin:/bin",
                                  workdir=str(tmp_path)))["id"]
    folder = cluster.wait(job, "succeeded")["dir"]
    said = cluster.log_text(job).split("\n")
    for word in ("run", "--rm", "--env=SECRET", "--env=RANK", f"--volume={folder}:{folder}", f"--workdir={tmp_path}",
                 f"--volume={tmp_path}:{tmp_path}", "--cap-drop=all"):
        assert f"<{word}>" in said, said
    assert said[-6:-1] == ["<localhost/mini:1>", "</bin/sh>", "<-c>", "<echo hello>", "hush"]
    assert not any("hush" in word for word in said[:-2])  # of a command line that all on the node may read


# In place of podman: namespaces and a root of their own, and a PATH of the image, as a container has them.
CONTAINER = """#!/bin/sh
[ -n "$INSIDE" ] || INSIDE=1 exec unshare --mount --pid --fork "$0" "$@"
mkdir -p "$ROOT/usr" "$ROOT/proc" "$ROOT$MUSTER_JOB_DIR"
mount --rbind /usr "$ROOT/usr"
mount --bind "$MUSTER_JOB_DIR" "$ROOT$MUSTER_JOB_DIR"
mount -t proc proc "$ROOT/proc"
for folder in bin lib lib64 sbin; do [ -e "$ROOT/$folder" ] || ln -s "usr/$folder" "$ROOT/$folder"; done
exec /usr/sbin/chroot "$ROOT" /usr/bin/env PATH=/bin /usr/bin/sleep 3600
"""


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
                    reason="only root, where mount namespaces are permitted, makes something like a container")
def test_a_session_is_in_the_container_of_its_rank_and_says_so_where_there_is_none_yet(cluster, tmp_path):
    fake, root = tmp_path / "podman", tmp_path / "root"
    fake.write_text(CONTAINER)
    fake.chmod(0o755)
    spec = in_image("docker://localhost/mini:1", "true", f"{tmp_path}:/usr/bin:/bin")
    spec["command"]["env"]["ROOT"] = str(root)
    job = cluster.submit(spec)["id"]
    cluster.wait(job, "running")

    def run(*argv):
        assert cluster.job(job)["state"] == "running", cluster.log_text(job)
        return cluster.muster("exec", job, "--", *argv)
    done = wait_for("the container", lambda: (lambda d: d if not d.stderr else None)(run(
        "sh", "-c", "echo $PATH; pwd; [ -e /etc ] || echo no etc; tr '\\0' ' ' < /proc/1/cmdline")))
    assert done.stdout.split("\n") == ["/bin", cluster.job(job)["dir"], "no etc", "/usr/bin/sleep 3600 "]
    assert run("sh", "-c", "exit 7").returncode == 7
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    fake.write_text("#!/bin/sh\nexec sleep 3600\n")
    job = cluster.submit(spec)["id"]
    cluster.wait(job, "running")
    done = run("echo", "out")
    assert done.stdout == "out\n" and "this runs on the node, beside the job's container" in done.stderr
    cluster.action(job, "cancel")


def test_a_node_without_podman_and_apptainer_says_so(cluster, tmp_path):
    ended = cluster.wait(cluster.submit(in_image("docker://localhost/mini:1", "true", str(tmp_path)))["id"], "failed")
    assert ended["outcome"]["class"] == "node"
    assert "neither podman nor apptainer" in ended["outcome"]["message"]


@pytest.mark.parametrize("image", ["mini", "docker://", "docker://-v/:/host", "--privileged", "docker:///x",
                                   "docker://a b", "/a:/b", "oci:/x"])
def test_what_is_no_image_is_refused(cluster, image):
    with pytest.raises(ApiError, match="/command/image"):
        cluster.submit(in_image(image, "true"))


@pytest.fixture(name="runroot")
def fixture_runroot(tmp_path):
    """podman wants a short path."""
    folder = tempfile.mkdtemp(prefix="mp", dir="/tmp")
    yield folder
    subprocess.run(["umount", "-q", str(tmp_path / "store" / "overlay")], check=False)  # podman leaves it mounted
    shutil.rmtree(folder, ignore_errors=True)


def test_a_program_runs_in_a_real_image(cluster, tmp_path, runroot):
    busybox = "/bin/busybox"
    if not shutil.which("podman") or not os.path.exists(busybox):
        pytest.skip("podman and busybox-static are not installed")
    root = tmp_path / "root" / "bin"
    root.mkdir(parents=True)
    for name in ("busybox", "sh", "cat"):
        shutil.copy(busybox, root / name)
    subprocess.run(["tar", "-C", str(tmp_path / "root"), "-cf", str(tmp_path / "image.tar"), "."], check=True)
    store = ["--root", str(tmp_path / "store"), "--runroot", runroot]
    wrapper = tmp_path / "podman"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("podman")} {" ".join(store)} "$@"\n')
    wrapper.chmod(0o755)
    env = dict(os.environ, HOME=str(tmp_path))
    for args in (["import", "-q", str(tmp_path / "image.tar"), "localhost/mini:1"],
                 ["run", "--rm", "--network=host", "--cgroups=disabled", "--ulimit=host", "localhost/mini:1", "sh",
                  "-c", "true"]):
        done = subprocess.run([str(wrapper), *args], capture_output=True, text=True, env=env, timeout=PATIENCE_S,
                              check=False)
        if done.returncode != 0:
            pytest.skip(f"this machine lets podman run nothing: {done.stderr.strip()[-200:]}")
    job = cluster.submit(in_image("docker://localhost/mini:1", "echo $RANK of $WORLD_SIZE > out; cat out",
                                  f"{tmp_path}:/usr/bin:/bin"))["id"]
    ended = cluster.wait(job, "succeeded")
    assert cluster.log_text(job) == "0 of 1\n"
    with open(os.path.join(ended["dir"], "out"), encoding="ascii") as f:
        assert f.read() == "0 of 1\n"
