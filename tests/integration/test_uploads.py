"""Jobs that bring their files along: an upload of a folder, or a commit of a repository, laid out where they run."""
import glob
import hashlib
import json
import os
import re
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, ApiError, Cluster
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("uploads")), slots=4,
                 server_args=["--max-upload", "2m", "--user-uploads", "3m"]) as c:
        yield c
    assert not c.leftovers()


def muster(cluster, *args, cwd=None, **env):
    return subprocess.run([f"{BIN}/muster", *args], capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd,
                          env=dict(cluster.cli_env(), **env), check=False)


def submit(cluster, *args, cwd):
    """Submit with the CLI; the job's id."""
    done = muster(cluster, "submit", *args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return re.match(r"submitted (j\d+)", done.stdout)[1]


def folder(path, **files):
    for name, text in files.items():
        at = path / name.replace("__", "/").replace("_dot_", ".")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
    return path


def bundle_of(cluster, job):
    return cluster.job(job)["spec"]["command"]["bundle"]


def pack(*entries):
    """A bundle of (kind, path, contents), as they are given."""
    text = b"MUSTERB1"
    for kind, path, data in entries:
        path, data = path.encode(), data.encode()
        text += kind.encode() + len(path).to_bytes(2, "little") + len(data).to_bytes(8, "little") + path + data
    return text, hashlib.sha256(text).hexdigest()


def put(cluster, data, name, offset=0, size=None, token=None):
    return cluster.request("PUT", f"/v1/bundles/{name}?size={size or len(data)}&offset={offset}", data, token=token,
                           headers={"Content-Type": "application/octet-stream"})


def test_a_program_runs_in_a_copy_of_its_folder(cluster, tmp_path):
    folder(tmp_path, main_dot_py="import lib.part\nprint(lib.part.WORD)\nopen('made', 'w').write('x')\n",
           lib__part_dot_py="WORD = 'from the copy'\n", data__big_dot_bin="x" * 1000000,
           _dot_musterignore="data/\n*.log\n", run_dot_log="noise")
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool of $RANK\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "link").symlink_to("lib/part.py")
    job = submit(cluster, "--upload", ".", "--", "sh", "-c", "python3 main.py && ./tool && find . | sort && cat link",
                 cwd=tmp_path)
    done = cluster.wait(job, "succeeded")
    text = cluster.log_text(job)
    assert text.startswith("from the copy\ntool of 0\n") and text.endswith("WORD = 'from the copy'\n")
    assert "./lib/part.py" in text and "big.bin" not in text and "run.log" not in text
    assert not (tmp_path / "made").exists()
    assert os.path.exists(os.path.join(done["dir"], "work", "made"))


def test_the_same_files_have_the_same_name_whatever_their_times_and_are_sent_once(cluster, tmp_path):
    names = []
    for k, order in enumerate((["a", "b", "c/d"], ["c/d", "b", "a"])):
        top = tmp_path / str(k)
        for name in order:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(name)
        os.utime(top / "a", (k, k))
        (top / "a").chmod(0o600 if k else 0o664)
        job = submit(cluster, "--upload", ".", "--", "cat", "a", "b", "c/d", cwd=top)
        cluster.wait(job, "succeeded")
        assert cluster.log_text(job) == "abc/d\n"
        names.append(bundle_of(cluster, job))
    assert names[0] == names[1]
    puts = [e for e in cluster.list("/v1/audit", "audit") if names[0] in json.dumps(e)]
    assert len([e for e in puts if "PUT" in json.dumps(e)]) == 1


def test_what_a_run_leaves_in_the_copy_the_next_one_finds_and_all_ranks_share_it(cluster, tmp_path):
    folder(tmp_path, go_dot_sh="echo $RANK >> ranks\n[ -e again ] || { touch again; exit 1; }\n")
    job = submit(cluster, "--devices", "3", "--set", "retry.user=3", "--upload", str(tmp_path), "--", "sh", "go.sh",
                 cwd="/")
    done = cluster.wait(job, "succeeded")
    with open(os.path.join(done["dir"], "work", "ranks"), encoding="ascii") as f:
        assert set(f.read().split()) == {"0", "1", "2"}
    assert [n for n in os.listdir(done["dir"]) if n.startswith(".work")] == []


def test_workdir_is_a_folder_of_the_copy_and_does_not_leave_it(cluster, tmp_path):
    folder(tmp_path, src__main_dot_sh="pwd\n")
    job = submit(cluster, "--upload", ".", "--workdir", "src", "--", "sh", "main.sh", cwd=tmp_path)
    assert cluster.wait(job, "succeeded")
    assert cluster.log_text(job) == os.path.join(cluster.job(job)["dir"], "work", "src") + "\n"
    for wrong in ("../x", "/tmp"):
        done = muster(cluster, "submit", "--upload", ".", "--workdir", wrong, "--", "sh", "main.sh", cwd=tmp_path)
        assert done.returncode == 4 and "/command/workdir" in done.stderr


