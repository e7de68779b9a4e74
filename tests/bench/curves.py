"""Loss curves of one model under every layout and precision, in one picture.

`make curves` trains `small` (6 layers, 384 wide, 256 bytes of context, 4 sequences a step) on the quickstart's text
under f32 and bf16 x {1 rank, tp=2, pp=2, dp=2}, one after the other, each on 2 threads in all, and writes
docs/curves.json and docs/images/curves.svg. A run that docs/curves.json has already, of as many steps, is not made
again, so that the whole may be made in pieces: CURVES=f32-1,bf16-tp2 names some. pp=2 and dp=2 must have
one rank's losses; where they have others, runs of different versions have been mixed, and the exit status is 1.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.bench import svg  # noqa: E402  # pylint: disable=wrong-import-position
from tests.integration import ranks  # noqa: E402  # pylint: disable=wrong-import-position

LAYOUTS = {"1": {}, "tp2": {"tp": 2}, "pp2": {"pp": 2}, "dp2": {"dp": 2}}
PRECISIONS = ("f32", "bf16")
COLOURS = {"f32": "#0f766e", "bf16": "#b45309"}
DASHES = {"1": "", "tp2": "7 3", "pp2": "2 3", "dp2": "10 3 2 3"}
WIDTH, HEIGHT, TOP, GAP, BELOW = 900, 640, 50, 50, 160


def spec(corpus, precision, steps, layout):
    parallel = {"virtual_workers": 2, **{k: v for k, v in layout.items() if k != "dp"}}
    world = 2 if layout else 1
    return {
        "name": "curves", "devices": {"min": world, "max": world},
        "train": {
            "model": {"family": "gpt2", "layers": 6, "hidden": 384, "heads": 6, "context": 256, "vocab": 256},
            "precision": precision, "init": {"seed": 1234},
            "data": {"path": corpus, "format": "text", "separator": "percent", "tokenizer": "bytes", "holdout": 0.05},
            "batch": {"sequences": 4, "micro": 2}, "steps": steps,
            "optimizer": {"lr": 6e-4, "betas": [0.9, 0.99], "weight_decay": 0.1, "clip": 1.0, "schedule": "cosine",
                          "warmup": steps // 20},
            "eval": {"every_steps": steps // 4, "sequences": 64}},
        "parallel": parallel, "checkpoint": {"every_steps": 0}}


def train(corpus, name, steps):
    precision, layout = name.split("-")
    layout = LAYOUTS[layout]
    folder = tempfile.mkdtemp(prefix="muster-curves-")
    began = time.monotonic()
    try:
        run = ranks.train(spec(corpus, precision, steps, layout), folder, seconds=7200,
                          threads=1 if layout else 2, **layout)
        held_out = [e["loss"] for e in run.events("eval")]
        return {"loss": [round(x, 5) for x in ranks.losses(run)], "held_out": held_out,
                "seconds": round(time.monotonic() - began)}
    finally:
        shutil.rmtree(folder)


def smooth(values, width):
    """Means of `width` neighbours, a point each."""
    return [(i + width / 2, sum(values[i:i + width]) / width) for i in range(0, len(values) - width + 1, width)]


def style(name):
    precision, layout = name.split("-")
    return 'fill="none" stroke="%s" stroke-width="1.4" stroke-dasharray="%s"' % (COLOURS[precision], DASHES[layout])


def chart(picture, title, top, height, curves, apart, steps):
    """curves: {name: [(step, value)]}."""
    marks = svg.marks_around([y for points in curves.values() for _, y in points], apart)
    at = picture.chart(title, top, height, marks, steps, {n: n for n in range(0, steps + 1, max(1, steps // 4))})
    for name, points in curves.items():
        picture.line([at(x, y) for x, y in points], style(name))


def draw(runs, steps, path):
    """All curves above; below how far each is from f32 on one rank."""
    width = max(1, steps // 100)
    picture = svg.Picture(WIDTH, HEIGHT,
                          "small on the quickstart's text, %d steps; in the legend the final evaluation loss" % steps)
    high = HEIGHT - TOP - GAP - BELOW - 70
    chart(picture, "training loss, nats a byte (means of %d steps)" % width, TOP, high,
          {name: smooth(run["loss"], width) for name, run in runs.items()}, 0.5, steps)
    if "f32-1" in runs:
        first = runs["f32-1"]["loss"]
        chart(picture, "less that of f32 on one rank", TOP + high + GAP, BELOW,
              {name: smooth([a - b for a, b in zip(run["loss"], first)], width) for name, run in runs.items()},
              0.01, steps)
    x, y = svg.LEFT, HEIGHT - 30
    for name, run in runs.items():
        precision, layout = name.split("-")
        picture.line([(x, y), (x + 30, y)], style(name))
        picture.words(x + 36, y + 4, "%s, %s: %.4f" % (precision, "1 rank" if layout == "1" else layout[:2] + "=2",
                                                       run["held_out"][-1]))
        x, y = (x + 205, y) if x + 400 < WIDTH else (svg.LEFT, y + 20)
    picture.write(path)


def strayed(runs):
    """Names of the runs that should have one rank's losses to the bit and have others."""
    return [name for name, run in runs.items() for precision, layout in [name.split("-")]
            if layout in ("pp2", "dp2") and precision + "-1" in runs and run["loss"] != runs[precision + "-1"]["loss"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--docs", default="docs")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", default="", help="names, separated by commas")
    o = parser.parse_args()
    data = os.path.join(o.docs, "curves.json")
    runs = {}
    if os.path.exists(data):
        with open(data, encoding="ascii") as f:
            runs = {k: v for k, v in json.load(f).items() if len(v["loss"]) == o.steps}
    names = [p + "-" + n for p in PRECISIONS for n in LAYOUTS]
    for name in names:
        if name in runs or (o.only and name not in o.only.split(",")):
            continue
        runs[name] = train(os.path.abspath(o.corpus), name, o.steps)
        print("%-9s final held-out %.4f, %d s" % (name, runs[name]["held_out"][-1], runs[name]["seconds"]), flush=True)
        runs = {n: runs[n] for n in names if n in runs}
        with open(data, "w", encoding="ascii") as f:
            f.write("{\n" + ",\n".join('"%s": %s' % (n, json.dumps(r)) for n, r in runs.items()) + "\n}\n")
    draw(runs, o.steps, os.path.join(o.docs, "images", "curves.svg"))
    for name in strayed(runs):
        print("%s has other losses than one rank" % name)
    sys.exit(1 if strayed(runs) else 0)


if __name__ == "__main__":
    main()
