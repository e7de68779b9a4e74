#!/usr/bin/env python3
"""Run fuzzers over their corpora and then on new inputs for some seconds each; one test a fuzzer.

A finding is kept in BUILD/findings and shown; the seed printed makes the run again.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


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
    passed = failed = 0
    for name in args.name:
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
        ok = code == 0
        passed, failed = passed + ok, failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'} fuzz     {name}  ({args.seconds} s, seed {args.seed})", flush=True)
        if not ok:
            print(out[-8000:], flush=True)
    if args.keep:
        os.makedirs(os.path.dirname(args.keep) or ".", exist_ok=True)
        with open(args.keep, "w") as f:
            json.dump([passed, failed, 0], f)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
