"""Jobs that grow, shrink and move while they train, through the server and real agents: the same bits as at rest."""
import json
import os
import re
import signal
import statistics
import tempfile

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.results import digest, lines, losses, undisturbed

STEPS = 160
AHEAD = 5  # steps that a job may do after those that a test waits for, until the test has done what it is to do
QUICK = ["--hold", "0", "--round", "1", "--unknown-after", "2", "--lost-after", "4"]


def the_spec(corpus, least, most, **extra):
    spec = specs.train(corpus, steps=STEPS, virtual_workers=8, every_steps=20, **extra)
    spec["devices"] = {"min": least, "max": most}
    spec["train"]["model"]["dropout"] = 0.1
    return spec


@pytest.fixture
def shared_memory():
    """A folder in memory, for what a job leaves to its next generation."""
    with tempfile.TemporaryDirectory(prefix="muster-test-", dir="/dev/shm") as folder:
        yield folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


@pytest.fixture(scope="module")
def static(tmp_path_factory, corpus):
    """Digest and losses of a run on one device that nothing disturbs."""
    return undisturbed(str(tmp_path_factory.mktemp("static")), the_spec(corpus, 1, 8))


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_any_number_of_replicas_leaves_the_same_bits(tmp_path, corpus, static, devices):
    assert undisturbed(str(tmp_path), the_spec(corpus, 1, 8), devices) == static


def go_on(cluster, job, least, *devices):
    """Let the job, which is held, go on until it has trained past this step on one of these numbers of devices, and is
    held again; the step it has come to."""
    cluster.hold.at(least + AHEAD)

    def there():
        got = lines(cluster.job(job)["dir"])
        return got and got[-1]["ranks"] in devices and got[-1]["step"] >= least and got[-1]["step"] + 1
    return wait_for(f"{job} on {devices} devices past step {least}", there)


def elastic_cluster(folder, **how):
    """One whose jobs are held until go_on and check_end let them go on."""
    return Cluster(str(folder), **{"server_args": QUICK, "hold_at": 0, **how})


def scale(cluster, job, least, most):
    cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": least, "max": most}})


def check_end(cluster, job, static, generations):
    cluster.hold.release()
    ended = cluster.wait(job, "succeeded")
    assert ended["generation"] >= generations
    assert losses(ended["dir"]) == static[1]
    assert digest(f"{ended['dir']}/checkpoints") == static[0]
    replayed = "queued"
    for event in cluster.events(job):
        if event["type"] == "state":
            assert event["from"] == replayed, event
            replayed = event["to"]
    assert replayed == "succeeded"
    return ended


def resumed(cluster, job):
    """From where its runs have gone on."""
    return [event["data"]["tier"] for event in cluster.events(job) if "tier" in (event["data"] or {})]


@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_scaling_1_4_2_3_in_mid_run_changes_no_bit_and_repeats_no_step(tmp_path, corpus, static, tier, shared_memory):
    """memory: generations hand over in the node's memory; disk: they leave nothing there."""
    spec = the_spec(corpus, 1, 1)
    if tier == "disk":
        spec["checkpoint"]["memory_every_steps"] = 0
    with elastic_cluster(tmp_path, slots=4, memory=shared_memory if tier == "memory" else None) as cluster:
        job = cluster.submit(spec)["id"]
        step = go_on(cluster, job, 10, 1)
        for devices in (4, 2, 3):
            scale(cluster, job, devices, devices)
            step = go_on(cluster, job, step + 10, devices)
        ended = check_end(cluster, job, static, 4)
        assert sum(ended["restarts"].values()) == 0
        assert len(lines(ended["dir"])) == STEPS, "with notice no step is lost"
        assert "rescaling" in [e.get("to") for e in cluster.events(job)]
        assert resumed(cluster, job) == [tier] * 3
        wait_for("the job's memory to be given back", lambda: not os.listdir(cluster.memory()))
    assert not cluster.leftovers()


