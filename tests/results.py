"""What a training job leaves behind: lines of metrics, and the digest of its newest checkpoint."""
import json
import os
import re
import subprocess

from tests.cluster import BIN, ENDED
from tests.patience import PATIENCE_S


def digest(folder):
    """Of a folder of checkpoints, the newest's."""
    out = subprocess.run([f"{BIN}/muster", "checkpoint", "digest", folder], capture_output=True, text=True, check=True)
    return re.search(r"\b[0-9a-f]{32}\b", out.stdout).group()


def lines(folder):
    """The whole lines of metrics that a job has written so far."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), encoding="ascii") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def losses(folder):
    """By step."""
    return {line["step"]: line["loss"] for line in lines(folder)}


def runs_of(cluster, job):
    """The runs of a job that has ended, as its events have them: (from, to, [(node, slot)]) in microseconds. Its states
    follow from each other."""
    state, live, since_us, places, runs = "queued", False, 0, [], []
    for event in (e for e in cluster.events(job) if e["type"] == "state"):
        assert event["from"] == state, event
        state, data = event["to"], event["data"]
        if live and not data["live"]:
            runs.append((since_us, data["at_us"], places))
        if "assignment" in data:
            since_us, places = data["at_us"], [(place["node"], place["slot"]) for place in data["assignment"]]
        live = data["live"]
    assert state == cluster.job(job)["state"] and state in ENDED and not live
    return runs


def device_seconds(cluster, job):
    return sum(len(places) * (until_us - since_us) for since_us, until_us, places in runs_of(cluster, job)) / 1e6


def undisturbed(folder, spec, devices=1):
    """Digest and losses of `muster run` of the spec, which leaves what it does under the folder."""
    path, out = os.path.join(folder, f"{spec['name']}.json"), os.path.join(folder, f"{spec['name']}-on-{devices}")
    with open(path, "w", encoding="ascii") as f:
        json.dump(spec, f)
    subprocess.run([f"{BIN}/muster", "run", path, "--devices", str(devices), "--dir", out], capture_output=True,
                   timeout=PATIENCE_S, check=True)
    return digest(f"{out}/checkpoints"), losses(out)
