"""What a training job leaves behind: lines of metrics, and the digest of its newest checkpoint."""
import json
import os
import re
import subprocess

from tests.cluster import BIN


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


def undisturbed(folder, spec, devices=1):
    """Digest and losses of `muster run` of the spec, which leaves what it does under the folder."""
    path, out = os.path.join(folder, f"{spec['name']}.json"), os.path.join(folder, f"{spec['name']}-on-{devices}")
    with open(path, "w", encoding="ascii") as f:
        json.dump(spec, f)
    subprocess.run([f"{BIN}/muster", "run", path, "--devices", str(devices), "--dir", out], capture_output=True,
                   timeout=180, check=True)
    return digest(f"{out}/checkpoints"), losses(out)