def test_replicas_of_tp_2_and_pp_2_grow_and_shrink_and_change_no_bit(tmp_path, corpus, shared_memory):
    spec = the_spec(corpus, 4, 4, tp=2, pp=2)
    spec["train"]["steps"] = 40
    alone = undisturbed(str(tmp_path), spec, 4)
    assert undisturbed(str(tmp_path), spec, 8) == alone
    with elastic_cluster(tmp_path, slots=8, memory=shared_memory) as cluster:
        job = cluster.submit(spec)["id"]
        step = go_on(cluster, job, 5, 4)
        scale(cluster, job, 8, 8)
        go_on(cluster, job, step + 5, 8)
        scale(cluster, job, 4, 4)
        check_end(cluster, job, alone, 3)
    assert not cluster.leftovers()


def test_a_rank_killed_after_a_rescale_in_memory_costs_no_bit(tmp_path, corpus, static, shared_memory):
    """What was handed over is being changed by then: the job goes on from a checkpoint."""
    with elastic_cluster(tmp_path, slots=2, memory=shared_memory) as cluster:
        spec = the_spec(corpus, 1, 1)
        spec["checkpoint"]["memory_every_steps"] = 0
        job = cluster.submit(spec)["id"]
        go_on(cluster, job, 25, 1)
        wait_for("a checkpoint", lambda: cluster.job(job)["checkpoint"])
        scale(cluster, job, 2, 2)
        go_on(cluster, job, 30, 2)
        os.kill(cluster.rank_pids(job)[1], signal.SIGKILL)
        ended = check_end(cluster, job, static, 3)
        assert ended["restarts"]["system"] == 1
        assert resumed(cluster, job) == ["memory", "disk"]
    assert not cluster.leftovers()


def has_shares(cluster, name, devices):
    """Start an agent; False where shares of a processor cannot be had, and the agent says so."""
    def known():
        return name in [node["id"] for node in cluster.nodes()]
    cluster.start_agent(name, devices)
    wait_for("the agent to know", lambda: known() or cluster.agents[name].poll())
    if not known():
        assert "needs a control group" in cluster.tail(f"agent-{name}")
        return False
    cluster.wait_nodes([name])
    return True


shows_speeds = pytest.mark.skipif(specs.IS_TINY, reason="how fast a device is shows in steps of some length alone")


def unequal_devices(cluster, fast, slow):
    """A fast device and a slow one on n1, or False."""
    return has_shares(cluster, "n1", f"cpu:1=fast@{fast},cpu:1=slow@{slow}")


@shows_speeds
def test_work_is_shared_out_by_the_speed_of_unequal_devices_and_changes_no_bit(tmp_path, corpus, static,
                                                                              shared_memory):
    with elastic_cluster(tmp_path, slots=0, memory=shared_memory) as cluster:
        if not unequal_devices(cluster, 0.25, 0.05):  # so little that it can be had where others keep the cores busy
            return
        job = cluster.submit(the_spec(corpus, 2, 2))["id"]
        cluster.hold.at(STEPS - 20)
        wait_for("its work to be shared out anew", lambda: cluster.job(job)["generation"] > 1)
        changes = [e["cause"]["text"] for e in cluster.events(job) if e.get("to") == "rescaling"]
        assert "shares its work out by the devices' speed" in changes[0]
        ended = check_end(cluster, job, static, 2)
        assert sum(ended["restarts"].values()) == 0
        times = lines(ended["dir"])[-1]["leaf_ms"]
        assert len(times) == 2 and min(times) > 0
    assert not cluster.leftovers()


def four_workers(corpus, **devices):
    spec = specs.train(corpus, steps=180, devices=4, virtual_workers=4, every_steps=20)
    spec["train"]["model"]["dropout"] = 0.1
    spec["devices"].update(devices)
    return spec


def four_fast_devices(cluster):
    """One on n1, one on n2, two on n3, and n4's two slow ones to come; without control groups all are equally fast."""
    limited = has_shares(cluster, "n1", "cpu:1=fast@0.25")
    share = "@0.25" if limited else ""
    for name, n in ("n1", 1), ("n2", 1), ("n3", 2):
        if name not in [node["id"] for node in cluster.nodes()]:
            cluster.start_agent(name, f"cpu:{n}=fast{share}")
    cluster.wait_nodes(["n1", "n2", "n3"])
    return "cpu:2=slow" + ("@0.05" if limited else "")


