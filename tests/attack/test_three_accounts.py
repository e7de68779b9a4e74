"""Server, agent and jobs are three Unix accounts: what a job can reach of the others, with real processes of each."""
import glob
import json
import os
import signal
import subprocess

import pytest

from tests import specs
from tests.attack.accounts import USERS, AccountsCluster, missing
from tests.cluster import BIN, wait_for
from tests.patience import PATIENCE_S
from tests.sessions import ECHO, INPUT, Session, open_session

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())


@pytest.fixture(scope="module")
def cluster():
    with AccountsCluster(slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def tokens(cluster):
    """A token each for alice, bob and those of whom no rank may run."""
    made = {}
    for user in ("alice", "bob", "system", "muster", "nobody-here"):
        made[user] = cluster.api("POST", "/v1/tokens", {"user": f"{user}@lab", "unix_user": user})
        assert made[user]["unix_user"] == user
    return {user: token["token"] for user, token in made.items()}


def run(cluster, text, token=None, state="succeeded", **more):
    """A command to its end. Returns (log, job)."""
    job = cluster.api("POST", "/v1/jobs", specs.command(text, **more), token=token)["id"]
    ended = cluster.wait(job, state)
    return cluster.log_text(job), ended


def status(text):
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def test_a_job_cannot_read_tokens_the_store_or_the_state_of_server_and_agent(cluster):
    for path in (f"{cluster.state}/token", f"{cluster.state}/agent-token", f"{cluster.state}/redis/redis.sock",
                 f"{cluster.top}/agent-token", f"{cluster.agent_state()}/incarnation"):
        assert os.path.exists(path), path
        text, _ = run(cluster, f"cat {path} 2>&1; ls {os.path.dirname(path)} 2>&1; true")
        assert "mst_" not in text and text.count("Permission denied") + text.count("Cannot open") >= 1, (path, text)


def test_a_job_runs_as_its_submitter_without_any_right_beyond(cluster, tokens):
    text, _ = run(cluster, "cat /proc/self/status; id -un; echo $HOME $USER", tokens["alice"])
    got = status(text)
    assert got["Uid"].split() == [str(USERS["alice"])] * 4 and got["Gid"].split() == [str(USERS["alice"])] * 4
    # team; but neither docker nor sudo, whose members are root by another name
    assert got["Groups"].split() == [str(USERS["alice"]), "61300"]
    assert {got[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert got["NoNewPrivs"] == "1"
    assert text.splitlines()[-2:] == ["alice", f"{cluster.top} alice"]
    text, _ = run(cluster, "id -un")  # of the admin's token, which names nobody
    assert text == "muster-job\n"


@pytest.mark.parametrize("user, words", [
    ("system", "a system's account (user id 904"), ("muster", "Muster's own account"),
    ("nobody-here", "no user 'nobody-here' on this node")])
def test_no_job_runs_as_root_or_an_account_of_the_system(cluster, tokens, user, words):
    job = cluster.api("POST", "/v1/jobs", specs.command("id"), token=tokens[user])["id"]
    ended = cluster.wait(job, "failed")
    assert words in json.dumps(ended["outcome"], ensure_ascii=False)


@pytest.mark.parametrize("name", ["root", "0", "-x", "a b", ""])
def test_no_token_names_root(cluster, name):
    assert cluster.request("POST", "/v1/tokens", {"user": "eve", "unix_user": name})[0] == 422


def test_the_folder_of_a_job_is_its_users_alone(cluster, tokens):
    text, ended = run(cluster, "echo secret > mine; pwd", tokens["alice"])
    folder = text.strip()
    assert folder == ended["dir"]
    st = os.stat(folder)
    assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (USERS["alice"], 901, 0o750)
    text, _ = run(cluster, f"cat {folder}/mine; rm -rf {folder}; true", tokens["bob"])
    assert "secret" not in text and os.path.exists(f"{folder}/mine")


def test_an_upload_is_laid_out_by_its_user_and_read_by_nobody_else(cluster, tokens):
    folder = os.path.join(cluster.top, "upload")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "mine"), "w", encoding="ascii") as f:
        f.write("a secret of alice\n")

    def submit():
        done = subprocess.run([f"{BIN}/muster", "submit", "--upload", folder, "--", "cat", "mine"], text=True,
                              capture_output=True, timeout=PATIENCE_S, check=True,
                              env=dict(cluster.cli_env(), MUSTER_TOKEN=tokens["alice"]))
        return cluster.wait(done.stdout.split()[1], "succeeded")
    for _ in range(2):  # the second time it has been given to alice already
        ended = submit()
        assert cluster.log_text(ended["id"]) == "a secret of alice\n"
        mine = os.path.join(ended["dir"], "work", "mine")
        assert os.stat(mine).st_uid == USERS["alice"]
    path = glob.glob(f"{cluster.jobs_dir}/.bundles/*/{ended['spec']['command']['bundle']}")[0]
    text, _ = run(cluster, f"cat {path} {mine}; ls {os.path.dirname(path)}; true", tokens["bob"])
    assert "secret" not in text and text.count("Permission denied") == 3, text


def test_a_jobs_variables_have_no_code_run_by_another_account(cluster, tokens):
    """The loader takes libraries from LD_PRELOAD: of the job's program, and of no process of Muster's own accounts."""
    folder = os.path.join(cluster.top, "preload")
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o777)
    source = os.path.join(folder, "seen.c")
    with open(source, "w", encoding="ascii") as f:
        f.write('#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>\n'
                '__attribute__((constructor)) static void seen(void)\n{\n    char path[256];\n'
                f'    (void)snprintf(path, sizeof(path), "{folder}/by-%u", (unsigned)getuid());\n'
                '    (void)close(open(path, O_CREAT | O_WRONLY, 0600));\n}\n')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", f"{folder}/seen.so", source], check=True, timeout=PATIENCE_S)
    spec = specs.command("echo $LD_PRELOAD up; exec sleep 77128")
    spec["command"]["env"] = {"LD_PRELOAD": f"{folder}/seen.so"}
    job = started(cluster, spec, tokens["alice"])
    assert cluster.log_text(job) == f"{folder}/seen.so up\n"
    assert [name for name in os.listdir(folder) if name.startswith("by-")] == [f"by-{USERS['alice']}"]
    cluster.action(job, "cancel")
    os.unlink(f"{folder}/by-{USERS['alice']}")
    job = started(cluster, specs.command("echo up; exec sleep 77128"), tokens["alice"])  # and so of a session's own
    session = open_session(cluster, job, ["sh", "-c", "echo $LD_PRELOAD"], token=tokens["alice"],
                           env={"LD_PRELOAD": f"{folder}/seen.so"})
    session.until(lambda: session.exit)
    assert session.output.decode() == f"{folder}/seen.so\n"
    session.close()
    assert [name for name in os.listdir(folder) if name.startswith("by-")] == [f"by-{USERS['alice']}"]
    cluster.action(job, "cancel")


