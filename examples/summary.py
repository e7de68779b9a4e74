#!/usr/bin/env python3
"""Say what came of a training job: summary.py JOB. Shows how to read Muster's REST surface with nothing but Python.

The server and token are found as the CLI finds them: MUSTER_SERVER and MUSTER_TOKEN, else the state folder's.
"""
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


def state_folder():
    if os.environ.get("MUSTER_STATE"):
        return os.environ["MUSTER_STATE"]
    if os.environ.get("XDG_STATE_HOME"):
        return os.path.join(os.environ["XDG_STATE_HOME"], "muster")
    return "/var/lib/muster" if os.geteuid() == 0 else os.path.expanduser("~/.local/state/muster")


class Server:
    def __init__(self):
        self.url, self.token = os.environ.get("MUSTER_SERVER"), os.environ.get("MUSTER_TOKEN")
        if not self.url:
            with open(os.path.join(state_folder(), "server.json"), encoding="utf-8") as f:
                self.url = json.load(f)["url"]
        if not self.token:
            with open(os.path.join(state_folder(), "token"), encoding="ascii") as f:
                self.token = f.read().strip()

    def get(self, path, **query):
        """The document at path."""
        url = f"{self.url.rstrip('/')}/v1{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def list(self, path, field, page=500):
        """All elements of a list, however many pages it has."""
        query = {"limit": page}
        while True:
            answer = self.get(path, **query)
            yield from answer[field]
            if not answer.get("next_cursor"):
                return
            query["cursor"] = answer["next_cursor"]


def summary(server, job, page=500):
    """Lines that say what came of a job."""
    events = list(server.list(f"/jobs/{job}/events", "events", page))
    rates = sorted(server.get(f"/jobs/{job}/metrics", names="tokens_per_s", points=10000)["metrics"]["tokens_per_s"])
    evals = [e["data"] for e in events if e["type"] == "eval"]
    unigram = [e["unigram"] for e in evals if "unigram" in e]
    if unigram:
        yield f"unigram entropy      {unigram[-1]:.4f} nats per byte"
    if evals:
        yield f"evaluation loss, first {evals[0]['loss']:.4f} nats per byte at step {evals[0]['step']}"
        yield f"evaluation loss, final {evals[-1]['loss']:.4f} nats per byte at step {evals[-1]['step']}"
    if rates:
        yield f"speed, median        {rates[len(rates) // 2]:.0f} tokens/s"
    for e in events:
        if e["type"] == "checkpoint" and "path" in e["data"] and os.path.exists(e["data"]["path"]):
            yield f"checkpoint           step {e['data']['step']}: {e['data']['path']}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: summary.py JOB")
    try:
        for line in summary(Server(), sys.argv[1]):
            print(line)
    except urllib.error.HTTPError as e:
        sys.exit(f"summary: {json.load(e).get('detail', e)}")
    except OSError as e:
        sys.exit(f"summary: cannot ask the server: {e}")


if __name__ == "__main__":
    main()
