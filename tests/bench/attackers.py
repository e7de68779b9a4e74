"""What three attackers cost an honest user: a flood of logs, six readers of large metrics, a flood of events.

    make bench-attackers                  two minutes: 400 submits alone and 400 beside, in turns
    python3 tests/bench/attackers.py [--quick] [--only logs,metrics,events]

Prints one JSON object a line. The honest user's time is that from a submit to the moment at which the node's agent has
the assignment. It is taken in turns without and with the attackers, which report and read as fast as they are answered.
They have a low priority on this machine: elsewhere they would have machines of their own.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time

import requests

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests import specs  # noqa: E402
from tests.cluster import Cluster  # noqa: E402
from tests.integration.fake_agent import FakeAgent, run_of  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402

MIB = 1 << 20
READERS = 6


def token_of(cluster, user):
    return cluster.api("POST", "/v1/tokens", {"user": user, "role": "user"})["token"]


def given(cluster, node, token):
    """An agent of a class of its own, and the assignment of a job of its only device that runs."""
    agent = FakeAgent(cluster, node=node, slots=(node,))
    agent.register()
    spec = {**specs.command("true"), "devices": {"min": 1, "max": 1, "classes": [node]}}
    job = cluster.api("POST", "/v1/jobs", spec, token=token)["id"]
    assignment = agent.until(job)
    agent.report([run_of(assignment, "running")])
    return agent, job, assignment


def paced(go):
    os.nice(19)
    while True:
        go.wait()
        yield


def flood(agent, assignment, go, kinds):
    """Report pieces of each kind, a text a piece, from where the server says."""
    at = dict.fromkeys(kinds, 0)
    ref = {"job": assignment["job"], "generation": assignment["generation"]}
    for _ in paced(go):
        answer = agent.report([run_of(assignment, "running")], **{
            kind: [{**ref, **({"rank": 0} if kind == "logs" else {}), "offset": at[kind], "text": text}]
            for kind, text in kinds.items()})
        for kind in kinds:
            for ack in answer["acks"][kind]:
                at[kind] = ack["offset"]


def read_metrics(url, token, go):
    session = requests.Session()
    for _ in paced(go):
        session.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)


def honest(cluster, agent, token, n):
    """Seconds from submit to start, of n jobs one after the other."""
    spec = {**specs.command("true"), "devices": {"min": 1, "max": 1, "classes": [agent.node]}}
    found = []
    for _ in range(n):
        began = time.monotonic()
        job = cluster.api("POST", "/v1/jobs", spec, token=token)["id"]
        assignment = agent.until(job)
        found.append(time.monotonic() - began)
        for state in ("running", "exited"):
            agent.report([run_of(assignment, state)])
        agent.report([])
    return found


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "attackers", "metric": metric, "value": round(value, 4), "unit": unit,
                      "reference": reference, "ratio": round(ratio, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="logs,metrics,events", help="which attackers")
    args = parser.parse_args()
    quick = args.quick
    turns, each, megabytes = (1, 20, 4) if quick else (10, 40, 62)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-"))
        cluster = stack.enter_context(Cluster(folder, slots=0))
        ann, mallory = token_of(cluster, "ann"), token_of(cluster, "mallory")
        good = FakeAgent(cluster, node="good", slots=("good",) * 4)
        good.register()
        logs, _, of_logs = given(cluster, "bad-logs", mallory)
        events, _, of_events = given(cluster, "bad-events", mallory)
        metrics, job, of_metrics = given(cluster, "bad-metrics", mallory)
        line, at = "x" * 99 + "\n", 0
        while at < megabytes * MIB:
            acks = metrics.report([run_of(of_metrics, "running")], metrics=[
                {"job": job, "generation": 1, "offset": at, "text": line * (4 * MIB // len(line))}])["acks"]["metrics"]
            at = acks[0]["offset"] if acks else at
        go = multiprocessing.Event()
        note = json.dumps({"type": "note", "rank": 0, "message": "y" * 150}) + "\n"
        attackers = [multiprocessing.Process(target=what, args=(*who, go, *more)) for name, n, what, who, more in (
            ("logs", 1, flood, (logs, of_logs), ({"logs": line * (4 * MIB // len(line))},)),
            ("events", 1, flood, (events, of_events), ({"events": note * 1000},)),
            ("metrics", READERS, read_metrics, (f"{cluster.url}/v1/jobs/{job}/metrics", mallory), ()))
            if name in args.only.split(",") for _ in range(n)]
        for process in attackers:
            process.start()
        try:
            honest(cluster, good, ann, 10)
            alone, beside = [], []
            for _ in range(turns):
                alone += honest(cluster, good, ann, each)
                go.set()
                beside += honest(cluster, good, ann, each)
                go.clear()
        finally:
            for process in attackers:
                process.kill()
                process.join()
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        row(f"submit to start beside three attackers, {name}", percentile(beside, share) * 1000, "ms",
            f"the same user alone: {percentile(alone, share) * 1000:.1f} ms; {len(alone)} samples of each, in turns",
            percentile(beside, share) / percentile(alone, share))


if __name__ == "__main__":
    main()
