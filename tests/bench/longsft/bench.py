"""Real training steps on a corpus of many short documents and a few long ones, under one policy and another.

    bench.py [--quick] [--steps N] [--rounds N]

Two ranks of one thread train a small GPT-2 on Debian's fortunes, into which every 30th document is a long text of
/usr/share/doc. Every side sees the same documents, whole up to the model's context, in the same steps and within the
same memory: micro-batches of CAPACITY tokens, eight of the longest documents. Sides take turns; of each the quickest
round of every step counts, the first two left out. One JSON object a line; ratio is the time per token of the other
side over that of sweep.

  sweep_vs_pad        pad: eight documents a micro-batch, as they arrive, brought to the longest of them
  sweep_vs_pack       pack: first-fit decreasing, replicas as documents arrive
  chunk_vs_pad        chunk in place of sweep: documents in parts, so that a rank holds CHUNK tokens, not CAPACITY
  bound_vs_sweep      the time per token of one rank alone that has all documents, halved: no division over two is
                      quicker
  sweep_vs_static_cp  both with ranks that hold half of the longest document each, and share it: sweep shares what it
                      must or what pays; static gives every document to both, one a micro-batch
  sweep_vs_packed_cp  and with every document given to both, but packed
  zigzag_vs_ulysses_cp  the latter with documents cut in a zig-zag, and divided by heads (parallel.cp_mode ulysses)
  bound_vs_sweep_cp   as bound_vs_sweep, of ranks that share: sweep_vs_static_cp divided by this is the most that any
                      plan could reach"""
import argparse
import glob
import gzip
import json
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
from tests.integration import ranks  # noqa: E402  # pylint: disable=wrong-import-position

CONTEXT, CAPACITY, CHUNK, DOCUMENTS, LONG_EVERY, SKIP = 2048, 8 * 2048, 1024, 32, 30, 2
REPLICAS, SHARED, HEADS = {"dp": 2}, {"cp": 2}, {"cp_mode": "ulysses"}
SIDES = {"sweep": ("sweep", REPLICAS), "pad": ("pad", REPLICAS), "pack": ("pack", REPLICAS),
         "chunk": ("chunk", REPLICAS), "alone": ("sweep", {}), "sweep_cp": ("sweep", SHARED),
         "static_cp": ("static", SHARED), "packed_cp": ("pack", SHARED), "heads_cp": ("pack", SHARED, HEADS)}
# metric, the side whose time it is, the one it is compared with
ROWS = (("sweep_vs_pad", "sweep", "pad"), ("sweep_vs_pack", "sweep", "pack"), ("chunk_vs_pad", "chunk", "pad"),
        ("sweep_vs_static_cp", "sweep_cp", "static_cp"), ("sweep_vs_packed_cp", "sweep_cp", "packed_cp"),
        ("zigzag_vs_ulysses_cp", "packed_cp", "heads_cp"))


def texts(paths, least, most):
    for path in sorted(paths):
        if not os.path.isfile(path):
            continue
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            text = f.read(most).decode("utf-8", "replace").encode("ascii", "replace").decode("ascii")
        if len(text) >= least:
            yield text


def write_corpus(path):
    """Returns the lengths of its documents."""
    short = [d for text in texts(glob.glob("/usr/share/games/fortunes/*.u8"), 1, 1 << 22) for d in text.split("\n%\n")
             if d.strip()]
    long = list(texts(glob.glob("/usr/share/doc/*/*"), 1500, CONTEXT))
    if len(short) < 500 or len(long) < 20:
        sys.exit("bench longsft: there are %d fortunes and %d long texts in /usr/share; install the packages fortunes "
                 "and fortunes-min, and some with documentation" % (len(short), len(long)))
    rng = random.Random(1)
    rng.shuffle(short)
    rng.shuffle(long)
    short = short[:3000]
    for i in range(LONG_EVERY // 2, len(short), LONG_EVERY):
        short[i] = long[i % len(long)]
    with open(path, "w", encoding="ascii") as f:
        for d in short:
            f.write(json.dumps({"text": d}) + "\n")
    return sorted(len(d) for d in short)


def spec(corpus, policy, layout, steps, parallel):
    cp = layout.get("cp", 1)
    capacity = CAPACITY if cp == 1 else CONTEXT // cp
    return {"name": "longsft", "devices": {"min": cp, "max": 2},
            "train": {"model": {"family": "gpt2", "layers": 2, "hidden": 128, "heads": 4, "context": CONTEXT,
                                "vocab": 256},
                      "data": {"path": corpus, "format": "jsonl", "samples": "documents"},
                      "batch": {"sequences": DOCUMENTS, "capacity": capacity},
                      "steps": steps},
            "sequence": {"policy": policy, "chunk_tokens": CHUNK},
            "parallel": {"virtual_workers": 2, "cp": cp, **parallel},
            "checkpoint": {"every_steps": 0}}


def measure(corpus, steps, policy, layout, parallel=None):
    """Milliseconds and tokens of each step."""
    folder = tempfile.mkdtemp(prefix="muster-longsft-")
    try:
        job = spec(corpus, policy, layout, steps, parallel or {})
        lines = ranks.train(job, folder, seconds=900, **layout).metrics()
    finally:
        shutil.rmtree(folder)
    seen = [0] + [m["tokens"] for m in lines]
    return [(m["step_ms"], b - a, m) for m, a, b in zip(lines, seen, seen[1:])][SKIP:]


def per_token(rounds):
    """Microseconds a token, of each step its quickest round."""
    best = [min(r[i][0] for r in rounds) for i in range(len(rounds[0]))]
    return 1e3 * sum(best) / sum(tokens for _, tokens, _ in rounds[0])


def mean(rounds, key):
    return sum(m[key] for _, _, m in rounds[0]) / len(rounds[0])


def row(metric, value, unit, reference, ratio):
    print(json.dumps({"bench": "longsft", "metric": metric, "value": float("%.5g" % value), "unit": unit,
                      "reference": reference, "ratio": float("%.4g" % ratio)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int)
    o = parser.parse_args()
    steps = (o.steps or (3 if o.quick else 12)) + SKIP
    rounds = o.rounds or (1 if o.quick else 3)
    folder = tempfile.mkdtemp(prefix="muster-longsft-corpus-")
    try:
        corpus = os.path.join(folder, "corpus.jsonl")
        lengths = write_corpus(corpus)
        print("bench longsft: %d documents of %d bytes in the middle, %d at 95 of 100, %d at most" % (
            len(lengths), lengths[len(lengths) // 2], lengths[len(lengths) * 95 // 100], lengths[-1]), file=sys.stderr)
        went = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side, how in SIDES.items():
                went[side].append(measure(corpus, steps, *how))
    finally:
        shutil.rmtree(folder)
    took = {side: per_token(went[side]) for side in SIDES}
    for metric, side, other in ROWS:
        said = "%s: %.5g, %.0f %% of its rows padding, %.1f micro-batches" % (
            other, took[other], 100 * mean(went[other], "padding_share"), mean(went[other], "micro_batches"))
        if "sharded_share" in went[side][0][0][2]:
            said += "; %.0f %% of the tokens shared, not 100" % (100 * mean(went[side], "sharded_share"))
        row(metric, took[side], "us/token", said, took[other] / took[side])
    half = took["alone"] / 2
    for side in ("sweep", "sweep_cp"):
        row("bound_vs_" + side, took[side], "us/token", "half of one rank's: %.5g; planned imbalance %.3f" % (
            half, mean(went[side], "imbalance")), half / took[side])


if __name__ == "__main__":
    main()