def test_tmp_and_shm_are_a_jobs_own_and_go_with_it(cluster, tokens):
    outside = os.path.join("/tmp", f"muster-seen-{os.getpid()}")
    with open(outside, "w", encoding="ascii") as f:
        f.write("of another\n")
    try:
        text, _ = run(cluster, f"ls /tmp; touch /tmp/of-mine /dev/shm/of-mine; mkdir -m 0 /tmp/shut; "
                               f"df --output=target /tmp /dev/shm; ls {outside}; true", tokens["alice"], devices=2)
    finally:
        os.unlink(outside)
    assert "of another" not in text and f"cannot access '{outside}'" in text
    assert not os.path.exists("/tmp/of-mine") and not os.path.exists("/dev/shm/of-mine")
    wait_for("the run's folder to go", lambda: not glob.glob(f"{cluster.agent_state()}/runs/*"))
    assert not glob.glob("/dev/shm/muster-902-*.shm/*")


@pytest.mark.parametrize("spec", [{"argv": ["/tmp/muster-nothing/train"]},
                                  {"argv": ["/bin/true"], "workdir": "/tmp/none"}])
def test_a_program_or_folder_below_tmp_is_told_why_it_is_not_found(cluster, tokens, spec):
    job = cluster.api("POST", "/v1/jobs", {**specs.command("x", retry={"max": 0}), "command": spec},
                      token=tokens["alice"])["id"]
    cluster.wait(job, "failed")
    assert "has a /tmp and /dev/shm of its own" in cluster.log_text(job)


def test_a_training_program_below_tmp_is_told_why_it_cannot_be_run(tmp_path):
    train = tmp_path / "muster-train"
    train.symlink_to(f"{BIN}/muster-train")
    with AccountsCluster(slots=1, agent_args=["--train", str(train)]) as c:
        corpus = specs.write_corpus(os.path.join(c.top, "corpus"))
        job = c.submit(specs.train(corpus, retry={"max": 0}))["id"]
        assert "has a /tmp and /dev/shm of its own" in c.wait(job, "failed")["outcome"]["message"]