def classes(cluster, job):
    return sorted(rank["class"] for rank in cluster.job(job)["assignment"] or [])


def laid(cluster, job, ranks, generation):
    """Virtual workers of each rank of a run, as the ranks' logs say; 0: not said yet."""
    def told(rank):
        pieces = cluster.api("GET", f"/v1/jobs/{job}/logs?rank={rank}&generation={generation}")["logs"]
        leaves = re.search(r"leaves (\d+)-(\d+) of", "".join(p["text"] for p in pieces))
        return int(leaves[2]) - int(leaves[1]) + 1 if leaves else 0
    return [told(rank) for rank in range(ranks)]


def workers(cluster, job):
    """(class, virtual workers) of each rank of the newest run."""
    now = cluster.job(job)
    ranks = sorted(now["assignment"] or [], key=lambda rank: rank["rank"])
    return sorted(zip([rank["class"] for rank in ranks], laid(cluster, job, len(ranks), now["generation"])))


def share_out(cluster, job, *want):
    """Wait until the virtual workers lie so."""
    wait_for(f"virtual workers {want}", lambda: workers(cluster, job) == sorted(want))


def check_mixed(cluster, job, mixed, by_rank):
    """Three devices of two classes from generation `mixed` on: the replica with two workers is not of the slower class.

    How fast a class is, the run's own times say: shares of a processor that others use as well may all be the same.
    """
    ended = cluster.job(job)
    runs = {g: [line["leaf_ms"] for line in lines(ended["dir"]) if line["generation"] == g][4:]
            for g in range(mixed, ended["generation"] + 1)}
    lay = {g: laid(cluster, job, 3, g) for g in runs if runs[g]}
    assert all(sorted(leaves) == [1, 1, 2] for leaves in lay.values()), lay
    anew = [e for e in cluster.events(job) if "shares its work out" in ((e["cause"] or {}).get("text") or "")]
    assert len(anew) <= 3, "each time it takes twice the gain"
    last = max(runs)
    if len(runs[last]) < 60:  # too short to be laid anew: eight steps in a row, a round, and then the drain
        return
    took = {name: statistics.mean(ms[rank] for ms in runs[last] for rank in range(3) if by_rank[rank] == name)
            for name in set(by_rank)}
    assert took[by_rank[lay[last].index(2)]] < 2 * min(took.values()), (took, by_rank, lay)


@pytest.fixture(scope="module")
def static_of_four(tmp_path_factory, corpus):
    return undisturbed(str(tmp_path_factory.mktemp("static-of-four")), four_workers(corpus), 4)


def test_four_devices_then_two_then_one_and_two_of_another_class_train_the_same_bits(tmp_path, corpus, static_of_four):
    """The three stages of EasyScale's acceptance: 4 x 1 virtual workers, 2 x 2, and 4 over one and two slower ones."""
    with elastic_cluster(tmp_path, slots=0) as cluster:
        slow = four_fast_devices(cluster)
        job = cluster.submit(four_workers(corpus))["id"]
        step = go_on(cluster, job, 5, 4)
        share_out(cluster, job, *[("fast", 1)] * 4)
        scale(cluster, job, 2, 2)
        cluster.api("POST", "/v1/nodes/n3/drain")
        step = go_on(cluster, job, step + 5, 2)
        share_out(cluster, job, *[("fast", 2)] * 2)
        scale(cluster, job, 3, 3)
        cluster.wait(job, "queued")
        assert any("the cluster does not hold its fewest devices now" in event["cause"]["text"]
                   for event in cluster.events(job) if event["type"] == "state" and event["cause"])
        cluster.api("POST", "/v1/nodes/n2/drain")
        cluster.start_agent("n4", slow)
        wait_for("the slow ones to take part", lambda: classes(cluster, job) == ["fast", "slow", "slow"])
        mixed = cluster.job(job)
        by_rank = [rank["class"] for rank in sorted(mixed["assignment"], key=lambda rank: rank["rank"])]
        go_on(cluster, job, step + 5, 3)
        ended = check_end(cluster, job, static_of_four, 3)
        assert sum(ended["restarts"].values()) == 0
        assert len(lines(ended["dir"])) == len(static_of_four[1]), "with notice no step is lost"
        check_mixed(cluster, job, mixed["generation"], by_rank)
    assert not cluster.leftovers()


