"""The pictures of docs/compression.md, from measured rows that docs/compression.json keeps.

usage: codec_pictures.py [--docs docs] < ROWS

ROWS are lines that `make bench-compress` and `make bench-slow-link` print: errors and tokens a second replace what the
file had of the same codec, other lines are passed over. `make codec-pictures` measures the errors anew.
"""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.bench import svg  # noqa: E402  # pylint: disable=wrong-import-position

COLOURS = {"r": "#0f766e", "g": "#b45309", "h": "#7c3aed", "q": "#7c3aed", "t": "#64748b"}  # by first letter
GROUPS = {"dp2": "data parallel", "tp2": "tensor parallel"}


def take(row, data):
    """Add what a row measures."""
    metric, value = row["metric"], row["value"]
    if row["bench"] == "compress":
        known = re.fullmatch(r"(.+)_(?:(bits)|([a-z0-9]+)_sqnr_db)", metric)
        if known:
            data["codecs"].setdefault(known[1], {})[known[2] or known[3]] = value
    elif row["bench"] == "slow_link":
        known = re.fullmatch(r"([a-z]+2)_([a-z0-9]+)_100mbit", metric)
        if known:
            rates = data["slow_link"].setdefault(known[1], {})
            rates.update({"none": round(value / row["ratio"]), known[2]: round(value)})


def draw_errors(codecs, path):
    picture = svg.Picture(900, 400, "Signal to quantisation noise of each codec, by its bits a value")
    names = sorted(codecs, key=lambda name: (codecs[name]["bits"], name))
    marks = svg.marks_around([v for c in codecs.values() for kind, v in c.items() if kind != "bits"], 10)
    at = picture.chart("dB; the dot is N(0, 1), the line reaches from the worst of seven distributions to the best",
                       60, 280, marks, len(names), {i + .5: name for i, name in enumerate(names)})
    for i, name in enumerate(names):
        of = {kind: v for kind, v in codecs[name].items() if kind != "bits"}
        worst, colour = min(of, key=of.get), COLOURS[name[0]]
        picture.line([at(i + .5, of[worst]), at(i + .5, max(of.values()))], 'stroke="%s" stroke-width="2"' % colour)
        picture.dot(*at(i + .5, of["normal"]), 'fill="%s"' % colour)
        x, y = at(i + .5, of[worst])
        picture.words(x, y + 12, worst, 'font-size="10" text-anchor="middle"')
        picture.words(x, 372, "%.4g bits" % codecs[name]["bits"], 'font-size="10" text-anchor="middle"')
    picture.write(path)


def draw_slow_link(rates, path):
    picture = svg.Picture(900, 330, "Training over 100 Mb/s: tokens a second of two ranks")
    bars = [(group, codec, rate) for group, of in rates.items() for codec, rate in of.items()]
    marks = svg.marks_around([0] + [rate for _, _, rate in bars], 200)
    at = picture.chart("10.7 million parameters, 512 tokens a step", 60, 220, marks, len(bars),
                       {i + .5: codec for i, (_, codec, _) in enumerate(bars)})
    floor = at(0, 0)[1]
    for i, (group, codec, rate) in enumerate(bars):
        x, y = at(i + .25, rate)
        picture.bar(x, y, at(i + .75, 0)[0] - x, floor - y, 'fill="%s"' % ("#64748b" if codec == "none" else "#0f766e"))
        picture.words(at(i + .5, 0)[0], y - 5, "%d" % rate, 'text-anchor="middle"')
        picture.words(at(i + .5, 0)[0], floor + 30, GROUPS[group], 'font-size="10" text-anchor="middle"')
    picture.write(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--docs", default="docs")
    o = parser.parse_args()
    path = os.path.join(o.docs, "compression.json")
    data = {"codecs": {}, "slow_link": {}}
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            data = json.load(f)
    for line in sys.stdin:
        if line.startswith("{"):
            take(json.loads(line), data)
    with open(path, "w", encoding="ascii") as f:
        f.write("{\n" + ",\n".join('"%s": {\n%s\n}' % (part, ",\n".join('"%s": %s' % (name, json.dumps(of))
                for name, of in entries.items())) for part, entries in data.items()) + "\n}\n")
    if data["codecs"]:
        draw_errors(data["codecs"], os.path.join(o.docs, "images", "codecs.svg"))
    if data["slow_link"]:
        draw_slow_link(data["slow_link"], os.path.join(o.docs, "images", "slow-link.svg"))


if __name__ == "__main__":
    main()