def test_what_leaves_its_session_and_clears_its_environment_dies_with_the_attempt(cluster, tokens):
    text = ("for d in $(cut -d: -f3 /proc/self/cgroup | sort -u); do "
            "for m in /sys/fs/cgroup /sys/fs/cgroup/*; do echo 0 2>/dev/null > $m/cgroup.procs; done; done; "
            "env -i setsid sh -c 'setsid sleep 77123 & setsid setsid sleep 77123' & kill -9 $PPID; sleep 0.2; true")
    job = cluster.api("POST", "/v1/jobs", specs.command(text, devices=2), token=tokens["alice"])["id"]
    ended = cluster.wait(job, "succeeded")
    assert ended["state"] == "succeeded"
    found = subprocess.run(["pgrep", "-f", "sleep 77123"], capture_output=True, text=True, check=False).stdout
    assert found == ""  # its slots are free: so nothing of it is there


def test_the_helper_kills_a_rank_whose_shim_is_gone(cluster, tokens):
    job = cluster.api("POST", "/v1/jobs", specs.command("echo up; env -i setsid sleep 77124 & sleep 77124",
                                                        retry={"max": 0}), token=tokens["alice"])["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    path = wait_for("its ids", lambda: glob.glob(f"{cluster.agent_state()}/runs/{job}-g*/rank-00000.pid"))[0]
    with open(path, encoding="ascii") as f:
        os.kill(json.load(f)["shim"], signal.SIGKILL)
    cluster.wait(job, "failed")
    assert not glob.glob(f"/sys/fs/cgroup/**/muster-jobs/muster-{job}-*", recursive=True)
    wait_for("all of it to be gone", lambda: not subprocess.run(
        ["pgrep", "-f", "sleep 77124"], capture_output=True, text=True, check=False).stdout)


def test_a_signal_reaches_a_rank_of_another_account_and_its_answer_counts(cluster, tokens):
    text = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = cluster.api("POST", "/v1/jobs", specs.command(text), token=tokens["alice"])["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    assert cluster.log_text(job).endswith("saved\n")


@pytest.mark.parametrize("how, code", [("exit 7", 7), ("kill -SEGV $$", 139)])
def test_the_end_of_a_rank_of_another_account_is_told_as_it_was(cluster, tokens, how, code):
    _, ended = run(cluster, how, tokens["alice"], "failed")
    assert ended["outcome"]["exit_code"] == code and ended["outcome"]["class"] == "user"


def test_users_of_one_node_neither_see_nor_stop_each_other(cluster, tokens):
    job = cluster.api("POST", "/v1/jobs", specs.command("echo up; exec sleep 77125"), token=tokens["alice"])["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    text, _ = run(cluster, "ps -e -o pid= | wc -l; kill -9 -1; true", tokens["bob"])
    assert int(text.split()[0]) < 10  # a pid namespace of its own
    assert cluster.wait(job, "running")["generation"] == 1
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_port_is_reached_as_the_jobs_user_and_whoever_pretends_to_be_of_the_job_is_not(cluster, tokens):
    alices = cluster.api("POST", "/v1/jobs", {"name": "listens", "devices": {"min": 1, "max": 1}, "command": {
        "argv": ["python3", "-c", ECHO]}}, token=tokens["alice"])["id"]
    pretends = ["env", f"MUSTER_JOB={alices}", "python3", "-c", ECHO]
    bobs = cluster.api("POST", "/v1/jobs", {"name": "pretends", "devices": {"min": 1, "max": 1}, "command": {
        "argv": pretends}}, token=tokens["bob"])["id"]
    port = {}
    for job in (alices, bobs):
        path = f"{cluster.jobs_dir}/{job}/port"
        wait_for("its port", lambda path=path: os.path.exists(path))
        with open(path, encoding="ascii") as f:
            port[job] = int(f.read())

    def joined(number):
        return Session(cluster.port, cluster.api("POST", f"/v1/jobs/{alices}/forward", {"port": number},
                                                 token=tokens["alice"])["url"])
    session = joined(port[alices])
    session.send(INPUT, b"abc")
    session.until(lambda: session.output == b"abc")
    session.close()
    session = joined(port[bobs])
    session.closed()
    assert f"port {port[bobs]} is no program of job '{alices}'" in session.words.decode() and not session.output
    session.close()
    for job in (alices, bobs):
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")


def test_training_runs_under_the_accounts_of_its_user_and_hands_its_state_over(cluster, tokens):
    corpus = specs.write_corpus(os.path.join(cluster.top, "corpus"))
    cluster.hold.at(12)
    spec = specs.train(corpus, steps=24, pp=2, devices=2, every_steps=6, checkpoint={"memory_every_steps": 4})
    job = cluster.api("POST", "/v1/jobs", spec, token=tokens["alice"])["id"]
    wait_for("12 steps", lambda: (cluster.wait(job, "running")["progress"] or {}).get("step", 0) >= 12)
    for pid in cluster.rank_pids(job):
        os.kill(pid, signal.SIGKILL)  # what stands for it: all of the rank goes with it
    cluster.hold.release()
    ended = cluster.wait(job, "succeeded")
    assert ended["progress"]["step"] == 24
    resumed = [e["data"] for e in cluster.events(job) if e["type"] == "note" and e["data"]["type"] == "resumed"]
    assert [r["tier"] for r in resumed] == ["memory"] and resumed[0]["step"] in (4, 8, 12)  # the newest that was whole


def group_file(job, name, rank=0):
    """A file of a rank's control group, "" where there is no such controller."""
    for path in glob.glob(f"/sys/fs/cgroup/**/muster-jobs/muster-{job}-g*-r{rank}-*/{name}", recursive=True):
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    return ""


def started(cluster, spec, token):
    job = cluster.api("POST", "/v1/jobs", spec, token=token)["id"]
    wait_for("the program", lambda: "up" in cluster.log_text(job))
    return job


def test_a_rank_may_take_its_devices_share_of_the_node_unless_its_spec_says_otherwise(cluster, tokens):
    if not glob.glob("/sys/fs/cgroup/**/memory.limit_in_bytes", recursive=True) and \
            not glob.glob("/sys/fs/cgroup/*/memory.max"):
        pytest.skip("there is no controller of memory here")
    one = started(cluster, specs.command("echo up; exec sleep 77126"), tokens["alice"])
    two = started(cluster, specs.command("echo up; exec sleep 77126", resources={
        "memory_mib": 64, "cpus": 0.5, "pids": 100}), tokens["alice"])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    memory = int(group_file(one, "memory.limit_in_bytes") or group_file(one, "memory.max"))
    assert total // 2 - 4096 <= memory <= total // 2 and group_file(one, "pids.max") == "32768"
    assert (group_file(two, "memory.limit_in_bytes") or group_file(two, "memory.max")) == str(64 << 20)
    assert group_file(two, "pids.max") == "100"
    assert (group_file(two, "cpu.cfs_quota_us") or group_file(two, "cpu.max").split()[0]) == "50000"
    for job in (one, two):
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")


def test_a_rank_that_takes_more_memory_than_it_may_fails_by_its_own_fault_with_limit_and_peak(cluster, tokens):
    spec = specs.command("python3 -c 'x = bytearray(256 << 20)'", resources={"memory_mib": 64}, retry={"max": 3})
    job = cluster.api("POST", "/v1/jobs", spec, token=tokens["alice"])["id"]
    ended = cluster.wait(job, "failed")
    assert ended["outcome"]["class"] == "user" and ended["generation"] == 1
    assert ended["outcome"]["cause"] == "out-of-memory"
    assert "took 64 MiB of memory where its limit is 64 MiB" in ended["outcome"]["message"]


def test_a_fork_bomb_ends_within_its_own_limit(cluster, tokens):
    text = "python3 -c 'import os\ntry:\n  while 1: os.fork() or os.execlp(\"sleep\", \"sleep\", \"77127\")\n" \
           "except OSError as e: print(e.strerror)'"
    said, _ = run(cluster, text, tokens["alice"], resources={"pids": 20})
    assert "Resource temporarily unavailable" in said


def test_more_than_any_devices_share_is_refused_with_numbers(cluster, tokens):
    status_, problem = cluster.request("POST", "/v1/jobs", specs.command("true", resources={"memory_mib": 1 << 24}),
                                       token=tokens["alice"])
    assert status_ == 422 and "16777216 MiB of memory" in problem["detail"]


def test_a_node_with_accounts_is_no_shared_one(cluster):
    assert cluster.nodes()[0]["shared_account"] is False
    assert "shared account" not in cluster.muster("nodes").stdout + cluster.tail("agent-n1")


def beside(cluster, job, token, text):
    """`muster exec` of a shell's text by the owner of a token."""
    return subprocess.run([f"{BIN}/muster", "exec", job, "--", "sh", "-c", text], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=PATIENCE_S, check=False,
                          env=dict(cluster.cli_env(), MUSTER_TOKEN=token))


def helper_of(agent):
    """The process beside an agent that is root still; None: it has not been started yet."""
    with open(f"/proc/{agent}/task/{agent}/children", encoding="ascii") as f:
        found = [int(pid) for pid in f.read().split() if os.stat(f"/proc/{pid}").st_uid == 0]
    assert len(found) < 2
    return found[0] if found else None


def test_the_process_that_root_started_is_the_agent_and_ends_with_its_helper_not_with_its_ranks(cluster, tokens):
    agent = cluster.agents["n1"].pid
    assert os.stat(f"/proc/{agent}").st_uid == USERS["muster-agent"]
    job = started(cluster, specs.command("echo up; trap 'echo told; exit 0' TERM; while :; do sleep 0.1; done"),
                  tokens["alice"])
    os.kill(helper_of(agent), signal.SIGKILL)
    cluster.agents["n1"].wait(PATIENCE_S)
    assert "the helper that starts ranks is gone" in cluster.tail("agent-n1")
    cluster.start_agent("n1")
    wait_for("the agent", lambda: cluster.nodes()[0]["state"] == "ready")
    helper = wait_for("the helper", lambda: helper_of(cluster.agents["n1"].pid))
    cluster.kill_agent("n1")
    wait_for("the helper to end with its agent", lambda: not os.path.exists(f"/proc/{helper}"))
    cluster.start_agent("n1")
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    assert cluster.log_text(job).endswith("told\n") and cluster.wait(job, "cancelled")["generation"] == 1


def test_a_session_runs_as_the_jobs_user_and_reaches_no_more_than_the_job(cluster, tokens):
    job = started(cluster, specs.command("touch /tmp/of-mine; echo up; exec sleep 77129"), tokens["alice"])
    done = beside(cluster, job, tokens["alice"], f"cat /proc/self/status; cat {cluster.agent_state()}/incarnation "
                  f"{cluster.top}/agent-token {cluster.state}/token; ls /tmp; id -un")
    got, lines = status(done.stdout), done.stdout.splitlines()
    assert got["Uid"].split() == got["Gid"].split() == [str(USERS["alice"])] * 4
    assert got["Groups"].split() == [str(USERS["alice"]), "61300"] and got["NoNewPrivs"] == "1"
    assert {got[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert done.stderr.count("Permission denied") == 3 and "mst_" not in done.stdout
    assert lines[-2:] == ["of-mine", "alice"]
    of_admin = beside(cluster, job, cluster.token(), "id -un")  # not as a user of theirs
    assert of_admin.stdout == "alice\n"
    refused = beside(cluster, job, tokens["bob"], "id -un")
    assert refused.returncode != 0 and refused.stdout == "" and "no job" in refused.stderr, refused.stderr
    bobs = started(cluster, specs.command("echo up; exec sleep 77129"), tokens["bob"])
    beside(cluster, job, tokens["alice"], "kill -9 -1")
    assert cluster.wait(bobs, "running")["generation"] == 1
    for one in (job, bobs):
        cluster.request("POST", f"/v1/jobs/{one}/cancel")
        cluster.wait(one)


def test_a_session_of_another_account_ends_with_its_agent_and_the_job_goes_on(cluster, tokens):
    job = started(cluster, specs.command("echo up; exec sleep 77130"), tokens["alice"])
    with subprocess.Popen([f"{BIN}/muster", "exec", job, "--", "sh", "-c", "trap '' HUP TERM; echo on; "
                           "setsid sleep 77131 & sleep 77131; sleep 77131"], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(cluster.cli_env(), MUSTER_TOKEN=tokens["alice"])) as cli:
        assert cli.stdout.readline() == "on\n"
        cluster.kill_agent("n1")
        assert "killed" in cli.communicate(timeout=PATIENCE_S)[1] and cli.returncode == 137
    wait_for("all of the session to be gone", lambda: not subprocess.run(
        ["pgrep", "-x", "-f", "sleep 77131"], capture_output=True, text=True, check=False).stdout)
    cluster.start_agent("n1")
    wait_for("the agent", lambda: cluster.nodes()[0]["state"] == "ready")
    assert cluster.wait(job, "running")["generation"] == 1
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
