"""All that an operator can do to a cluster, and all that can happen to it, at once and at points drawn from a seed: no
job is lost, no device is given twice, no bit of the weights changes, and every second of a device is somebody's.

MUSTER_SEED repeats a run; MUSTER_TEST_LONG=1 makes more and longer ones.
"""
import contextlib
import os
import random
import signal
import time

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.results import digest, lines, losses, runs_of, undisturbed

SEED = int(os.environ.get("MUSTER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
ROUNDS, BLOWS, STEPS = (6, 60, 1200) if LONG else (1, 24, 300)
NODES = {"n1": "cpu:4", "n2": "cpu:2", "n3": "cpu:2"}
FAULTS = 4  # of a kind that a job counts: with more it would wait for minutes
PROJECTS = {"lab": {"quota": 6}, "prod": {"quota": 2, "class": "guaranteed"},
            "guests": {"quota": 0, "borrow": 4, "class": "opportunistic"}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def training(corpus, project):
    spec = specs.train(corpus, steps=STEPS, virtual_workers=4, every_steps=20, project=project, retry={"max": 50})
    spec["train"]["model"]["dropout"] = 0.1
    spec["devices"] = {"min": 1, "max": 4}
    return spec


@pytest.fixture(scope="module")
def alone(tmp_path_factory, corpus):
    """Digest and losses of a run that nobody disturbs."""
    return undisturbed(str(tmp_path_factory.mktemp("alone")), training(corpus, "lab"))


def over_quota(status, document):
    """A blow has made the project smaller than what the job asks for."""
    return status == 422 and "a quota of" in str(document)


class Storm:
    """One run: a cluster, its jobs, and the blows."""

    def __init__(self, cluster, corpus, rng):
        self.cluster, self.rng, self.faults = cluster, rng, 0
        self.trainings = [self.submit(training(corpus, project)) for project in ("lab", "lab", "guests")]
        self.commands = []

    def submit(self, spec):
        """A submit that was not answered is made again with the same key."""
        key = f"key-{self.rng.random()}"

        def taken():
            status, document = self.cluster.request("POST", "/v1/jobs", spec, headers={"Idempotency-Key": key})
            assert status in (0, 200, 201, 503, 504) or over_quota(status, document), document
            return document["id"] if status in (200, 201) else "refused" if status == 422 else None
        return wait_for("a submit to be taken", taken)

    def ask(self, method, path, body=None):
        """What may be refused, because the job has ended or is on its way already, but not for any other reason."""
        status, document = self.cluster.request(method, path, body)
        assert status in (0, 200, 202, 409, 503, 504) or over_quota(status, document), (path, status, document)

    # --- blows ---------------------------------------------------------------------------------------

    def patch(self):
        job = self.rng.choice(self.trainings)
        for _ in range(self.rng.randint(1, 4)):  # in quick succession
            least = self.rng.randint(1, 4)
            self.ask("PATCH", f"/v1/jobs/{job}", {"devices": {"min": least, "max": self.rng.randint(least, 8)},
                                                  "priority": self.rng.randint(1, 99)})

    def suspend(self):
        self.ask("POST", f"/v1/jobs/{self.rng.choice(self.trainings)}/suspend")

    def resume(self):
        for job in self.trainings:
            self.ask("POST", f"/v1/jobs/{job}/resume")

    def checkpoint(self):
        self.ask("POST", f"/v1/jobs/{self.rng.choice(self.trainings)}/checkpoint")

    def command(self):
        seconds = self.rng.choice([0, 0.5, 3])
        number = len(self.commands)
        script = f"sleep {seconds}; [ $RANK != 0 ] || echo {number} >> {self.cluster.folder}/ran"
        job = self.submit(specs.command(script, devices=self.rng.randint(1, 2), retry={"max": 50},
                                        project=self.rng.choice(["lab", "prod"])))
        if job != "refused":
            self.commands.append(job)

    def cancel(self):
        if self.commands:
            self.ask("POST", f"/v1/jobs/{self.rng.choice(self.commands)}/cancel")

    def quota(self):
        self.ask("PUT", "/v1/projects/lab", {"quota": self.rng.randint(0, 6), "borrow": self.rng.randint(0, 2)})

    def drain(self):
        node, deadline = self.rng.choice(list(NODES)), self.rng.choice(["", "?deadline_s=1", "?deadline_s=20"])
        self.ask("POST", f"/v1/nodes/{node}/drain{deadline}")

    def undrain(self):
        for node in NODES:
            self.ask("POST", f"/v1/nodes/{node}/undrain")

    def kill_server(self):
        self.cluster.kill_server()
        self.cluster.start_server()

    def kill_redis(self):
        with contextlib.suppress(AssertionError, ProcessLookupError):
            os.kill(self.cluster.redis_pid(), signal.SIGKILL)

    def kill_agent(self):
        node = self.rng.choice(list(NODES))
        self.cluster.kill_agent(node)
        self.cluster.start_agent(node)

    def kill_rank(self):
        ranks = [pid for job in self.trainings for pid in self.cluster.rank_pids(job)]
        if ranks and self.faults < FAULTS:
            self.faults += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(ranks), signal.SIGKILL)

    def freeze_agent(self):
        """For longer than it takes to be lost; its ranks go on meanwhile."""
        if self.faults < FAULTS:
            self.faults += 1
            node = self.rng.choice(list(NODES))
            self.cluster.agents[node].send_signal(signal.SIGSTOP)

            def lost():
                status, answer = self.cluster.request("GET", "/v1/nodes")
                return status == 200 and {n["id"]: n["state"] for n in answer["nodes"]}[node] == "lost"
            wait_for(f"{node} to be lost", lost)
            self.cluster.agents[node].send_signal(signal.SIGCONT)

    def blow(self):
        gentle = [self.patch] * 5 + [self.suspend, self.checkpoint, self.cancel, self.quota, self.drain]
        rough = [self.kill_server, self.kill_redis, self.kill_agent, self.kill_rank, self.freeze_agent]
        what = self.rng.choice(gentle + [self.resume, self.undrain] * 2 + [self.command] * 4 + rough)
        print(f"{time.monotonic():.1f} {what.__name__}")
        what()
        time.sleep(self.rng.choice([0, 0, 0.1, 0.5, 1.5]))  # blows at any distance: nothing is waited for here

    def calm(self):
        """Nothing is in the way of any job any more."""
        self.undrain()
        self.ask("PUT", "/v1/projects/lab", {"quota": 8})
        self.ask("PUT", "/v1/projects/guests", {"quota": 8})
        for job in self.trainings:
            self.ask("PATCH", f"/v1/jobs/{job}", {"devices": {"min": 1, "max": 8}})

            def goes_on():
                state = self.cluster.job(job)
                if state["state"] == "suspended" or state["reason"]["code"] == "suspending":
                    self.resume()
                    return False
                return True
            wait_for(f"{job} not to be suspended", goes_on)


def check_devices(cluster, jobs):
    """No device was given to two at once, and each project is charged what its jobs had."""
    used, spent = {}, {}
    for job in jobs:
        for since, until, places in runs_of(cluster, job["id"]):
            spent[job["project"]] = spent.get(job["project"], 0) + len(places) * (until - since) / 1e6
            for place in places:
                used.setdefault(place, []).append((since, until, job["id"]))
    for place, runs in used.items():
        runs.sort()  # of two jobs, the first of which has left this node but not all of its nodes, times may overlap
        for (_, until, job), (since, _, other) in zip(runs, runs[1:]):
            assert until <= since or job != other, f"{place} was given to {job} twice"
    for project in PROJECTS:
        got = cluster.api("GET", f"/v1/projects/{project}")["used"]
        assert got["devices"] == 0
        assert got["device_seconds"] == pytest.approx(spent.get(project, 0), rel=1e-6, abs=1e-5), project


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_lost_doubled_or_changed_in_a_storm(tmp_path, corpus, alone, number):
    print(f"seed {SEED}")
    with Cluster(str(tmp_path), slots=0, server_args=["--hold", "0", "--round", "1", "--grace", "10", "--unknown-after",
                                                      "2", "--lost-after", "4"]) as cluster:
        for name, settings in PROJECTS.items():
            cluster.api("PUT", f"/v1/projects/{name}", settings)
        for node, devices in NODES.items():
            cluster.start_agent(node, devices)
        cluster.wait_nodes(list(NODES))
        cluster.hold.at(0)
        storm = Storm(cluster, corpus, random.Random(f"{SEED}-{number}"))
        for blow in range(BLOWS):  # of the steps as many as of the blows: no training is over before the storm
            cluster.hold.at(STEPS * (blow + 1) // BLOWS)
            storm.blow()
        storm.calm()
        cluster.hold.release()
        for job in storm.trainings:
            ended = cluster.wait(job, "succeeded")
            assert [line["step"] for line in lines(ended["dir"])] == list(range(STEPS)), "each step once"
            assert losses(ended["dir"]) == alone[1]
            assert digest(f"{ended['dir']}/checkpoints") == alone[0]
        for job in storm.commands:
            assert cluster.wait(job)["state"] in ("succeeded", "cancelled")
        listed = {job["id"]: job for job in cluster.list_jobs()}
        assert sorted(listed) == sorted(storm.trainings + storm.commands)
        check_devices(cluster, listed.values())
        (tmp_path / "ran").touch()
        ran = (tmp_path / "ran").read_text(encoding="ascii").split()
        for i, job in enumerate(storm.commands):
            if listed[job]["state"] == "succeeded" and listed[job]["generation"] == 1:
                assert ran.count(str(i)) == 1
        wait_for("all devices to be free",
                 lambda: {slot["state"] for node in cluster.nodes() for slot in node["slots"]} == {"free"})
    assert not cluster.leftovers()