@pytest.mark.parametrize("make, words", [
    (lambda d: os.mkfifo(d / "pipe"), "'pipe' is a pipe, socket or device"),
    (lambda d: (d / "out").symlink_to("/etc/passwd"), "'out' leads to '/etc/passwd', out of its folder"),
    (lambda d: (d / "sub" / "out").symlink_to("../../x"), "out of its folder"),
    (lambda d: (d / "big").write_bytes(bytes(2 << 20)), "this server takes 2"),
])
def test_what_cannot_be_uploaded_is_said_by_name(cluster, tmp_path, make, words):
    folder(tmp_path, sub__a="x")
    make(tmp_path)
    done = muster(cluster, "submit", "--upload", ".", "--", "true", cwd=tmp_path)
    assert done.returncode == 4 and words in done.stderr, done.stderr


@pytest.mark.parametrize("entries, words", [
    ([("f", "../escape", "x")], "does not stay in its folder"),
    ([("f", "/etc/escape", "x")], "does not stay in its folder"),
    ([("f", "a/./b", "x")], "does not stay in its folder"),
    ([("l", "up", ".."), ("f", "up/escape", "x")], "out of its folder"),
    ([("l", "d", "."), ("f", "d/x", "x")], "which is no folder"),
    ([("l", "x/l", "a/../../.."), ], "out of its folder"),
    ([("f", "a", "x"), ("f", "a", "y")], "there twice"),
    ([("c", "device", "")], "neither a file nor a link"),
])
def test_a_hostile_bundle_is_refused_before_any_job_can_name_it(cluster, entries, words):
    data, name = pack(*entries)
    status, answer = put(cluster, data, name)[:2]
    assert status == 422 and words in json.dumps(answer), answer
    assert cluster.request("GET", f"/v1/bundles/{name}")[0] == 404


def test_an_upload_goes_on_where_it_was_cut_and_pieces_that_do_not_fit_are_refused(cluster):
    data, name = pack(("f", "a", "x" * 100000))
    assert put(cluster, data[:40000], name, 0, len(data))[1] == {"name": name, "stored": 40000, "complete": False}
    assert put(cluster, data[:40000], name, 0, len(data))[0] == 409
    assert put(cluster, data[50000:], name, 50000, len(data))[0] == 409
    assert put(cluster, data[40000:] + b"more", name, 40000, len(data))[0] == 422
    assert cluster.api("GET", f"/v1/bundles/{name}")["stored"] == 40000
    spec = specs.command("true")
    spec["command"]["bundle"] = name
    with pytest.raises(ApiError, match="an upload that you do not have"):
        cluster.submit(spec)
    assert put(cluster, data[40000:], name, 40000, len(data))[1]["complete"] is True
    assert put(cluster, data, name)[1]["complete"] is True  # once more is as good as once
    cluster.wait(cluster.submit(spec)["id"], "succeeded")


def test_bytes_that_are_not_what_they_are_called_are_not_kept(cluster):
    data, name = pack(("f", "a", "x"))
    status, answer = put(cluster, data[:-1] + b"y", name)[:2]
    assert status == 422 and "its files have changed" in json.dumps(answer)
    assert cluster.request("GET", f"/v1/bundles/{name}")[0] == 404


def test_another_user_who_knows_the_name_has_nothing_by_it(cluster):
    data, name = pack(("f", "secret", "of the first"))
    assert put(cluster, data, name)[0] == 200
    token = cluster.api("POST", "/v1/tokens", {"user": "mallory"})["token"]
    assert cluster.request("GET", f"/v1/bundles/{name}", token=token)[0] == 404
    spec = specs.command("cat secret")
    spec["command"]["bundle"] = name
    with pytest.raises(ApiError, match="an upload that you do not have"):
        cluster.api("POST", "/v1/jobs", spec, token=token)


def test_one_user_fills_no_disk_with_uploads(cluster):
    token = cluster.api("POST", "/v1/tokens", {"user": "greedy"})["token"]
    kept = [put(cluster, *pack(("f", "a", str(k) * 900000)), token=token)[0] for k in range(5)]
    assert kept == [200, 200, 200, 403, 403]


def test_an_upload_that_is_damaged_on_the_disk_runs_nowhere(cluster, tmp_path):
    holder = cluster.submit(specs.command("sleep 100000", devices=4))["id"]
    cluster.wait(holder, "running")
    job = submit(cluster, "--upload", str(folder(tmp_path, a="echo hello")), "--", "sh", "a", cwd="/")
    path = glob.glob(f"{cluster.jobs_dir}/.bundles/*/{bundle_of(cluster, job)}")[0]
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"X")
    cluster.action(holder, "cancel")
    outcome = cluster.wait(job, "failed")["outcome"]
    assert "is damaged" in outcome["message"], outcome
    assert not os.path.exists(os.path.join(cluster.job(job)["dir"], "work"))


