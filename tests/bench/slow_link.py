"""Training over a slow link, with and without codecs: tokens a second of runs taken in turn.

Two ranks of a GPT of 10.7 million parameters, each in a network namespace of its own, joined by a veth pair that tc
shapes; needs root. One JSON object a line, as the other benchmarks.

usage: slow_link.py [--rate 100mbit] [--steps 6] [--rounds 2] [--layouts dp,tp] [--quick]
"""
import argparse
import contextlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests import specs  # noqa: E402
from tests.cluster import wait_for  # noqa: E402
from tests.integration import ranks  # noqa: E402

CODECS = {"dp": ["none", "sdp4bit", "auto"], "tp": ["none", "r8", "r6", "auto"], "pp": ["none", "r8", "r4"]}
PARAMETERS = {"layers": 6, "hidden": 384, "heads": 6, "context": 128, "vocab": 256}


class Link:
    """Two hosts with one link between them, gone at the end."""

    def __init__(self, rate):
        self.names = [f"muster-bench-{secrets.token_hex(4)}-{i}" for i in range(2)]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
                self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("link", "add", "muster0", "netns", self.names[0], "type", "veth", "peer", "name", "muster1",
                    "netns", self.names[1])
            for i, name in enumerate(self.names):
                self.ip("-n", name, "addr", "add", f"10.98.7.{i + 1}/24", "dev", f"muster{i}")
                self.ip("-n", name, "link", "set", f"muster{i}", "up")
            self.shape(rate)
            for i, name in enumerate(self.names):  # UCX takes no device without a carrier
                wait_for("a carrier", lambda at=i, host=name: "state UP" in self.ip("-n", host, "-o", "link", "show",
                                                                                    f"muster{at}"), 10)
        except BaseException:
            self.close()
            raise

    def shape(self, rate):
        """Both directions from now on; "none": as fast as they go."""
        for i, name in enumerate(self.names):
            tbf = ["tbf", "rate", rate, "burst", "64kb" if rate.endswith("gbit") else "16kb", "latency", "50ms"]
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", f"muster{i}", "root",
                            *(["pfifo"] if rate == "none" else tbf)], check=True)

    @staticmethod
    def ip(*args):
        return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


class LinkedRun(ranks.Run):
    """Each rank on its host."""

    def __init__(self, link, folder, spec, **layout):
        super().__init__(folder, spec, nodes=2, **layout)
        self.link = link

    def start(self):
        for r in range(self.world):
            host = r * 2 // self.world
            env = dict(self.env, UCX_TLS="tcp", UCX_NET_DEVICES=f"muster{host}")
            with open(self.log_path(r), "wb") as log:
                self.ranks.append(subprocess.Popen(
                    ["ip", "netns", "exec", self.link.names[host], ranks.TRAIN, "--run", self.folder, "--rank", str(r)],
                    stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env))
        return self


def spec_of(corpus, group, codec, steps, model):
    spec = specs.train(corpus, steps=steps, every_steps=0, devices=2, compress={group: codec})
    spec["train"]["model"].update(model)
    spec["train"]["batch"] = {"sequences": 4, "micro": 2 if group != "tp" else 4}
    spec["train"]["optimizer"] = {"lr": 3e-4, "warmup": 2}
    spec["train"]["eval"]["sequences"] = 1
    spec["parallel"] = {"virtual_workers": 2 if group == "dp" else 1, "tp": 1, "pp": 1}
    spec["parallel"].update({} if group == "dp" else {group: 2})
    return spec


def measure(link, corpus, group, codec, steps, model):
    """Tokens a second without the first step, and the bytes of a step."""
    with tempfile.TemporaryDirectory() as folder:
        with LinkedRun(link, folder, spec_of(corpus, group, codec, steps, model), **{group: 2}) as run:
            lines = run.must(seconds=300).metrics()[1:]
    return statistics.median(m["tokens_per_s"] for m in lines), lines[-1]["bytes_" + group]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--layouts", default="dp,tp")
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    model = dict(PARAMETERS)
    if a.quick:
        model.update(layers=2, hidden=64, heads=2, context=32)
        a.steps, a.rounds = 3, 1
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Link(a.rate)) as link:
        corpus = specs.write_corpus(os.path.join(folder, "corpus"), 2000)
        for group in a.layouts.split(","):
            rates = {codec: [] for codec in CODECS[group]}
            sent = {}
            for _ in range(a.rounds):
                for codec in CODECS[group]:
                    rate, sent[codec] = measure(link, corpus, group, codec, a.steps, model)
                    rates[codec].append(rate)
            raw = statistics.median(rates["none"])
            for codec in CODECS[group][1:]:
                rate = statistics.median(rates[codec])
                print(json.dumps({"bench": "slow_link", "metric": f"{group}2_{codec}_{a.rate}", "value": round(rate, 1),
                                  "unit": "tokens/s", "reference": f"none {raw:.1f} tokens/s, bytes "
                                  f"{sent[codec] / max(sent['none'], 1):.3f} of its", "ratio": round(rate / raw, 3)}),
                      flush=True)


if __name__ == "__main__":
    main()