def test_a_job_that_may_not_mix_stays_on_the_class_it_began_on_and_says_so(tmp_path, corpus, static_of_four):
    with elastic_cluster(tmp_path, slots=0) as cluster:
        slow = four_fast_devices(cluster)
        job = cluster.submit(four_workers(corpus, min=1, hetero_ok=False))["id"]
        step = go_on(cluster, job, 5, 4)
        cluster.start_agent("n4", slow)
        cluster.wait_nodes(["n4"])
        cluster.api("POST", "/v1/nodes/n3/drain")
        step = go_on(cluster, job, step + 5, 2)
        assert classes(cluster, job) == ["fast", "fast"]
        causes = cluster.api("GET", f"/v1/jobs/{job}/explain")["causes"]
        cause = [c for c in causes if c["code"] == "shrunk"][0]
        assert (cause["class"], cause["elsewhere"]) == ("fast", 2), cause
        assert "2 of other classes are free, but it stays on the class it began on" in cause["text"]
        for name in "n1", "n2":
            cluster.api("POST", f"/v1/nodes/{name}/drain")
        wait_for("it to wait", lambda: cluster.job(job)["reason"]["code"] == "nodes-drained")
        assert "it stays on the class it began on" in cluster.muster("explain", job, check=True).stdout
        cluster.api("POST", "/v1/nodes/n3/undrain")
        go_on(cluster, job, step, 2)
        assert classes(cluster, job) == ["fast", "fast"]
        check_end(cluster, job, static_of_four, 3)
    assert not cluster.leftovers()


@shows_speeds
def test_a_pipeline_over_unequal_classes_has_uneven_stages_and_the_same_bits(tmp_path, corpus, shared_memory):
    with elastic_cluster(tmp_path, slots=0, memory=shared_memory) as cluster:
        if not unequal_devices(cluster, 0.4, 0.1):
            return
        cluster.hold.release()
        for class_, steps in ("fast", 60), ("slow", 15):
            spec = specs.train(corpus, steps=steps)
            spec["devices"]["classes"] = [class_]
            cluster.submit(spec)
        for job in "j1", "j2":  # so the speed of each class is known
            cluster.wait(job, "succeeded")
        spec = the_spec(corpus, 2, 2)
        spec["train"]["steps"] = 40
        alone = undisturbed(str(tmp_path), spec)
        spec["parallel"].update(pp=2, schedule="auto")
        cluster.hold.at(AHEAD)
        job = cluster.submit(spec)["id"]
        runs = wait_for("it to run", lambda: (j := cluster.job(job))["layout"] and j["assignment"] and j)
        assert runs["layout"]["pp"] == 2
        assert [rank["class"] for rank in sorted(runs["assignment"], key=lambda rank: rank["rank"])] in (
            ["fast", "slow"], ["slow", "fast"])
        layers = runs["plan"]["settled"]["parallel"]["layers"]
        layers = {rank["class"]: layers[rank["rank"]] for rank in runs["assignment"]}
        assert layers["fast"] > layers["slow"] >= 1, layers
        check_end(cluster, job, alone, 1)
    assert not cluster.leftovers()


def throttle(pid, times):
    """Give a rank on a device with a share of the processor a share that is so many times smaller."""
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
        own = [line.strip().split(":", 2) for line in f]
    for _, controllers, path in own:
        if "cpu" in controllers.split(","):
            group = f"/sys/fs/cgroup/{controllers}{path}"
            with open(f"{group}/cpu.cfs_period_us", "r+", encoding="ascii") as f:
                period = int(f.read())
                f.write(str(period * times))
            return
    path = next(path for number, _, path in own if number == "0")
    with open(f"/sys/fs/cgroup{path}/cpu.max", "r+", encoding="ascii") as f:
        quota, period = f.read().split()
        f.write(f"{quota} {int(period) * times}")