# --- repositories ---------------------------------------------------------------------------------------


def git(repo, *args):
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.check_output(["git", "-C", str(repo), *who, *args], text=True, stderr=subprocess.STDOUT,
                                   timeout=PATIENCE_S).strip()


def commit(repo, text):
    (repo / "word").write_text(text)
    (repo / "run.sh").write_text("cat word; git log --oneline 2>/dev/null | wc -l\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", text)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """Three commits: `main` is at the last, the annotated tag v1 at the first, `side` at the second."""
    top = tmp_path_factory.mktemp("repo")
    git(top, "init", "-q", "-b", "main")
    ids = [commit(top, "first\n")]
    git(top, "tag", "-a", "v1", "-m", "one")
    ids.append(commit(top, "second\n"))
    git(top, "branch", "side")
    ids.append(commit(top, "third\n"))
    hook = top / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\necho hooked\n")
    hook.chmod(0o755)
    return top, ids


@pytest.mark.parametrize("ref, which", [(None, 2), ("main", 2), ("side", 1), ("v1", 0), ("refs/heads/side", 1), (0, 0)])
def test_a_repository_is_checked_out_at_the_commit_that_its_ref_was(cluster, repo, ref, which):
    top, ids = repo
    words = [] if ref is None else ["--ref", ids[ref] if isinstance(ref, int) else ref]
    job = submit(cluster, "--git", ".", *words, "--", "sh", "run.sh", cwd=top)
    cluster.wait(job, "succeeded")
    assert cluster.job(job)["spec"]["command"]["git"]["commit"] == ids[which]
    assert cluster.log_text(job) == f"{['first', 'second', 'third'][which]}\n1\n"  # that commit alone, and no hook


def test_a_branch_that_moves_after_the_submit_changes_nothing(cluster, tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "before\n")
    holder = cluster.submit(specs.command("sleep 100000", devices=4))["id"]
    cluster.wait(holder, "running")
    job = submit(cluster, "--git", str(tmp_path), "--", "sh", "run.sh", cwd="/")
    commit(tmp_path, "after\n")
    cluster.action(holder, "cancel")
    cluster.wait(job, "succeeded")
    assert cluster.log_text(job).startswith("before\n")


@pytest.mark.parametrize("args, status, words", [
    (["--git", "ext::sh -c touch% pwned"], 3, "no repository at"),
    (["--git", "--upload-pack=touch pwned"], 3, "no repository at"),
    (["--git", "http://127.0.0.1:1/a"], 4, "no repository that a job may name"),
    (["--git", "https://ann:hunter2@127.0.0.1:1/a"], 4, "password in it"),
    (["--git", ".", "--ref", "--output=pwned"], 4, "no name of a branch"),
    (["--git", ".", "--ref", "nowhere"], 3, "has no branch or tag 'nowhere'"),
    (["--git", ".", "--upload", "."], 2, "not in both"),
])
def test_an_address_that_git_would_read_otherwise_is_refused(cluster, repo, args, status, words):
    done = muster(cluster, "submit", *args, "--", "true", cwd=repo[0])
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "hunter2" not in done.stderr and not os.path.exists(repo[0] / "pwned")


def test_the_server_takes_a_repository_with_its_commit_alone_and_no_password(cluster, repo):
    spec = specs.command("true")
    for git_, pointer in (({"url": str(repo[0]), "ref": "main"}, "/command/git/commit"),
                          ({"url": "ssh://-oProxyCommand=x/a", "commit": "0" * 40}, "/command/git/url"),
                          ({"url": "https://a:b@h/p", "commit": "0" * 40}, "/command/git/url"),
                          ({"commit": "0" * 40}, "/command/git/url")):
        spec["command"]["git"] = git_
        with pytest.raises(ApiError, match=pointer):
            cluster.submit(spec)


def test_a_commit_that_is_not_there_fails_by_its_node_with_the_words_of_git_in_the_log(cluster, repo):
    spec = specs.command("true", retry={"max": 0})
    spec["command"]["git"] = {"url": str(repo[0]), "commit": "1" * 40}
    job = cluster.submit(spec)["id"]
    ended = cluster.wait(job, "failed")
    assert ended["outcome"]["class"] == "node" and "git failed" in ended["outcome"]["message"], ended["outcome"]
    assert "1" * 40 in cluster.log_text(job)
    assert not os.path.exists(f"{ended['dir']}/work")
