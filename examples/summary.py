#!/usr/bin/env python3
"""Say what came of a training job: summary.py JOB.json EVENTS.json, as `muster show` and `muster events` print them."""
import json
import os
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        job = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        events = json.load(f)["events"]
    evals = [e["data"] for e in events if e["type"] == "eval"]
    rates = []
    with open(os.path.join(job["dir"], "metrics.jsonl"), encoding="ascii") as f:
        rates = sorted(json.loads(line)["tokens_per_s"] for line in f)
    unigram = [e["unigram"] for e in evals if "unigram" in e]
    print()
    if unigram:
        print(f"unigram entropy      {unigram[-1]:.4f} nats per byte")
    if evals:
        print(f"held-out loss, first {evals[0]['loss']:.4f} nats per byte at step {evals[0]['step']}")
        print(f"held-out loss, final {evals[-1]['loss']:.4f} nats per byte at step {evals[-1]['step']}")
    if rates:
        print(f"speed, median        {rates[len(rates) // 2]:.0f} tokens/s")
    for e in events:
        if e["type"] == "checkpoint" and "path" in e["data"] and os.path.exists(e["data"]["path"]):
            print(f"checkpoint           step {e['data']['step']}: {e['data']['path']}")


if __name__ == "__main__":
    main()
