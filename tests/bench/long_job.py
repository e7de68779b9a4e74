#!/usr/bin/env python3
"""bench long_job - how long a job of 1,000,000 steps with 20 series takes to open and to zoom, also in Chromium.

Run from the repository's root: python3 -m tests.bench.long_job [--quick]. A real cluster has a job that has ended,
whose metrics (256 bytes a step) are put where its agent's would have come. The first read makes the index beside them,
as otherwise their coming does; "first" is the first read of a server that has just been started. The page is opened
from the list of jobs, and timed until the points of its charts are drawn. Exits with 1 where opening takes 500 ms or
more, or a zoom 150 ms or more, in the median."""
import argparse
import os
import random
import statistics
import sys
import tempfile
import time

from tests import specs
from tests.cluster import Cluster
from tests.e2e.browser import Page

PART = 4 << 20  # bytes of a file of the spool
SERIES = 20
TIMES, QUICK_TIMES = 15, 3
OPEN_MS, ZOOM_MS = 500, 150

OPENED = """
    const [job, done] = arguments, began = performance.now();
    location.hash = `#/jobs/${job}`;
    (function look() {
        if (+document.querySelector('.chart-box')?.dataset.points && document.querySelector('.chart-box canvas'))
            done(performance.now() - began);
        else
            requestAnimationFrame(look);
    })();
"""

# Until the answer has come and two pictures later, in the second of which it is on the screen.
ZOOMED = """
    const [from, to, done] = arguments, ends = document.querySelectorAll('.toolbar input.step');
    performance.clearResourceTimings();
    const began = performance.now();
    [from, to].forEach((v, i) => { ends[i].value = v; });
    ends[1].dispatchEvent(new Event('change'));
    (function look() {
        if (performance.getEntriesByType('resource').some((e) => e.name.includes('from=') && e.responseEnd))
            requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
        else
            requestAnimationFrame(look);
    })();
"""


def write(folder, steps):
    """Metrics as an agent's would lie there, in parts. Their bytes."""
    os.makedirs(folder, exist_ok=True)
    chance = random.Random(1)
    names = [f"m{i:02}" for i in range(SERIES)]
    text = bytearray()
    part, total = 0, 0

    def flush(at_least):
        nonlocal part, total
        while len(text) >= at_least and text:
            with open(f"{folder}/metrics.g1.jsonl" + (f".{part}" if part else ""), "wb") as f:
                f.write(text[:PART])
            total += len(text[:PART])
            del text[:PART]
            part += 1
    for step in range(steps):
        walk = chance.random()
        values = ",".join('"%s":%.3f' % (n, walk + i) for i, n in enumerate(names))
        text += ('{"step":%d,%s}\n' % (step, values)).encode()
        flush(PART)
    flush(1)
    return total


def ms(read):
    began = time.monotonic()
    read()
    return (time.monotonic() - began) * 1000


def server_side(cluster, job, steps, times, folder):
    def read(query=""):
        cluster.api("GET", f"/v1/jobs/{job}/series?buckets=500{query}")

    def start_again():
        cluster.kill_server()
        cluster.start_server()
    rows = {"first, without index": [ms(read)], "first": [], "again": []}
    for _ in range(times):
        start_again()
        rows["first"].append(ms(read))
        rows["again"].append(ms(read))
    chance = random.Random(2)
    for width in (100, 5000, 20000, 32000, 50000, 100000, 500000):
        name = f"zoom to {width:,} steps"
        rows[name] = []
        for _ in range(times):
            at = chance.randrange(max(1, steps - width))
            rows[name].append(ms(lambda at=at, width=width: read(f"&from={at}&to={at + width}")))
    sizes = [os.path.getsize(f"{folder}/{n}") for n in os.listdir(folder) if n.endswith(".index")]
    print(f"index: {sum(sizes) / 1e6:.1f} MB")
    return rows


def in_chromium(cluster, job, times):
    page = Page(cluster.url)
    page.driver.set_script_timeout(60)
    try:
        page.sign_in(cluster)
        rows = {"page opened": []}
        for _ in range(times):
            page.run("location.hash = '#/'")
            page.wait("the list", lambda: page.find(".job-name"))
            rows["page opened"].append(page.driver.execute_async_script(OPENED, job))
        for width in (5000, 32000, 500000):
            rows[f"page zoomed to {width:,}"] = [page.driver.execute_async_script(ZOOMED, 1000 * i, 1000 * i + width)
                                                 for i in range(times)]
        return rows
    finally:
        page.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    steps, times = (200_000, QUICK_TIMES) if quick else (1_000_000, TIMES)
    with tempfile.TemporaryDirectory() as top, Cluster(top, slots=1) as cluster:
        cluster.described = False
        job = cluster.submit(specs.command("true", name="long"))["id"]
        cluster.wait(job, "succeeded")
        folder = f"{cluster.jobs_dir}/.spool/{job}"
        total = write(folder, steps)
        print(f"{steps:,} steps, {SERIES} series, {total / 1e6:.0f} MB")
        rows = server_side(cluster, job, steps, times, folder)
        rows |= in_chromium(cluster, job, times)
    slow = []
    for name, took in rows.items():
        middle = statistics.median(took)
        most = ZOOM_MS if "zoom" in name else OPEN_MS
        print(f"{name:24} {middle:7.1f} ms  ({min(took):.1f} to {max(took):.1f})")
        if middle >= most and "without" not in name:
            slow.append(name)
    if slow:
        sys.exit("too slow: " + ", ".join(slow))


if __name__ == "__main__":
    main()
