"""What the Python package for programs costs: its import, a line of metrics, a step.

    python3 tests/bench/python_package.py [--quick]

Prints one JSON object a line. The import is timed in fresh interpreters, without what the interpreter itself takes.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "api", "python")
IMPORT = """import time
a, b = time.perf_counter(), time.process_time()
import muster
print(time.perf_counter() - a, time.process_time() - b)"""


def tell(name, seconds, unit, scale):
    seconds = sorted(seconds)
    print(json.dumps({"what": name, "unit": unit, "n": len(seconds),
                      "p50": round(statistics.median(seconds) * scale, 2),
                      "p99": round(seconds[int(0.99 * (len(seconds) - 1))] * scale, 2)}), flush=True)


def times(calls, fn):
    for i in range(1, calls + 1):
        begin = time.perf_counter()
        fn(i)
        yield time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    calls, starts = (10000, 5) if parser.parse_args().quick else (200000, 40)
    env = {**os.environ, "PYTHONPATH": PACKAGE}
    with tempfile.TemporaryDirectory() as folder:
        env.update(PYTHONPYCACHEPREFIX=folder, PYTHONDONTWRITEBYTECODE="")  # compiled once, as an installation is
        took = [[float(word) for word in subprocess.run([sys.executable, "-c", IMPORT], env=env, capture_output=True,
                                                        check=True).stdout.split()] for _ in range(starts + 1)][1:]
        tell("import", [wall for wall, _ in took], "ms", 1e3)
        tell("import, time of the processor", [processor for _, processor in took], "ms", 1e3)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(MUSTER_RUN_DIR=folder, RANK="0")
        sys.path.insert(0, PACKAGE)
        import muster  # pylint: disable=import-outside-toplevel
        run = muster.init()
        tell("log, a line each", times(calls, lambda i: run.log({"loss": 1 / i, "lr": 1e-3, "grad/norm": i}, step=i)),
             "us", 1e6)
        tell("log, more of the same step", times(calls, lambda i: run.log({"loss": 1 / i}, step=calls)), "us", 1e6)
        tell("step", times(calls, run.step), "us", 1e6)
        tell("should_stop", times(calls, lambda i: run.should_stop()), "us", 1e6)
        run.finish()


if __name__ == "__main__":
    main()
