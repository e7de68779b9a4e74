#!/usr/bin/env python3
"""Run Muster's tests and end with one plain line: N passed, N failed.

usage: run.py [--build DIR] [--jobs N] [--keep FILE] SUITE PROGRAM...

A PROGRAM is a cmocka test (run with TAP output, its cases counted), or a path under tests/ given to pytest. More run
at once than there are cores, as some wait: half as many more, of pytest's, which wait for clusters, three a core. Those
that judge speed come alone, after the others. Each gets a deadline; a program that crashes or stalls counts as one
failed test with its output shown. `run.py sum FILE...` adds up the results of earlier runs that were kept with
--keep FILE.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

UNIT_SECONDS = int(os.environ.get("MUSTER_TEST_SECONDS", "300"))
PYTEST_SECONDS = int(os.environ.get("MUSTER_PYTEST_SECONDS", "1500"))
# The programs that take longest: they begin first, so that none is left alone at the end.
ALONE = ("test_slow.py",)
LONGEST = ("test_elastic.py test_dashboard.py test_gpu_kernels.py test_source_nodes.py test_moving.py test_sim.py "
           "test_states.py test_hangs.py test_kill.py test_elastic_programs.py test_layouts.py test_readers.py "
           "test_cli_live.py test_docs_run.py test_gpus.py test_command_jobs.py test_checkpoint_crash.py test_hf.py "
           "test_storm.py test_standby.py test_server_agents.py test_compressed.py test_elastic_torch.py "
           "test_comm test_kernels test_capture test_ranks test_roundtrip test_lift test_metrics_read test_nccl "
           "test_lag test_comm_fault test_coded_gpu test_coded test_faults test_comm_message test_probe "
           "test_codec_error test_promise").split()


def run(argv, seconds, env=None):
    """Output and exit status of argv; its whole process group is ended at the deadline."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             start_new_session=True, env=env)
    try:
        out, _ = child.communicate(timeout=seconds)
        return out.decode(errors="replace"), child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        return out.decode(errors="replace") + f"\nstopped after {seconds} s\n", -signal.SIGKILL


def run_unit(path):
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    out, code = run([path], UNIT_SECONDS, env)
    passed = len(re.findall(r"^ok \d+", out, re.M))
    skipped = len(re.findall(r"^ok \d+.*# SKIP", out, re.M))
    failed = len(re.findall(r"^not ok \d+", out, re.M))
    planned = sum(int(n) for n in re.findall(r"^1\.\.(\d+)", out, re.M))
    if code != 0 and failed == 0:
        failed = 1
    if code == 0 and (passed + failed != planned or planned == 0):
        failed += 1  # a program that ran no test, or left early, proves nothing
        out += f"\nplanned {planned} tests, saw {passed + failed}\n"
    return passed - skipped, failed, skipped, out, code


def run_pytest(path, log_dir):
    xml = os.path.join(log_dir, re.sub(r"\W+", "-", path) + ".xml")
    if os.path.exists(xml):
        os.unlink(xml)
    # -p no:cacheprovider: a test run leaves nothing in the tree.
    out, code = run([sys.executable, "-m", "pytest", "-q", "-x" if os.environ.get("FAILFAST") else "-q",
                     "-p", "no:cacheprovider", "--durations=5", f"--junitxml={xml}", path], PYTEST_SECONDS)
    passed = failed = skipped = 0
    if os.path.exists(xml):
        for suite in ET.parse(xml).getroot().iter("testsuite"):
            total = int(suite.get("tests"))
            failed += int(suite.get("failures")) + int(suite.get("errors"))
            skipped += int(suite.get("skipped"))
            passed += total - int(suite.get("failures")) - int(suite.get("errors")) - int(suite.get("skipped"))
    if code != 0 and failed == 0:
        failed = 1
    return passed, failed, skipped, out, code


def run_program(suite, program, log_dir):
    """Run it, keep its output and say how it went, in one piece whatever else runs; its three counts."""
    started = time.monotonic()
    is_pytest = program.endswith(".py") or os.path.isdir(program)
    passed, failed, skipped, out, code = run_pytest(program, log_dir) if is_pytest else run_unit(program)
    seconds = time.monotonic() - started
    with open(os.path.join(log_dir, re.sub(r"\W+", "-", program) + ".log"), "w") as f:
        f.write(out)
    said = (f"{'ok  ' if not failed else 'FAIL'} {suite:8s} {program}  "
            f"{closing_line(passed, failed, skipped)}  ({seconds:.1f} s)\n")
    if failed:
        said += f"--- output of {program}, exit {code} ---\n{out[-20000:]}\n---\n"
    sys.stdout.write(said)
    sys.stdout.flush()
    return passed, failed, skipped


def closing_line(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "sum":
        total = [0, 0, 0]
        for name in sys.argv[2:]:
            try:
                with open(name) as f:
                    total = [a + b for a, b in zip(total, json.load(f))]
            except FileNotFoundError:
                print(f"{name} is missing: the suite did not come to its end, which counts as one failure")
                total[1] += 1
        if total[2]:
            print(f"{total[2]} skipped, each with its reason above")
        print(closing_line(total[0], total[1], 0))
        return 1 if total[1] or not total[0] else 0

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, help="programs at once")
    parser.add_argument("--keep", help="write the three counts to this file as JSON")
    parser.add_argument("suite")
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    log_dir = os.path.join(args.build, "test-logs")
    os.makedirs(log_dir, exist_ok=True)

    total = [0, 0, 0]
    programs = sorted(args.program, key=lambda p: (LONGEST + [name := os.path.basename(p)]).index(name))
    jobs = args.jobs or min(os.cpu_count(), 8) * (6 if programs[0].endswith(".py") else 3) // 2
    alone = [p for p in programs if os.path.basename(p) in ALONE]
    for at_once, of in (jobs, [p for p in programs if p not in alone]), (1, alone):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for counts in pool.map(lambda program: run_program(args.suite, program, log_dir), of):
                total = [a + b for a, b in zip(total, counts)]
    if args.keep:
        os.makedirs(os.path.dirname(args.keep) or ".", exist_ok=True)
        with open(args.keep, "w") as f:
            json.dump(total, f)
    print(closing_line(*total))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
