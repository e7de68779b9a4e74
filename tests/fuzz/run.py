#!/usr/bin/env python3
"""Run fuzzers over their corpora and then on new inputs for some seconds each, as many at once as there are cores; one
test a fuzzer.

A finding is kept in BUILD/findings and shown; the seed printed makes the run again.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time


def fuzz(args, findings, name):
    """Run one fuzzer; whether it found nothing."""
    corpus = os.path.join("tests", "fuzz", "corpus", name)
    with tempfile.TemporaryDirectory() as fresh:
        argv = [os.path.join(args.build, "fuzz", name), f"-max_total_time={args.seconds}", f"-seed={args.seed}",
                "-timeout=10", "-rss_limit_mb=2048", "-verbosity=1", f"-artifact_prefix={findings}{name}-", fresh]
        if os.path.isdir(corpus):
            argv.append(corpus)
        try:
            run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=args.seconds * 3 + 120)
            out, code = run.stdout.decode(errors="replace"), run.returncode
        except (subprocess.TimeoutExpired, OSError) as e:
            out, code = str(e), -1
    said = f"{'ok  ' if code == 0 else 'FAIL'} fuzz     {name}  ({args.seconds} s, seed {args.seed})\n"
    sys.stdout.write(said if code == 0 else f"{said}{out[-8000:]}\n")
    sys.stdout.flush()
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep")
    parser.add_argument("name", nargs="+")
    args = parser.parse_args()
    findings = os.path.join(args.build, "findings", "")
    os.makedirs(findings, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count(), 8)) as pool:
        passed = sum(pool.map(lambda name: fuzz(args, findings, name), args.name))
    failed = len(args.name) - passed
    if args.keep:
        os.makedirs(os.path.dirname(args.keep) or ".", exist_ok=True)
        with open(args.keep, "w") as f:
            json.dump([passed, failed, 0], f)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