def even_agents(cluster, *names):
    """Agents of one device each, of one class. False where shares of a processor cannot be had, and they say so."""
    for name in names:
        cluster.start_agent(name, "cpu:1=even@0.35")
    wait_for("the agents to know", lambda: cluster.nodes() or cluster.agents[names[0]].poll())
    if not cluster.nodes():
        assert "needs a control group" in cluster.tail(f"agent-{names[0]}")
        return False
    cluster.wait_nodes(names)
    return True


@shows_speeds
@pytest.mark.parametrize("spare", ["free", "late"] if os.environ.get("MUSTER_TEST_LONG") else ["free"])
def test_a_device_that_becomes_slow_in_mid_run_is_told_and_replaced_once_and_no_bit_changes(tmp_path, corpus,
                                                                                           spare):
    """free: whatever the job's hold. late: until a device is free, the slow one gets less work. So many steps that even
    on a fast processor the slow device is slow for longer than it takes to be told."""
    spec = the_spec(corpus, 2, 2)
    spec["train"]["steps"] *= 3
    static = undisturbed(str(tmp_path), spec)
    watchful = [*QUICK, "--slow-ratio", "2.5", "--slow-after", "3", "--hold", "3600" if spare == "free" else "0"]
    with elastic_cluster(tmp_path, slots=0, server_args=watchful) as cluster:
        if not even_agents(cluster, "n1", "n2", *["n3"] * (spare == "free")):
            return
        job = cluster.submit(spec)["id"]
        go_on(cluster, job, 10, 2)
        ranks = [rank["node"] for rank in cluster.job(job)["assignment"]]
        slow, better = ranks[1], ({"n1", "n2", "n3"} - set(ranks)).pop()
        throttled = len(lines(cluster.job(job)["dir"]))
        throttle(cluster.rank_pids(job)[1], 8)
        cluster.hold.release()
        generation = 2
        if spare == "late":
            wait_for("its work to be laid anew", lambda: cluster.job(job)["generation"] == 2)
            assert even_agents(cluster, better)
            generation = 3
        moved = wait_for("the job to be moved", lambda: (j := cluster.job(job))["generation"] >= generation and j)
        assert {rank["node"] for rank in moved["assignment"]} == {ranks[0], better}
        nodes = {node["id"]: node["slots"][0].get("slow") for node in cluster.nodes()}
        assert nodes[slow]["ratio"] > 2.5 and not nodes[better], nodes
        assert f"device 0 of {slow} is slow" in cluster.muster("nodes", check=True).stdout
        ended = check_end(cluster, job, static, generation)
        assert ended["generation"] == generation and sum(ended["restarts"].values()) == 0
        events = cluster.events(job)
        told = [e for e in events if e["cause"]["code"] == "device_slow"]
        assert [(e["data"]["node"], e["data"]["devices"]) for e in told] == [(slow, 1)]
        moves = [e["cause"]["text"] for e in events if e["from"] == "running" and e["to"] == "rescaling"]
        assert len(moves) == generation - 1 and f"goes on without device 0 of {slow}" in moves[-1], moves
        ran = lines(ended["dir"])
        assert len(ran) == spec["train"]["steps"], "with notice no step is lost"
        held_up = [line["step_ms"] for line in ran[throttled + 1:] if line["generation"] == 1]
        after = [line["step_ms"] for line in ran if line["generation"] == generation][1:]
        assert statistics.median(after) * 1.5 < statistics.median(held_up), (after, held_up)
        assert "muster_slow_replaced_total 1" in cluster.api("GET", "/metrics")
        cluster.kill_server()
        cluster.start_server()
        slots = {node["id"]: node["slots"][0] for node in cluster.nodes()}
        assert slots[slow]["slow"]["since"] == nodes[slow]["since"], "what is known outlives the server"
        cluster.api("POST", f"/v1/nodes/{slow}/undrain")
        assert not [node for node in cluster.nodes() if "slow" in node["slots"][0]]
    assert not cluster.leftovers()


