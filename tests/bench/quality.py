"""What codecs do to learning: the final evaluation loss of the same training with and without them.

`make quality` has a small GPT learn the bytes of the quickstart's text over tp 2 x dp 2 on two nodes, with gradients
crossing nodes in 4 bits, for each seed and each mix of codecs, one run after the other. It writes quality.json and the
table of compression.md in --docs. A run that quality.json has already, of the same spec and text, is not made again, so
that the whole may be made in pieces: --only none-1,r8-1 names some. Exit status: 1 when r8 + sdp4bit ends more than
--within percent above none.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests import specs  # noqa: E402  # pylint: disable=wrong-import-position
from tests.integration import ranks  # noqa: E402  # pylint: disable=wrong-import-position

MIXES = ("none", "t8", "r8", "r6")
MODEL = {"layers": 4, "hidden": 128, "heads": 4, "context": 128, "vocab": 256}
BEGIN, END = "<!-- quality.py writes what follows -->\n", "<!-- quality.py wrote what precedes -->\n"


def spec_of(corpus, seed, mix, steps):
    compress = {} if mix == "none" else {"tp": mix, "dp": "sdp4bit"}
    spec = specs.train(corpus, steps=steps, tp=2, devices=4, virtual_workers=2, every_steps=0, compress=compress)
    spec["train"]["model"].update(MODEL)
    spec["train"]["init"]["seed"] = seed
    spec["train"]["batch"] = {"sequences": 8, "micro": 4}
    spec["train"]["optimizer"] = {"lr": 1e-3, "warmup": min(100, steps // 10)}
    spec["train"]["eval"] = {"every_steps": max(1, steps // 4), "sequences": 64}
    return spec


def name_of_inputs(spec):
    """What a run's loss depends on: its spec and the bytes of its text, wherever that lies."""
    with open(spec["train"]["data"]["path"], "rb") as f:
        text = hashlib.sha256(f.read()).hexdigest()
    spec = spec | {"train": spec["train"] | {"data": spec["train"]["data"] | {"path": text}}}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def train(spec, inputs):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-quality-") as folder:
        run = ranks.train(spec, folder, seconds=60 + 2 * spec["train"]["steps"], tp=2, dp=2, nodes=2)
        return {"inputs": inputs, "held_out": [round(e["loss"], 5) for e in run.events("eval")],
                "seconds": round(time.monotonic() - began)}


def above_none(runs, mix, seed):
    """Percent of the final loss without codecs. None where one of both runs is not there."""
    one, other = runs.get(f"{mix}-{seed}"), runs.get(f"none-{seed}")
    return 100 * (one["held_out"][-1] / other["held_out"][-1] - 1) if one and other else None


def table(runs, steps, seeds):
    lines = [f"| codecs, {steps:,} steps | " + " | ".join(f"seed {s}, above none" for s in seeds) + " |",
             "|---|" + "---|" * len(seeds)]
    for mix in MIXES:
        cells = []
        for seed in seeds:
            run, above = runs.get(f"{mix}-{seed}"), above_none(runs, mix, seed)
            cells.append(("not run" if not run else f"{run['held_out'][-1]:.4f}") +
                         ("" if above is None or mix == "none" else f", {above:+.2f} %"))
        lines.append(f"| {'none' if mix == 'none' else f'`{mix}` + `sdp4bit`'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def put_into(path, text):
    """Between the two marks of the document at path, where there is one."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        before, rest = f.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + text + END + after)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", required=True)
    p.add_argument("--docs", default="docs")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--only", default="", help="names, separated by commas")
    p.add_argument("--within", type=float, default=0.5, help="percent")
    o = p.parse_args()
    seeds = range(1, o.seeds + 1)
    data = os.path.join(o.docs, "quality.json")
    wanted = {f"{mix}-{seed}": spec_of(o.corpus, seed, mix, o.steps) for seed in seeds for mix in MIXES}
    unknown = [n for n in o.only.split(",") if n and n not in wanted]
    if unknown:
        p.error(f"no run is called {unknown[0]!r}; there are {', '.join(wanted)}")
    inputs = {name: name_of_inputs(spec) for name, spec in wanted.items()}
    runs = {}
    if os.path.exists(data):
        with open(data, encoding="ascii") as f:
            runs = {k: v for k, v in json.load(f).items() if v["inputs"] == inputs.get(k)}
    for name, spec in wanted.items():
        if name in runs or (o.only and name not in o.only.split(",")):
            continue
        runs[name] = train(spec, inputs[name])
        print(f"{name:7} final held-out {runs[name]['held_out'][-1]:.4f}, {runs[name]['seconds']} s", flush=True)
        runs = {n: runs[n] for n in wanted if n in runs}
        os.makedirs(o.docs, exist_ok=True)
        with open(data, "w", encoding="ascii") as f:
            f.write("{\n" + ",\n".join(f'"{n}": {json.dumps(r)}' for n, r in runs.items()) + "\n}\n")
        put_into(os.path.join(o.docs, "compression.md"), table(runs, o.steps, seeds))
    print("\n" + table(runs, o.steps, seeds), end="")
    worst = max((above_none(runs, "r8", s) or 0 for s in seeds), default=0)
    sys.exit(f"r8 + sdp4bit ends {worst:.2f} % above none" if worst > o.within else 0)


if __name__ == "__main__":
    main()
