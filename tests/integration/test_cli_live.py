"""The CLI against a real server and agent: every command that talks to them, as people and as scripts use it."""
import importlib.util
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time

import pytest
import yaml

from tests import specs
from tests.cluster import BIN, MARK, ROOT, Cluster, command_line, free_port, marked, wait_for
from tests.patience import PATIENCE_S

TRAIN = {"steps": 60, "tp": 2, "every_steps": 20}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cli")), slots=4) as c:
        specs.write_corpus(os.path.join(c.folder, "corpus.txt"), documents=120)
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def trained(cluster):
    """A training job that has ended, submitted from YAML with a path relative to where the CLI runs."""
    spec = specs.train("corpus.txt", **TRAIN)
    spec["train"]["data"]["path"] = "corpus.txt"
    spec["train"]["eval"]["every_steps"] = 20
    write(cluster, "train.yaml", yaml.safe_dump(spec))
    job = said(cluster, "submit", "train.yaml", "-o", "json")["id"]
    cluster.wait(job, "succeeded")
    return job


def write(cluster, name, text):
    with open(os.path.join(cluster.folder, name), "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))
    return name


def run(cluster, *args, status=0, stdin=None, **env):
    """Run the CLI in the cluster's folder; its result, which must have this exit status."""
    env = dict(cluster.env, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token(), **env)
    out = subprocess.run([f"{BIN}/muster", *args], input=stdin, stdin=None if stdin else subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=PATIENCE_S, env=env, cwd=cluster.folder, check=False)
    assert out.returncode == status, f"muster {args}: {out.returncode}\n{out.stdout}\n{out.stderr}"
    assert "\033" not in out.stdout + out.stderr, "escapes in a pipe"
    return out


def said(cluster, *args, **more):
    """The one JSON document that a command prints."""
    return json.loads(run(cluster, *args, **more).stdout)


def command(cluster, script, name="command", **extra):
    """Submit a shell script; the job's id."""
    spec = specs.command(script, name=name, **extra)
    return said(cluster, "submit", "-", "-o", "json", stdin=json.dumps(spec))["id"]


# --- submit --------------------------------------------------------------------------------------------

def test_a_program_is_submitted_as_it_is_typed_and_runs_in_this_folder(cluster):
    write(cluster, "own.sh", 'echo "rank $RANK of $WORLD_SIZE in $PWD: $*" > "$PWD/said-$RANK"\n')
    shown = run(cluster, "submit", "--devices", "2", "--name", "mine", "--", "sh", "own.sh", "--devices", "a b", "$x")
    job = re.match(r"submitted (j\d+) \(mine\)", shown.stdout).group(1)
    cluster.wait(job, "succeeded")
    for rank in range(2):
        with open(os.path.join(cluster.folder, f"said-{rank}"), encoding="utf-8") as f:
            assert f.read() == f"rank {rank} of 2 in {cluster.folder}: --devices a b $x\n"
    assert "(own.sh)" in run(cluster, "submit", "--", "/bin/sh", "./own.sh").stdout
    os.mkdir(os.path.join(cluster.folder, "below"))
    job = said(cluster, "submit", "--workdir", "below", "-o", "json", "--", "sh", "-c", "pwd > here")["id"]
    cluster.wait(job, "succeeded")
    with open(os.path.join(cluster.folder, "below", "here"), encoding="utf-8") as f:
        assert f.read() == f"{cluster.folder}/below\n"
    refused = run(cluster, "submit", "--name", "", "--", "true", status=4).stderr
    assert "'the command line' is refused" in refused and "/name" in refused


def test_a_program_that_takes_other_devices_is_submitted_with_a_range_of_them(cluster):
    job = said(cluster, "submit", "--devices", "1-3", "--elastic", "--dry-run", "-o", "json", "--", "true")
    assert (job["spec"]["devices"]["min"], job["spec"]["devices"]["max"]) == (1, 3)
    assert job["spec"]["command"]["elastic"] is True
    job = said(cluster, "submit", "--devices", "1-3", "--elastic", "-o", "json", "--", "true")["id"]
    assert cluster.job(job)["spec"]["command"]["elastic"] is True
    write(cluster, "t.yaml", "train: {model: {preset: gpt2-124m}, data: {path: /x}, batch: {sequences: 1}, steps: 1}\n")
    assert "training job may always" in run(cluster, "submit", "--elastic", "t.yaml", status=2).stderr


def test_submit_takes_yaml_json_and_standard_input(cluster):
    spec = specs.command("echo hello")
    write(cluster, "c.json", spec)
    write(cluster, "c.yaml", "# by hand\n" + yaml.safe_dump(spec))
    jobs = [run(cluster, "submit", "c.json").stdout, run(cluster, "submit", "c.yaml").stdout,
            run(cluster, "submit", "-", stdin=yaml.safe_dump(spec)).stdout]
    for text in jobs:
        job = re.fullmatch(r"submitted (j\d+) \(command\)\n", text).group(1)
        cluster.wait(job, "succeeded")
        assert run(cluster, "logs", job).stdout == "hello\n"


def test_relative_paths_are_made_absolute(cluster, trained):
    spec = said(cluster, "show", trained, "-o", "json")["spec"]
    assert spec["train"]["data"]["path"] == os.path.join(cluster.folder, "corpus.txt")


def test_set_changes_the_spec(cluster, trained):
    assert trained
    plan = said(cluster, "plan", "train.yaml", "--set", "train.steps=7", "--set", "parallel.tp=1", "--set=name=other",
                "--set", "devices={\"min\": 2}", "--set", "train.model=gpt2-tiny", "--set", "train.model.dropout=0.5",
                "-o", "json")
    assert plan["dry_run"] and plan["plan"]["layout"] == {"tp": 1, "pp": 1, "dp": 2, "cp": 1}
    spec = plan["spec"]
    assert spec["train"]["steps"] == 7 and spec["name"] == "other"
    assert spec["train"]["model"]["layers"] == 4 and spec["train"]["model"]["dropout"] == 0.5
    text = run(cluster, "submit", "train.yaml", "--dry-run").stdout
    assert "the spec is good; it would run as tp 2 x pp 1 x cp 1 x dp 1" in text


def test_name_project_and_priority_go_before_the_spec(cluster):
    write(cluster, "named.json", specs.command("true"))
    job = said(cluster, "submit", "named.json", "--name", "mine", "--project", "lab", "--priority", "7", "-o", "json")
    assert (job["name"], job["project"], job["priority"]) == ("mine", "lab", 7)
    found = said(cluster, "list", "--project", "lab", "-o", "json")["jobs"]
    assert [j["id"] for j in found] == [job["id"]]


def test_a_job_is_found_by_its_name(cluster):
    write(cluster, "called.json", specs.command("echo found"))
    jobs = [said(cluster, "submit", "called.json", "--name", name, "-o", "json")["id"]
            for name in ("by-name", "by-name", "by-name-too")]
    for job in jobs:
        cluster.wait(job, "succeeded")
    assert run(cluster, "logs", "by-name-too").stdout == "found\n"
    several = run(cluster, "-o", "json", "show", "by-name")
    assert json.loads(several.stdout)["id"] == jobs[1] and f"{jobs[1]}, the newest of 2 jobs" in several.stderr
    refused = run(cluster, "cancel", "by-name", status=2).stderr
    assert "2 jobs are called 'by-name'" in refused and jobs[1] in refused
    assert "no job is called 'by-nam'" in run(cluster, "show", "by-nam", status=3).stderr
    words = [line.split("\t") for line in run(cluster, "completion", "jobs").stdout.splitlines()]
    assert [jobs[2], "by-name-too, succeeded"] in words and words[0][0] == jobs[2]
    assert run(cluster, "completion", "nodes").stdout.split("\t")[0] == "n1"


def test_the_shell_completes_what_the_server_knows(cluster):
    """In bash itself: jobs for show, nodes and no files for drain, files again where the server is away."""
    probe = 'source <(muster completion bash)\ntouch n-file\n' \
            'for line in "show j" "drain n" "checkpoint list n-f"; do\n' \
            '  COMP_WORDS=(muster $line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _muster\n' \
            '  echo "${COMPREPLY[*]}"; done\n'
    env = dict(cluster.env, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token(), PATH=f"{BIN}:/usr/bin:/bin")
    out = subprocess.run(["bash"], input=probe, capture_output=True, text=True, env=env, cwd=cluster.folder,
                         timeout=PATIENCE_S, check=True).stdout.splitlines()
    assert re.fullmatch(r"j\d+( j\d+)*", out[0]) and out[1:] == ["n1", "n-file"]


def test_a_job_is_submitted_again_with_changes(cluster, trained):
    again = said(cluster, "resubmit", trained, "--set", "train.steps=20", "--priority", "7", "--name", "again",
                 "-o", "json")
    old, new = cluster.job(trained)["spec"], cluster.job(again["id"])["spec"]
    assert new["train"].pop("steps") == 20 and old["train"].pop("steps") == 60
    assert (new.pop("name"), new.pop("priority")) == ("again", 7) and old.pop("name") and old.pop("priority") == 50
    assert new == old
    cluster.wait(again["id"], "succeeded")
    first = command(cluster, "test \"$WORD\" = good", name="with-env")
    cluster.wait(first, "failed")
    out = run(cluster, "resubmit", "with-env", "--set", "command.env.WORD=good", "--after", again["id"],
              "--watch").stdout
    job = out.split()[1]
    assert out.endswith(f"{job} succeeded: every rank is done\n")
    third = said(cluster, "resubmit", job, "-o", "json")["id"]
    assert cluster.wait(third, "succeeded")["spec"].get("after") in (None, [])
    assert "no job is called" in run(cluster, "resubmit", "never-was", status=3).stderr
    eve = run(cluster, "token", "create", "eve", "--role", "viewer").stdout.strip()
    refused = subprocess.run([f"{BIN}/muster", "resubmit", job, "--server", cluster.url, "--token", eve],
                             env=cluster.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert refused.returncode == 4
    assert "'WORD'" in refused.stderr and "--set command.env.WORD=" in refused.stderr


def test_watch_ends_with_the_outcome_of_a_training_job(cluster, trained):
    assert trained
    out = run(cluster, "submit", "train.yaml", "--watch", "--set", "train.steps=40")
    lines = out.stdout.splitlines()
    job = lines[0].split()[1]
    assert f"{job} running: training on 2 devices of n1" in lines
    assert lines[-1] == f"{job} succeeded: every rank is done"
    assert any(re.fullmatch(r"step 40/40  loss \d\.\d{4}  \d+ tokens/s", line) for line in lines), lines
    assert any(re.fullmatch(r"step 20  evaluation loss \d\.\d{4}", line) for line in lines)
    assert any(re.fullmatch(r"step 40  checkpoint of \d\.\d MiB in \d\.\d\d s", line) for line in lines)


def test_a_failed_job_is_a_failed_command(cluster):
    spec = json.dumps(specs.command("echo last words; exit 3"))
    watched = run(cluster, "submit", "-", "--watch", stdin=spec, status=1)
    assert "failed (user): rank 0 on n1: ended with exit code 3\n  | last words" in watched.stderr
    row = run(cluster, "list", "--state", "failed", "-n", "1").stdout.splitlines()[-1]
    assert row.endswith("rank 0 on n1: ended with exit code 3")
    followed = run(cluster, "submit", "-", "--follow", stdin=spec, status=1)
    assert followed.stdout.endswith("[0] last words\n") and "exit code 3" in followed.stderr
    document = said(cluster, "submit", "-", "--watch", "-o", "json", stdin=spec, status=1)
    assert document["state"] == "failed" and document["outcome"]["exit_code"] == 3
    assert said(cluster, "watch", document["id"], "-o", "json", status=1) == document


def test_a_key_queues_one_job(cluster):
    write(cluster, "once.json", specs.command("true"))
    first = run(cluster, "submit", "once.json", "--key", "k-1").stdout
    again = run(cluster, "submit", "once.json", "--key", "k-1").stdout
    job = first.split()[1]
    assert again == f"submitted before: {job} (command)\n"
    other = run(cluster, "submit", "once.json", "--key", "k-1", "--set", "name=another", status=4)
    assert "k-1" in other.stderr


def test_of_a_job_that_has_ended_its_end_is_told(cluster, trained):
    line = f"{trained} succeeded: every rank is done"
    assert run(cluster, "watch", trained).stdout == line + "\n"
    assert len(run(cluster, "watch", trained, "--history").stdout.splitlines()) > 3
    row = next(r for r in run(cluster, "list").stdout.splitlines() if r.startswith(trained + " "))
    assert re.search(r" 2 +60/60 ", row), row
    job = said(cluster, "submit", "-o", "json", "--", "sh", "-c",
               "echo '{\"step\": 7, \"loss\": 0.5}' > $MUSTER_RUN_DIR/metrics.jsonl; exit 3")["id"]
    failed = run(cluster, "watch", job, status=1)
    assert "exit code 3" in failed.stderr
    assert run(cluster, "watch", job, status=1).stdout.count("\n") == 1
    shown = run(cluster, "show", job).stdout
    assert re.search(r"^progress +step 7, loss 0.5000$", shown, re.M), shown
    help_of_it = run(cluster, "explain", job).stdout
    assert "retry.user" in help_of_it and "retry.max" not in help_of_it


# --- what is refused -----------------------------------------------------------------------------------

def test_all_faults_of_a_spec_are_said_at_once_by_file_and_pointer(cluster):
    spec = specs.train("/etc/hosts", tp=3, devices=64)
    spec["train"].update(stepz=5, steps="many")
    spec["train"]["model"]["heads"] = 0
    spec["name"] = "no blanks"
    write(cluster, "bad.json", spec)
    before = len(cluster.list_jobs())
    for args in (["submit", "bad.json"], ["plan", "bad.json"], ["submit", "bad.json", "--dry-run", "-o", "json"]):
        out = run(cluster, *args, status=4)
        assert out.stdout == ""
        for pointer in ("/train/stepz", "/train/steps", "/train/model/heads", "/name", "/parallel/tp"):
            assert re.search(rf"^  bad\.json:{pointer}: .", out.stderr, re.M), out.stderr
        assert "did you mean 'steps'?" in out.stderr and "muster: 'bad.json' is refused for 5 faults" in out.stderr
    assert len(cluster.list_jobs()) == before


def test_a_submit_is_refused_where_its_corpus_tokenizer_or_weights_are_not_there(cluster):
    spec = specs.train("corpus.txt", steps=6, devices=1)
    data = spec["train"]["data"]
    data.update(path=f"{cluster.folder}/missing.txt", tokenizer="gpt2", tokenizer_path="no/bpe", vocabs=1)
    spec["train"]["init"]["from"] = f"{cluster.folder}/corpus.txt/deeper"
    write(cluster, "missing.json", spec)
    before = len(cluster.list_jobs())
    err = run(cluster, "submit", "missing.json", status=4).stderr
    for pointer in ("/train/data/path", "/train/data/tokenizer_path", "/train/init/from"):
        assert re.search(rf"^  missing\.json:{pointer}: '/.*--no-check-files", err, re.M), err
    assert re.search(r"^  missing\.json:/train/data/vocabs: ", err, re.M), err  # what else is wrong is said with it
    del data["vocabs"], spec["train"]["init"]["from"]
    data.update(path=cluster.folder, tokenizer="bytes", tokenizer_path=None)
    del data["tokenizer_path"]
    write(cluster, "missing.json", spec)
    assert "Is a directory" in run(cluster, "submit", "missing.json", "--dry-run", status=4).stderr
    assert len(cluster.list_jobs()) == before
    data["path"] = f"{cluster.folder}/missing.txt"
    write(cluster, "missing.json", spec)
    job = said(cluster, "submit", "missing.json", "--no-check-files", "-o", "json")["id"]
    assert "missing.txt" in cluster.wait(job, "failed")["outcome"]["message"]


def test_forty_faults_are_not_cut(cluster):
    spec = dict(specs.command("true"), **{f"unknown{'x' * 40}{i}": 1 for i in range(40)})
    write(cluster, "many.json", spec)
    err = run(cluster, "submit", "many.json", status=4).stderr
    assert all(f"  many.json:/unknown{'x' * 40}{i}: " in err for i in range(40))


@pytest.mark.parametrize("args,status,says", [
    (["show", "j9999"], 3, "no job 'j9999'; `muster list` shows those there are"),
    (["watch", "j9999"], 3, "no job 'j9999'"),
    (["logs", "j9999"], 3, "no job 'j9999'"),
    (["logs", "j9999", "-f"], 3, "no job 'j9999'"),
    (["events", "j9999"], 3, "no job 'j9999'"),
    (["events", "j9999", "-f"], 3, "no job 'j9999'"),
    (["metrics", "j9999"], 3, "no job 'j9999'"),
    (["explain", "j9999"], 3, "no job 'j9999'"),
    (["cancel", "j9999"], 3, "no job 'j9999'"),
    (["scale", "j9999", "--max", "3"], 3, "no job 'j9999'"),
    (["checkpoint", "list", "j9999"], 3, "no job 'j9999'"),
    (["checkpoint", "now", "j9999"], 3, "no job 'j9999'"),
    (["sample", "j9999"], 3, "no job 'j9999'"),
    (["drain", "n9"], 3, "no node 'n9'; `muster nodes` shows those there are"),
    (["drain", "n1", "--deadline", "0"], 2, "--deadline"),
    (["list", "--state", "dancing"], 4, "'dancing' is no list of states"),
    (["list", "--token", "wrong"], 4, "this token is not known here"),
    (["logs", "j1", "-f", "--token", "wrong"], 4, "this token is not known here"),
])
def test_what_is_not_there_or_not_allowed_is_said(cluster, args, status, says):
    out = run(cluster, *args, status=status)
    assert says in out.stderr and out.stdout == "" and out.stderr.startswith("muster: ")


def test_a_server_that_is_down_is_said(cluster):
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    out = run(cluster, "list", "--server", url, status=5)
    assert f"cannot reach the server at '{url}'" in out.stderr
    assert time.monotonic() - began < 60


# --- looking -------------------------------------------------------------------------------------------

def test_list_filters_and_goes_over_pages(cluster, trained):
    rows = run(cluster, "list", "--state", "succeeded,failed").stdout.splitlines()
    assert re.match(r"JOB +NAME +USER +STATE +AHEAD +KIND +PRI +DEVICES +STEP +TIME +WHY$", rows[0])
    assert any(re.match(rf"{trained} +small +admin +succeeded +train +50 +2 +60/60 +\d+s +every rank is done$", r)
               for r in rows)
    command(cluster, "true")
    every = [j["id"] for j in cluster.list_jobs()]
    assert len(every) >= 2
    assert [j["id"] for j in said(cluster, "list", "-o", "json")["jobs"]] == every
    one = said(cluster, "list", "-n", "1", "-o", "json")
    assert [j["id"] for j in one["jobs"]] == every[:1] and one["next_cursor"]
    assert "there are older ones" in run(cluster, "list", "-n", "1").stderr
    none = run(cluster, "list", "--user", "nobody")
    assert none.stdout == "" and none.stderr == "no such jobs\n"


def test_show_tells_all_of_a_job(cluster, trained):
    text = run(cluster, "show", trained).stdout
    for line in (f"job           {trained}", "state         succeeded: every rank is done",
                 "devices       used 2 (2 to 2 allowed)", "layout        tp 2 x pp 1 x cp 1 x dp 1"):
        assert line in text.splitlines(), text
    assert re.search(r"^took          \d+s$", text, re.M) and "outcome" not in text
    assert re.search(r"^progress      step 60 of 60, loss \d\.\d{4}, \d+ tokens/s$", text, re.M)
    assert re.search(r"^evaluation    loss \d\.\d{4} at step 60$", text, re.M)
    assert said(cluster, "show", trained, "-o", "json") == cluster.job(trained)
    assert said(cluster, "show", trained[1:], "-o", "json")["id"] == trained  # the number alone
    assert run(cluster, "explain", trained).stdout == f"{trained} succeeded: every rank is done\n"


def test_events_are_printed_in_words_and_whole(cluster, trained):
    text = run(cluster, "events", trained).stdout
    assert re.search(rf"^....-..-..T..:..:..Z  {trained} +state +queued -> starting: 2 devices of n1$", text, re.M)
    assert re.search(r"eval +step 20  evaluation loss \d\.\d{4}$", text, re.M)
    assert re.search(r"checkpoint +step 40  \d\.\d MiB in \d\.\d\d s: /.*step-00000040$", text, re.M)
    document = said(cluster, "events", trained, "-o", "json")
    assert document["events"] == cluster.events(trained) and document["next_cursor"] is None
    two = said(cluster, "events", trained, "-n", "2", "-o", "json")
    assert two["events"] == document["events"][:2] and two["next_cursor"]
    assert {e["id"] for e in document["events"]} <= {e["id"] for e in said(cluster, "events", "-o", "json")["events"]}
    followed = run(cluster, "events", trained, "-f", "-o", "json").stdout.splitlines()
    assert [json.loads(line) for line in followed] == document["events"]


def test_logs_follow_a_job_and_choose_a_rank(cluster):
    job = command(cluster, "for i in 1 2 3; do echo line $i of $RANK; sleep 0.2; done", devices=2)
    followed = run(cluster, "logs", job, "-f").stdout.splitlines()
    assert sorted(followed) == sorted(f"[{r}] line {i} of {r}" for i in (1, 2, 3) for r in (0, 1))
    assert run(cluster, "logs", job, "--rank", "1").stdout == "line 1 of 1\nline 2 of 1\nline 3 of 1\n"
    assert run(cluster, "logs", job, "--rank", "1", "-f").stdout == "line 1 of 1\nline 2 of 1\nline 3 of 1\n"
    pieces = [json.loads(line) for line in run(cluster, "logs", job, "-f", "-o", "json", "-r", "0").stdout.splitlines()]
    assert "".join(p["text"] for p in pieces) == "line 1 of 0\nline 2 of 0\nline 3 of 0\n"
    assert {p["rank"] for p in said(cluster, "logs", job, "-o", "json")["logs"]} == {0, 1}
    silent = run(cluster, "logs", job, "--rank", "7")
    assert silent.stdout == "" and silent.stderr == f"no output of rank 7 of job '{job}'\n"
    quiet = command(cluster, "true")
    cluster.wait(quiet, "succeeded")
    silent = run(cluster, "logs", quiet)
    assert silent.stdout == "" and silent.stderr == f"no output of job '{quiet}' so far\n"


def test_attach_follows_a_job_from_its_last_lines_on_and_ends_as_it_does_or_leaves_it_running(cluster):
    job = command(cluster, f"seq 20; until [ -e {cluster.folder}/attached ]; do sleep 0.05; done; echo new; exit 3")
    wait_for("its lines", lambda: said(cluster, "logs", job, "-o", "json")["lines"][-1:] == ["20"])

    def attach():
        cli = subprocess.Popen([f"{BIN}/muster", "attach", job, "-r", "0", "-n", "2", "--server", cluster.url,
                                "--token", cluster.token()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=cluster.env, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a suite under nohup
        assert (cli.stdout.readline(), cli.stdout.readline()) == ("19\n", "20\n")
        return cli
    with attach() as left:
        left.send_signal(signal.SIGINT)
    assert left.returncode != 0 and cluster.job(job)["state"] == "running"
    with attach() as cli:
        write(cluster, "attached", "")
        out, err = cli.communicate(timeout=PATIENCE_S)
    assert (out, cli.returncode) == ("new\n", 1) and f"{job} failed" in err
    assert f"muster logs {job}" in run(cluster, "attach", job, status=1).stderr
    assert "no standard input" in run(cluster, "attach", job, "-i", status=2).stderr


def test_a_followed_line_that_comes_in_pieces_is_whole(cluster):
    """Both ranks pause in the middle of their lines, so that these reach the server, and followers, in pieces."""
    go = os.path.join(cluster.folder, "go-on")
    job = command(cluster, f"printf 'half \u00e9'; until [ -e {go} ]; do sleep 0.05; done; echo whole $RANK; "
                  "printf 'last of %s' $RANK", devices=2)
    follower = subprocess.Popen([f"{BIN}/muster", "logs", job, "-f", "--server", cluster.url, "--token",
                                 cluster.token()], stdout=subprocess.PIPE, text=True, env=cluster.env)
    try:
        wait_for("half a line of each rank",
                 lambda: said(cluster, "logs", job, "-o", "json")["lines"] == 2 * ["half \u00e9"])
        write(cluster, "go-on", "")
        lines = follower.communicate(timeout=PATIENCE_S)[0].splitlines()
    finally:
        follower.kill()
        follower.wait()
    assert sorted(lines) == sorted(f"[{r}] {text} {r}" for r in (0, 1) for text in ("half \u00e9whole", "last of"))


def test_a_log_longer_than_one_answer_is_printed_whole(cluster):
    job = command(cluster, "i=0; while [ $i -lt 30000 ]; do echo line $i of rank $RANK; i=$((i+1)); done", devices=2)
    whole = [f"line {i} of rank {{}}" for i in range(30000)]
    followed = run(cluster, "logs", job, "-f").stdout.splitlines()
    cluster.wait(job, "succeeded")
    for r in (0, 1):
        lines = [line.format(r) for line in whole]
        assert [line[4:] for line in followed if line.startswith(f"[{r}] ")] == lines
        assert run(cluster, "logs", job, "--rank", str(r)).stdout.splitlines() == lines
    document = said(cluster, "logs", job, "-o", "json")
    assert document["lines"] == [line.format(r) for r in (0, 1) for line in whole]
    assert [(p["offset"], p["next_offset"], p["size"]) for p in document["logs"]] == \
        [(0, len(p["text"]), len(p["text"])) for p in document["logs"]]


def test_metrics_are_a_table_or_columns(cluster, trained):
    rows = run(cluster, "metrics", trained, "-n", "4").stdout.splitlines()
    assert rows[0].split() == ["step", "loss", "lr", "grad_norm", "tokens_per_s", "step_ms", "stall_ms"]
    assert len(rows) == 5 and rows[-1].split()[0] == "59"
    assert len(set(map(len, rows))) == 1  # columns stand right
    document = said(cluster, "metrics", trained, "--names", "loss", "-o", "json")
    assert document["points"] == 60 and document["metrics"]["step"] == list(range(60))
    chosen = run(cluster, "metrics", trained, "--names", "mfu,bytes_tp", "-n", "2").stdout.splitlines()
    assert chosen[0].split() == ["step", "mfu", "bytes_tp"]
    assert "measures no 'los'" in run(cluster, "metrics", trained, "--names", "lr,los", status=3).stderr
    plain = command(cluster, "true")
    assert "no metrics of job" in run(cluster, "metrics", plain).stderr


def test_top_prints_once_where_nothing_can_move(cluster, trained):
    text = run(cluster, "top").stdout
    assert "of 4 devices busy; jobs: " in text and re.search(r"^n1 +ready +127.0.0.1 +4 cpu +\d", text, re.M)
    assert re.search(rf"^{trained} +small +succeeded +60/60 ", text, re.M)
    document = said(cluster, "top", "-o", "json")
    assert document["cluster"]["slots"]["total"] == 4 and document["nodes"][0]["id"] == "n1" and document["jobs"]


def test_in_top_keys_choose_a_job_look_at_it_and_cancel_it(cluster):
    job = command(cluster, "echo said by it; sleep 100000", name="top-runs")
    cluster.wait(job, "running")
    chosen = re.escape("\033[7m") + f"{job} "
    screen, status = on_terminal(cluster, "top", columns=100, types=[
        (chosen, "l"), ("said by it", "\x03"), (r"any key: back", "x"), (chosen, "G"),
        (r"\033\[7m(?!" + job + " )", "g"), (chosen, "\r"), (rf"job +{job}.*any key", "x"), (chosen, "c"),
        (rf"cancel {job} \(top-runs\)\?", "n"), (chosen + ".*q quit", "c"), (rf"cancel {job} ", "y"),
        (f"{job} is being cancelled", "q")])
    assert status == 0 and cluster.wait(job, "cancelled")["state"] == "cancelled"
    assert screen.count("\033[?1049h") == screen.count("\033[?1049l") and screen.rstrip().endswith("\033[?1049l")
    screen, status = on_terminal(cluster, "top", types=[("q quit", "\x03")])
    assert status == 0 and screen.rstrip().endswith("\033[?1049l")


# --- acting --------------------------------------------------------------------------------------------

def test_a_job_is_suspended_resumed_explained_scaled_and_cancelled(cluster):
    job = command(cluster, "sleep 100000", devices=4)
    cluster.wait(job, "running")
    waiting = command(cluster, "sleep 100000", name="waits", devices=3)
    text = run(cluster, "explain", waiting).stdout
    assert text.startswith(f"{waiting} is queued: waits for") and job in text and "would help: " in text
    assert text.count("waits for") == 1  # the summary is the text of its only cause
    assert said(cluster, "explain", waiting, "-o", "json")["causes"][0]["behind"] == [job]
    assert run(cluster, "scale", waiting, "--min", "1").stdout == f"{waiting} may have 1 to 3 devices\n"
    assert said(cluster, "scale", waiting, "--max", "2", "-o", "json")["devices"]["max"] == 2
    assert run(cluster, "scale", waiting, "1-4").stdout == f"{waiting} may have 1 to 4 devices\n"
    assert "this cluster has 4" in run(cluster, "scale", waiting, "--min", "64", "--max", "64", status=4).stderr
    assert run(cluster, "limit", waiting, "--time", "4h").stdout == f"{waiting} may run for 14400 s in all\n"
    assert said(cluster, "limit", waiting, "--time", "90", "-o", "json")["limits"]["time_s"] == 5400
    assert run(cluster, "limit", waiting, "--time", "none").stdout == f"{waiting} may run for as long as it likes\n"
    assert "array" in run(cluster, "limit", waiting, "--running", "2", status=4).stderr

    assert run(cluster, "suspend", job).stdout == f"suspending {job}\n"
    cluster.wait(job, "suspended")
    cluster.wait(waiting, "running")
    assert said(cluster, "cancel", waiting, "-o", "json")["id"] == waiting
    assert "cancelled" in run(cluster, "watch", waiting, status=1).stderr
    assert run(cluster, "resume", job).stdout == f"resuming {job}\n"
    cluster.wait(job, "running")
    assert run(cluster, "cancel", job).stdout == f"cancelling {job}\n"
    cluster.wait(job, "cancelled")
    assert "cannot be changed any more" in run(cluster, "suspend", job, status=4).stderr


def test_several_jobs_are_acted_on_at_once_and_what_is_refused_is_counted(cluster):
    jobs = [command(cluster, "sleep 100000", devices=4) for _ in range(3)]
    assert run(cluster, "priority", jobs[2], "90").stdout == f"{jobs[2]} has priority 90\n"
    assert cluster.job(jobs[2])["priority"] == 90
    assert "0 to 100" in run(cluster, "priority", jobs[2], "101", status=2).stderr
    assert re.search(rf"^{jobs[2]} .* 90 ", run(cluster, "list", "--state", "active").stdout, re.M)
    assert run(cluster, "suspend", *jobs[:2]).stdout == f"suspending {jobs[0]}\nsuspending {jobs[1]}\n"
    out = run(cluster, "cancel", jobs[0], "j9999", *jobs[1:], status=3)
    assert out.stdout.splitlines() == [f"cancelling {j}" for j in jobs] and "no job 'j9999'" in out.stderr
    for job in jobs:
        cluster.wait(job, "cancelled")
    assert said(cluster, "cancel", jobs[0], jobs[1], "-o", "json", status=4)["jobs"] == []


def test_projects_are_set_field_by_field_and_listed(cluster):
    assert "muster project set" in run(cluster, "project", "list").stderr
    table = run(cluster, "project", "set", "prod", "--quota", "2", "--borrow", "1", "--class", "guaranteed").stdout
    assert re.search(r"^prod +guaranteed +2 +1 +1 +0 +0\.0$", table, re.M), table
    kept = said(cluster, "project", "set", "prod", "--weight", "2.5", "-o", "json")
    assert (kept["quota"], kept["borrow"], kept["class"], kept["weight"]) == (2, 1, "guaranteed", 2.5)
    free = said(cluster, "project", "set", "prod", "--quota", "none", "-o", "json")
    assert (free["quota"], free["borrow"], free["weight"]) == (None, None, 2.5)
    assert said(cluster, "project", "list", "-o", "json")["projects"] == [free]
    for args, status, says in ((["--weight", "x"], 2, "above 0"), (["--class", "vip"], 4, "'class'"),
                               ([], 2, "want --"), (["--borrow", "1"], 4, "'borrow'"),
                               (["--quota", "-1"], 2, "--quota wants")):
        assert says in run(cluster, "project", "set", "prod", *args, status=status).stderr


def test_tokens_are_made_listed_and_revoked(cluster):
    made = run(cluster, "token", "create", "alice", "--role", "viewer")
    token = made.stdout.strip()
    identity = re.search(r"^token ([0-9a-f]{12}) of alice, role viewer; it is shown this once$", made.stderr, re.M)[1]
    assert cluster.request("GET", "/v1/jobs", token=token)[0] == 200
    listed = run(cluster, "token", "list").stdout
    assert re.search(rf"^{identity} +alice +viewer +20", listed, re.M) and "state folder" in listed
    assert run(cluster, "token", "revoke", identity).stdout == f"token {identity} of alice is no longer good\n"
    assert cluster.request("GET", "/v1/jobs", token=token)[0] == 401


def test_a_drained_node_gets_no_work(cluster):
    assert run(cluster, "drain", "n1", "--deadline", "3600").stdout == "n1 gets no new work\n"
    wait_for("n1 to be drained", lambda: cluster.nodes()[0]["state"] == "drained")
    assert re.search(r"^n1 +drained ", run(cluster, "nodes").stdout, re.M)
    job = command(cluster, "true")
    assert "queued" in run(cluster, "explain", job).stdout
    assert said(cluster, "undrain", "n1", "-o", "json")
    cluster.wait(job, "succeeded")
    assert said(cluster, "nodes", "-o", "json")["nodes"][0]["state"] == "ready"


def test_a_node_leaves_the_list_and_its_agent_ends(cluster):
    cluster.start_agent("n2", "cpu:1")
    cluster.wait_nodes(["n2"])
    assert "drain it first" in run(cluster, "node", "remove", "n2", status=4).stderr
    run(cluster, "drain", "n2")
    assert run(cluster, "node", "remove", "n2").stdout == "n2 is off the list\n"
    assert cluster.agents.pop("n2").wait(PATIENCE_S) == 3
    assert "was removed from the cluster" in cluster.tail("agent-n2")
    assert [n["id"] for n in said(cluster, "nodes", "-o", "json")["nodes"]] == ["n1"]
    assert "no node 'n2'" in run(cluster, "node", "remove", "n2", status=3).stderr


# --- checkpoints ---------------------------------------------------------------------------------------

def test_checkpoints_are_listed_inspected_verified_and_exported(cluster, trained):
    rows = run(cluster, "checkpoint", "list", trained).stdout.splitlines()
    assert rows[0].split() == ["STEP", "MIB", "ON", "DISK", "CREATED", "PATH"]
    assert [row.split()[0] for row in rows[1:]] == ["20", "40", "60"]
    newest = rows[-1].split()[-1]
    folder = os.path.dirname(newest)
    assert [c["step"] for c in said(cluster, "checkpoint", "list", folder, "-o", "json")["checkpoints"]] == [20, 40, 60]
    assert "step 60, 2 files," in run(cluster, "checkpoint", "inspect", trained).stdout
    tensors = said(cluster, "checkpoint", "inspect", newest, "-o", "json")["tensors"]
    assert {"master", "moment1", "moment2"} <= {t["role"] for t in tensors}
    assert run(cluster, "checkpoint", "verify", trained).stdout == "step 60 is whole\n"
    assert said(cluster, "checkpoint", "verify", folder, "-o", "json")["ok"] is True
    digest = said(cluster, "checkpoint", "digest", newest, "-o", "json")
    assert digest["step"] == 60 and re.fullmatch(r"[0-9a-f]{32}", digest["digest"])
    assert run(cluster, "checkpoint", "digest", trained).stdout == f"{digest['digest']}  step 60\n"
    assert "tensors are equal" in run(cluster, "checkpoint", "diff", newest, trained).stdout
    older = os.path.join(folder, "step-00000040")
    differs = said(cluster, "checkpoint", "diff", older, newest, "-o", "json", status=1)
    assert "step" in differs["cursor"] and differs["differences"] and not differs["same"]
    exported = said(cluster, "checkpoint", "export", trained, "model", "--dtype", "bf16", "-o", "json")
    assert exported == {"path": "model", "dtype": "bf16", "step": 60}
    assert {"model.safetensors", "config.json"} <= set(os.listdir(os.path.join(cluster.folder, "model")))

    assert run(cluster, "checkpoint", "import", "model", "imported").stdout == "wrote step 0 in imported\n"
    again = said(cluster, "checkpoint", "inspect", "imported", "-o", "json")["tensors"]
    assert {t["name"] for t in again} == {t["name"] for t in tensors} and {t["role"] for t in again} == {"master"}
    assert "holds a checkpoint already" in run(cluster, "checkpoint", "import", "model", "imported", status=1).stderr

    os.unlink(os.path.join(newest, "MANIFEST"))
    assert said(cluster, "checkpoint", "list", folder, "-o", "json")["checkpoints"][-1]["step"] == 40
    assert said(cluster, "checkpoint", "repair", newest, "-o", "json") == {"path": newest, "repaired": True}
    assert said(cluster, "checkpoint", "digest", newest, "-o", "json") == digest


def test_a_damaged_checkpoint_fails_to_verify(cluster, trained, tmp_path):
    copy = str(tmp_path / "copy")
    subprocess.run(["cp", "-r", cluster.job(trained)["checkpoint"]["path"], copy], check=True)
    with open(os.path.join(copy, "rank-00000.mck"), "r+b") as f:
        f.seek(5000)
        f.write(b"damage")
    out = run(cluster, "checkpoint", "verify", copy, status=1)
    assert "rank-00000.mck" in out.stderr
    assert said(cluster, "checkpoint", "verify", copy, "-o", "json", status=1)["ok"] is False
    assert "--from" in run(cluster, "checkpoint", "repair", copy, status=1).stderr
    folder = os.path.join(cluster.job(trained)["dir"], "checkpoints")
    healed = said(cluster, "checkpoint", "repair", copy, "--from", copy, "--from", folder, "-o", "json")
    assert healed["repaired"] and [h["chunk"] for h in healed["healed"]] == [0] and not healed["left"]
    assert "nothing to repair" in run(cluster, "checkpoint", "repair", copy).stdout


def test_a_running_job_saves_when_asked(cluster, trained):
    assert trained
    cluster.hold.at(3, "saves")
    job = said(cluster, "submit", "train.yaml", "--name", "saves", "--set", "checkpoint.every_steps=0", "--set",
               "train.eval.every_steps=0", "-o", "json")["id"]
    wait_for("a step", lambda: (cluster.job(job)["progress"] or {}).get("step"))
    assert run(cluster, "checkpoint", "now", job).stdout == f"asked for a checkpoint of {job}\n"
    wait_for("the checkpoint", lambda: cluster.job(job)["checkpoint"])
    run(cluster, "cancel", job)
    cluster.wait(job, "cancelled")


def test_sample_writes_what_the_model_says(cluster, trained):
    args = ["--prompt", "the ", "--tokens", "24", "--seed", "3"]
    document = said(cluster, "sample", trained, *args, "-o", "json")
    assert document["prompt"] == "the " and len(document["text"]) == 24
    assert document["checkpoint"].endswith("step-00000060")
    raw = subprocess.run([f"{BIN}/muster", "sample", cluster.job(trained)["dir"], *args], capture_output=True,
                         timeout=PATIENCE_S, env=cluster.env, check=True).stdout
    assert raw.decode(errors="ignore").startswith(document["text"].replace("\ufffd", ""))  # it may write other bytes


def test_the_summary_of_a_job_reads_all_pages(cluster, trained, monkeypatch):
    where = importlib.util.spec_from_file_location("summary", os.path.join(ROOT, "examples", "summary.py"))
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    monkeypatch.delenv("MUSTER_SERVER", raising=False)
    monkeypatch.delenv("MUSTER_TOKEN", raising=False)
    monkeypatch.setenv("MUSTER_STATE", cluster.state)
    server = module.Server()
    lines = list(module.summary(server, trained))
    assert list(module.summary(server, trained, page=1)) == lines
    assert sum(line.startswith("checkpoint ") for line in lines) == 3
    assert any(re.fullmatch(r"evaluation loss, final \d\.\d{4} nats per byte at step 60", line) for line in lines)


# --- on a terminal -------------------------------------------------------------------------------------

def on_terminal(cluster, *args, columns=80, until=None, then=None, types=(), **env):
    """Run the CLI on a terminal until it ends; once `until` is on it, call then(), or type Ctrl-C. types: pairs of a
    pattern and keys, which are typed when it has come after the keys before. (screen, status)"""
    env = dict({k: v for k, v in cluster.env.items() if k != "NO_COLOR"}, MUSTER_SERVER=cluster.url,
               MUSTER_TOKEN=cluster.token(), **dict({"TERM": "xterm"}, **env))
    pid, fd = pty.fork()
    if pid == 0:
        try:
            subprocess.run(["stty", "cols", str(columns), "rows", "24"], check=True)
            os.chdir(cluster.folder)
            os.execve(f"{BIN}/muster", ["muster", *args], env)
        finally:
            os._exit(126)
    screen, deadline, types, since = "", time.monotonic() + PATIENCE_S, list(types), 0
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                part = os.read(fd, 65536)
            except OSError:
                break
            if not part:
                break
            screen += part.decode(errors="replace")
        if types and re.search(types[0][0], screen[since:], re.S):
            since = len(screen)
            os.write(fd, types.pop(0)[1].encode())
        if until and re.search(until, screen):
            if then:
                then()
            else:
                os.write(fd, b"\x03")
            until = None
    else:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    return screen, status


def plain(screen):
    return re.sub(r"\033\[[0-9;]*[A-Za-z]", "", screen)


def test_a_terminal_gets_a_bar_with_the_time_left(cluster, trained):
    assert trained
    cluster.hold.at(40, "with-a-bar")
    screen, status = on_terminal(cluster, "submit", "train.yaml", "--name", "with-a-bar", "--watch", "--set",
                                 "train.steps=80", until=r" ETA \d+s", then=lambda: cluster.hold.release("with-a-bar"))
    assert status == 0, screen
    bars = [line for line in re.split(r"[\r\n]+", plain(screen)) if line.startswith("[")]
    assert any(re.fullmatch(r"\[#+\.+\] \d+/80  loss \d\.\d+  \d+ tokens/s  ETA \d+s", bar) for bar in bars), bars
    assert max(map(len, bars)) < 80
    assert "\033[32mrunning\033[0m" in screen
    assert plain(screen).rstrip().endswith("succeeded: every rank is done")


def test_what_reads_or_writes_a_whole_checkpoint_has_a_bar(cluster, trained):
    for args in (["verify", trained], ["digest", trained], ["diff", trained, trained], ["export", trained, "shown"],
                 ["import", "shown", "shown-checkpoints"]):
        screen, status = on_terminal(cluster, "checkpoint", *args)
        bars = re.findall(r"\[(#*) *\] +(\d+) % of \d+ MiB", screen)
        assert status == 0 and bars and bars[-1] == ("#" * 40, "100"), screen
        assert [int(percent) for _, percent in bars] == sorted(int(percent) for _, percent in bars)
        assert screen.rindex("\r\033[K") > screen.rindex("[#")  # the outcome stands alone
    assert "[#" not in run(cluster, "checkpoint", "verify", trained).stderr


def test_no_color_means_none(cluster, trained):
    coloured, _ = on_terminal(cluster, "list")
    assert "\033[36msucceeded\033[0m" in coloured
    bare, status = on_terminal(cluster, "list", NO_COLOR="1")
    assert status == 0 and "\033" not in bare and trained in bare
    dumb, _ = on_terminal(cluster, "show", trained, TERM="dumb")
    assert "\033" not in dumb


def test_tables_keep_within_the_terminal(cluster):
    job = command(cluster, "true", name="a-job-with-quite-a-long-name-that-goes-on-and-on")
    cluster.wait(job, "succeeded")
    for columns in (60, 80, 120):
        screen, status = on_terminal(cluster, "list", "--state", "succeeded", columns=columns)
        lines = plain(screen).splitlines()
        assert status == 0 and max(len(line.rstrip()) for line in lines) <= columns, (columns, lines)
        assert len({line.index("succeeded") for line in lines[1:]}) == 1  # aligned
        assert "WHY" in lines[0] and ("KIND" in lines[0]) == (columns == 120)
        screen, status = on_terminal(cluster, "top", "--once", columns=columns)
        head = screen.splitlines()[0].rstrip()
        assert status == 0 and len(head) <= columns and re.search(r"\d (queued|failed|succeeded)$", head), head


def test_leaving_a_watch_leaves_the_job(cluster):
    job = command(cluster, "echo up; sleep 100000")
    screen, status = on_terminal(cluster, "watch", job, until="running")
    assert status == 130 and f"{job} goes on; `muster watch {job}` comes back to it" in plain(screen), screen
    assert cluster.job(job)["state"] == "running"
    run(cluster, "cancel", job)
    cluster.wait(job, "cancelled")


def test_a_watcher_is_told_why_a_job_waits(cluster):
    holder = command(cluster, "sleep 100000", devices=4)
    cluster.wait(holder, "running")
    job = command(cluster, "true")
    screen, status = on_terminal(cluster, "watch", job, until="waits for")
    assert status == 130 and re.search(rf"{job} queued: waits for 1 more device", plain(screen)), screen
    for one in (job, holder):
        run(cluster, "cancel", one)
        cluster.wait(one, "cancelled")


# --- the server goes away ------------------------------------------------------------------------------

def test_a_watch_goes_on_over_a_restart_of_the_server(cluster):
    job = command(cluster, f"while [ ! -e {cluster.folder}/go ]; do sleep 0.1; done")
    cluster.wait(job, "running")
    env = dict(cluster.env, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token())
    with subprocess.Popen([f"{BIN}/muster", "watch", job], env=env, stdout=subprocess.PIPE, text=True) as watch:
        assert "queued -> starting" not in watch.stdout.readline()
        cluster.kill_server()
        cluster.start_server()
        write(cluster, "go", "")
        text = watch.stdout.read()
        assert watch.wait(PATIENCE_S) == 0
    assert text.count(f"{job} running: ") == 1 and f"{job} succeeded: " in text


# --- a cluster of one's own ----------------------------------------------------------------------------

def test_up_and_down_leave_no_process_and_no_stale_file(tmp_path):
    state, mark = str(tmp_path / "state"), f"up#{tmp_path}"
    env = {k: v for k, v in os.environ.items() if k not in ("MUSTER_SERVER", "MUSTER_TOKEN")}
    env.update({MARK: mark, "MUSTER_STATE": state})

    def muster(*args):
        return subprocess.run([f"{BIN}/muster", *args], env=env, capture_output=True, text=True, timeout=PATIENCE_S,
                              cwd=tmp_path, check=False)

    try:
        first = muster("up", "--port", "0", "--devices", "cpu:2", "-o", "json")
        assert first.returncode == 0, first.stderr
        up = json.loads(first.stdout)
        assert up["state"] == state and os.path.exists(f"/proc/{up['server_pid']}")
        assert stat.S_IMODE(os.stat(f"{state}/token").st_mode) == 0o600
        again = muster("up", "--port", "0")
        assert again.returncode == 0 and f"up already: {up['url']}" in again.stdout
        spec = json.dumps(specs.command("sleep 100000 & sleep 100000"))
        (tmp_path / "c.json").write_text(spec)
        job = json.loads(muster("submit", "c.json", "-o", "json").stdout)["id"]
        wait_for("it to run", lambda: json.loads(muster("show", job, "-o", "json").stdout)["state"] == "running")
        down = muster("down")
        assert down.returncode == 0 and down.stdout == f"the cluster of {state} is down\n"
        assert [command_line(p) for p in marked(mark)] == []
        left = set(os.listdir(state))
        assert not left & {"server.json", "up.json"} and "token" in left, left
        assert os.listdir(f"{state}/agent/runs") == [] or not os.path.exists(f"{state}/agent/agent.pid")
        assert json.loads(muster("down", "-o", "json").stdout) == {"state": state, "was_up": False}
        assert muster("list").returncode == 5
        up = json.loads(muster("up", "--port", "0", "--devices", "cpu:2", "-o", "json").stdout)  # with what it knew
        assert json.loads(muster("show", job, "-o", "json").stdout)["id"] == job
        os.kill(up["server_pid"], signal.SIGKILL)
        wait_for("its end", lambda: not os.path.exists(f"/proc/{up['server_pid']}"))
        after = json.loads(muster("up", "--devices", "cpu:2", "-o", "json").stdout)
        assert after["url"] == up["url"] and after["server_pid"] != up["server_pid"], "after a crash: the same address"
        assert muster("down").returncode == 0
        assert [command_line(p) for p in marked(mark)] == []
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_nodes_series_are_drawn_over_the_time_of_day(cluster):
    wait_for("a report", lambda: any(v is not None for v in said(cluster, "node", "series", "n1", "-o", "json")
                                     ["nodes"][0]["host"]["load"]["mean"]))
    text = run(cluster, "node", "series", "n1", "--since", "10m").stdout
    assert re.search(r"Memory, GiB\s+in use [\d.]+\n", text) and re.search(r"[\u2801-\u28ff]", text)
    assert re.search(r"^ +\d\d:\d\d:\d\d +\d\d:\d\d:\d\d$", text, re.M), text
    assert "no node 'n99'" in run(cluster, "node", "series", "n99", status=3).stderr
    assert "want a time of 1m to 30d" in run(cluster, "node", "series", "n1", "--since", "31d", status=2).stderr


def test_what_would_help_a_job_that_waits_is_asked_without_changing_anything(cluster):
    every = sum(len(n["slots"]) for n in cluster.nodes())
    holder = command(cluster, "exec sleep 100000", name="holds", devices=every, limits={"time_s": 3600})
    cluster.wait(holder, "running")
    job = command(cluster, "true", name="waits-for-it")
    wait_for("its estimate", lambda: cluster.job(job).get("starts", {}).get("at"))
    text = run(cluster, "what-if", job, "--add-nodes", "cpu=1x4").stdout
    assert re.search(r"now +starts .*, on 1 device\nthen +starts .*, on 1 device\ngain +59m|1h", text), text
    assert " sooner\nno other job would feel it" in text, text
    assert said(cluster, "what-if", "waits-for-it", "--priority", "99", "-o", "json")["now"]["starts"]
    assert "what would be different" in run(cluster, "what-if", job, status=2).stderr
    assert "such as cpu=1x8" in run(cluster, "what-if", job, "--add-nodes", "cpu=8", status=2).stderr
    assert cluster.job(job)["state"] == "queued"
    cluster.action(holder, "cancel")
    cluster.wait(job, "succeeded")


def test_jobs_are_compared_by_curves_results_and_what_differs(cluster):
    line = '{"v":1,"step":%d,"loss":%.3f}\\n'.replace('"', r'\"')
    jobs = [command(cluster, f"awk 'BEGIN {{ for (i = 1; i < 50; i++) printf \"{line}\", i, {scale} / i }}' "
                    ">> $MUSTER_RUN_DIR/metrics.jsonl", priority=priority) for scale, priority in ((1, 50), (2, 60))]
    for job in jobs:
        cluster.wait(job, "succeeded")
    document = said(cluster, "compare", *jobs, "-o", "json")
    assert [j["last"] for j in document["jobs"]] == [0.02, 0.041] and document["differs"]["priority"] == [50, 60]
    text = run(cluster, "compare", *jobs).stdout
    dots = [sum("\u2800" < c <= "\u28ff" for c in part) for part in text.split("step ")[:2]]
    assert all(n > 40 for n in dots), "a curve of braille dots for each job"
    assert "priority" in text and any(row.split()[:1] == [jobs[1]] and "0.041" in row for row in text.splitlines())
    assert "more than the 12" in run(cluster, "compare", *jobs * 7, status=2).stderr
    assert "j9999" in run(cluster, "compare", jobs[0], "j9999", status=3).stderr