def test_a_job_folds_onto_what_a_drained_and_a_lost_node_leave_and_grows_back(tmp_path, corpus, static):
    with elastic_cluster(tmp_path, slots=2) as cluster:
        cluster.start_agent("n2", "cpu:2")
        cluster.wait_nodes(["n1", "n2"])
        job = cluster.submit(the_spec(corpus, 1, 4))["id"]
        step = go_on(cluster, job, 5, 4)
        cluster.api("POST", "/v1/nodes/n2/drain")
        step = go_on(cluster, job, step + 5, 2)
        causes = cluster.api("GET", f"/v1/jobs/{job}/explain")["causes"]
        assert [c for c in causes if c["code"] == "shrunk" and c["need"] == 4], causes
        cluster.api("POST", "/v1/nodes/n2/undrain")
        scale(cluster, job, 4, 4)  # by itself it grows only if more devices were measured to be faster
        step = go_on(cluster, job, step + 5, 4)
        scale(cluster, job, 1, 4)
        ranks = cluster.rank_pids(job, "n2")
        assert len(ranks) == 2
        cluster.kill_agent("n2")
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        go_on(cluster, job, step + 5, 1, 2)  # two may be no faster than one
        ended = check_end(cluster, job, static, 4)
        assert ended["restarts"]["node"] == 1
    assert not cluster.leftovers()


def test_a_guarantee_takes_its_devices_from_an_elastic_job(tmp_path, corpus, static):
    with elastic_cluster(tmp_path, slots=4, server_args=["--round", "1"]) as cluster:  # --hold: the default
        cluster.api("PUT", "/v1/projects/prod", {"quota": 2, "class": "guaranteed"})
        job = cluster.submit(the_spec(corpus, 1, 4))["id"]
        go_on(cluster, job, 5, 4)
        first = cluster.submit(specs.command("exec sleep 100000", devices=2, project="prod"))["id"]
        second = cluster.submit(specs.command("true", devices=1, project="prod"))["id"]
        cluster.wait(first, "running")
        wait_for("the quota to hold", lambda: cluster.job(second)["reason"]["code"] == "tenant-limit")
        assert cluster.api("GET", "/v1/projects/prod")["used"]["devices"] == 2
        check_end(cluster, job, static, 2)
        assert cluster.job(second)["state"] == "queued"
        cluster.action(first, "cancel")
        cluster.wait(second, "succeeded")
        assert cluster.api("GET", "/v1/projects/prod")["used"]["device_seconds"] > 0
    assert not cluster.leftovers()


def test_a_kept_round_gives_the_servers_answer_and_says_what_would_change_it(tmp_path):
    with Cluster(str(tmp_path), slots=2) as cluster:
        first = cluster.submit(specs.command("exec sleep 100000", devices=2))["id"]
        cluster.wait(first, "running")
        second = cluster.submit(specs.command("true", devices=2))["id"]
        wait_for("its reason", lambda: cluster.job(second)["reason"]["code"] == "insufficient-devices")
        told = cluster.api("GET", f"/v1/jobs/{second}/explain")["causes"][0]
        assert told["behind"] == [first] and told["classes"] == [{"class": "cpu", "total": 2, "free": 0, "drained": 0,
                                                                  "spare": 0}]
        said = cluster.muster("explain", second, "--save", "round", check=True).stdout
        assert f"behind: {first}" in said and "cpu: 2 devices, 0 free" in said

        def replay(*what_if):
            out = cluster.muster("simulate", "--snapshot", "round", "--explain", second, "-o", "json", *what_if)
            assert out.returncode == 0, out.stderr
            return json.loads(out.stdout)
        assert replay()["fast"] == {"action": "wait", "devices": 0, "cause": told}
        assert replay("--add-nodes", "cpu=1x2")["fast"]["action"] == "start"
        assert replay("--set-priority", f"{second}=100")["full"]["action"] == "wait", "a command is not interrupted"
        kept = ["simulate", "--snapshot", "round", "--explain"]
        assert cluster.muster(*kept, "j99").returncode == 3
        assert cluster.muster(*kept, second, "--add-nodes", "x").returncode == 2
        assert cluster.muster("simulate", "--snapshot", "musterd.log", "--explain", second).returncode == 4
    assert not cluster.leftovers()
