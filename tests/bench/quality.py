"""What codecs do to learning: the final held-out loss of the same training with and without them.

A small GPT learns the bytes of real text (--text, or this repository's own files) over tp 2 x dp 2 on two nodes, with
gradients crossing nodes in 4 bits, for each seed and each mix of codecs. Prints a line of JSON a run and a table; the
exit status is 1 when r8 + sdp4bit ends more than --within percent above none.

usage: quality.py [--steps 2000] [--seeds 2] [--mixes none,t8,r8,r6] [--text FILE] [--within 0.5]
"""
import argparse
import glob
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from tests import specs  # noqa: E402
from tests.integration import ranks  # noqa: E402

OWN_TEXT = ["docs/*.md", "*.md", "base/*.[ch]", "compress/*.[ch]", "checkpoint/*.[ch]", "scheduler/*/*.[ch]",
            "worker/*/*.[ch]", "server/*.[ch]", "api/*.[ch]"]
MODEL = {"layers": 4, "hidden": 128, "heads": 4, "context": 128, "vocab": 256}


def own_text(path):
    """The repository's documents and sources, one after another in the order of their names."""
    names = sorted(n for pattern in OWN_TEXT for n in glob.glob(os.path.join(ROOT, pattern)))
    with open(path, "w", encoding="utf-8") as out:
        for name in names:
            with open(name, encoding="utf-8") as f:
                out.write(f.read() + "\n%\n")
    return path


def spec_of(text, seed, mix, steps):
    compress = {} if mix == "none" else {"tp": mix, "dp": "sdp4bit"}
    spec = specs.train(text, steps=steps, tp=2, devices=4, virtual_workers=2, every_steps=0, compress=compress)
    spec["train"]["model"].update(MODEL)
    spec["train"]["init"]["seed"] = seed
    spec["train"]["batch"] = {"sequences": 8, "micro": 4}
    spec["train"]["optimizer"] = {"lr": 1e-3, "warmup": min(100, steps // 10)}
    spec["train"]["eval"] = {"every_steps": 0, "sequences": 64}
    return spec


def final_loss(text, seed, mix, steps):
    with tempfile.TemporaryDirectory() as folder:
        run = ranks.train(spec_of(text, seed, mix, steps), folder, seconds=60 + 2 * steps, tp=2, dp=2, nodes=2)
        return run.events("eval")[-1]["loss"]


def name_of(mix):
    return "none" if mix == "none" else f"{mix} + sdp4bit"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--mixes", default="none,t8,r8,r6")
    p.add_argument("--text")
    p.add_argument("--within", type=float, default=0.5, help="percent")
    a = p.parse_args()
    mixes = a.mixes.split(",")
    if mixes[0] != "none":
        p.error("the first of --mixes is 'none', which the others are measured by")
    loss = {}
    with tempfile.TemporaryDirectory() as folder:
        text = a.text or own_text(os.path.join(folder, "text"))
        for seed in range(1, a.seeds + 1):
            for mix in mixes:
                loss[mix, seed] = final_loss(text, seed, mix, a.steps)
                print(json.dumps({"bench": "quality", "metric": f"{mix}_seed{seed}", "value": round(loss[mix, seed], 5),
                                  "unit": "nats", "reference": f"none {loss['none', seed]:.5f}",
                                  "ratio": round(loss[mix, seed] / loss["none", seed], 5)}), flush=True)
    above = {m: [100 * (loss[m, s] / loss["none", s] - 1) for s in range(1, a.seeds + 1)] for m in mixes}
    print(f"\n| codecs, {a.steps} steps | " + " | ".join(f"seed {s}" for s in range(1, a.seeds + 1)) + " | mean, % |")
    print("|---|" + "---|" * (a.seeds + 1))
    for m in mixes:
        print(f"| {name_of(m)} | " + " | ".join(f"{loss[m, s]:.4f}" for s in range(1, a.seeds + 1)) +
              f" | {sum(above[m]) / a.seeds:+.2f} |")
    sys.exit(1 if "r8" in above and max(above["r8"]) > a.within else 0)


if __name__ == "__main__":
    main()
