"""The Python package for programs, api/python: what it writes and reads by docs/programs.md, as libmuster does in
tests/unit/api/program/test_muster.c, and a real Python program that uses it as a job."""
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from tests import specs
from tests.cluster import BIN, ROOT, Cluster, wait_for

PACKAGE = f"{ROOT}/api/python"
sys.path.insert(0, PACKAGE)
from muster import _files, _run  # noqa: E402  pylint: disable=wrong-import-position

PYTHON = "/usr/bin/python3"
NAN = math.nan


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of a run, whose job folder lies in it."""
    (tmp_path / "job").mkdir()
    for name, value in {"MUSTER_RUN_DIR": tmp_path, "MUSTER_JOB_DIR": tmp_path / "job", "RANK": "0"}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


@pytest.fixture
def start(place, monkeypatch):
    """start(rank): the run of that rank."""
    runs = []

    def start_(rank=0):
        monkeypatch.setenv("RANK", str(rank))
        runs.append(_run.Run(signals=False))
        return runs[-1]
    yield start_
    for run in runs:
        if run.active:
            run._end()


def text_of(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def lines_of(path):
    return [json.loads(line) for line in text_of(path).splitlines()]


def publish(place, **order):
    (place / "new").write_text(json.dumps({"v": 1, **order}), encoding="ascii")
    os.rename(place / "new", place / "order.json")


def python(script, *args, **env):
    """A Python program with the package on its path, as the agent puts it there."""
    return subprocess.run([PYTHON, "-W", "error", "-c", script, *args],
                          env={**os.environ, "PYTHONPATH": PACKAGE, **env}, capture_output=True,
                          text=True, timeout=60, check=False)


ALL_CALLS = """
import muster, sys
run = muster.init()
assert run is muster.init() and not run.active
run.log({'a': 1}, step=1); run.log_text('k', 'x', step=1); run.log_image('k', b'no picture', step=1)
run.summary(a=1); run.event('note', message='m'); run.checkpoint('x', step=1); run.step(1)
with run.section('eval', 1): pass
assert run.order() is None and not run.should_save() and not run.should_stop()
run.on_order(print); run.saved(1); run.finish(a=1)
print(run.rank, run.world, run.attempt, run.resume, run.checkpoint_dir)
run.stopped(1)
"""


def test_outside_of_muster_all_calls_do_nothing_and_stopped_ends_with_0(tmp_path):
    out = python(ALL_CALLS, MUSTER_RUN_DIR="")
    assert (out.returncode, out.stdout) == (0, "0 1 1 False checkpoints\n"), out.stderr
    assert python(ALL_CALLS, MUSTER_RUN_DIR=str(tmp_path / "gone")).returncode == 0


def test_the_environment_says_where_and_who(place, start, monkeypatch):
    for name, value in {"WORLD_SIZE": "8", "MUSTER_ATTEMPT": "3", "MUSTER_RESUME": "1",
                        "MUSTER_CHECKPOINT_DIR": "/c"}.items():
        monkeypatch.setenv(name, value)
    run = start(3)
    assert (run.rank, run.world, run.attempt, run.resume, str(run.checkpoint_dir)) == (3, 8, 3, True, "/c")
    for bad in ("x", "-1", "100000", ""):
        monkeypatch.setenv("RANK", bad)
        with pytest.raises(ValueError, match="RANK"):
            _run.Run(signals=False)


def test_what_the_program_was_given_is_told_by_rank_0(place, start, monkeypatch):
    monkeypatch.setattr(_run, "_the_run", start())
    assert _run.init(config={"lr": 0.1, "path": place, "by": print, "nan": NAN, 3: [set()]}) is _run.init()
    assert lines_of(place / "events.jsonl") == [
        {"rank": 0, "type": "config",
         "config": {"lr": 0.1, "path": str(place), "by": str(print), "nan": None, "3": ["set()"]}}]
    for bad, error in ((7, TypeError), ({"x": "y" * 16384}, ValueError)):
        with pytest.raises(error):
            _run.init(config=bad)
    os.unlink(place / "events.jsonl")
    start(1).config({"lr": 1})
    assert not os.path.exists(place / "events.jsonl")


def test_metrics_are_lines_of_version_1_of_rank_0(place, start):
    np = pytest.importorskip("numpy")
    run = start()
    run.log({"loss": 0.1, "eval/top.1:a-b_c": 2, "none": NAN, "inf": -math.inf, "big": -1.5e300,
             "array": np.float32(0.5), "flag": True}, step=7)
    run.log({"more": np.array(3)}, step=8)
    run._flush()
    first, second = lines_of(place / "metrics.jsonl")
    assert abs(first.pop("t") - time.time()) < 100
    assert first == {"v": 1, "step": 7, "loss": 0.1, "eval/top.1:a-b_c": 2, "none": None, "inf": None, "big": -1.5e300,
                     "array": 0.5, "flag": 1}
    assert (second["step"], second["more"]) == (8, 3)
    other = start(1)
    other.log({"loss": 1}, step=9)
    other._flush()
    assert len(lines_of(place / "metrics.jsonl")) == 2


def test_what_is_told_of_one_step_is_one_line_within_a_second_and_at_the_end_of_the_program(place, start):
    run, metrics = start(), place / "metrics.jsonl"
    with run._lock:  # however slow the machine is
        run.log({"loss": 3, "a": 1}, step=7)
        run.log({"loss": 2, "b": 1})
    wait_for("the line", metrics.exists)
    run.log({f"n{i}": 1 for i in range(500)}, step=8)
    run.log({f"m{i}": 1 for i in range(13)}, step=8)  # no line has 513
    run.log({}, step=9)
    whole, many, more = lines_of(metrics)[:3]
    assert {**whole, "t": 0} == {"v": 1, "step": 7, "t": 0, "loss": 2, "a": 1, "b": 1}
    assert len(many) == 503 and len(more) == 16 and many["step"] == more["step"] == 8
    out = python("import muster\nmuster.init().log({'last': 1}, step=10)\nraise RuntimeError()")
    assert out.returncode == 1 and lines_of(metrics)[-1]["last"] == 1


class OnGpu:
    is_cuda, ndim = True, 0

    def __float__(self):
        return 2.5


def test_metrics_that_cannot_be_are_refused_in_words(place, start):
    run = start()
    for bad in ("", "a name", "ü", "step", "v", "t", "x" * 129, "a\n"):
        with pytest.raises(ValueError, match="no name"):
            run.log({bad: 1}, step=1)
    for value in ("3", b"3", None, [1.0], 1j):
        with pytest.raises(TypeError):
            run.log({"a": value}, step=1)
    for step, kind in ((-1, ValueError), (1 << 63, ValueError), (1.5, TypeError)):
        with pytest.raises(kind):
            run.log({"a": 1}, step=step)
    with pytest.raises(ValueError, match="512"):
        run.log({f"n{i}": 1 for i in range(513)}, step=1)
    with pytest.raises(ValueError, match="16384"):
        run.log({f"{i:099}": 1 for i in range(200)}, step=1)
    with pytest.raises(TypeError, match="sync=True"):
        run.log({"a": OnGpu()}, step=1)
    run._flush()
    assert text_of(place / "metrics.jsonl") == ""
    run.log({"a": OnGpu(), "x" * 128: 1}, step=1, sync=True)
    run._flush()
    assert lines_of(place / "metrics.jsonl")[0]["a"] == 2.5


def test_events_are_what_every_reader_of_json_takes(place, start):
    run = start(2)
    run.event("note", message="ä \" \0 \ud800\n", list=[1, -2.5e-3, True, None, {"k": NAN}], big=1 << 70, path=place)
    run.event("note", rank=9)
    run.checkpoint(place / "m.pt", step=4, bytes=10)
    run.summary(loss=0.5)
    text = text_of(place / "events.jsonl")
    assert "\\u0000" not in text and "NaN" not in text
    assert lines_of(place / "events.jsonl") == [
        {"rank": 2, "type": "note", "message": "ä \"   ?\n", "list": [1, -2.5e-3, True, None, {"k": None}],
         "big": float(1 << 70), "path": str(place)},
        {"rank": 9, "type": "note"},
        {"rank": 2, "type": "checkpoint", "bytes": 10, "path": f"{place}/m.pt", "step": 4},
        {"rank": 2, "type": "summary", "loss": 0.5}]
    with pytest.raises(ValueError, match="16384"):
        run.event("note", message="x" * 16384)
    with pytest.raises(TypeError):
        run.event("note", message=object())
    with pytest.raises(ValueError):
        run.event("")
    assert len(lines_of(place / "events.jsonl")) == 4


def test_artifacts_lie_in_the_jobs_folder_by_type_key_and_step(place, start):
    run = start(1)
    run.log_text("samples/short", "hello", step=7)
    run.log_image("p", b"\x89PNG\r\n\x1a\n...", step=7)
    run.log_image("p", b"\xff\xd8\xff...", step=8)
    assert text_of(place / "job/artifacts/text/samples/short/7-r1.txt") == "hello"
    assert (place / "job/artifacts/image/p/7-r1.png").exists() and (place / "job/artifacts/image/p/8-r1.jpeg").exists()
    assert lines_of(place / "events.jsonl")[0] == {
        "rank": 1, "type": "artifact", "step": 7, "path": "artifacts/text/samples/short/7-r1.txt"}
    for key in ("", "..", "a/../b", "/a", "a//b", "a/", ".hidden", "a b", "x" * 129, "a\n"):
        with pytest.raises(ValueError, match="key"):
            run.log_text(key, "x", step=7)
    with pytest.raises(ValueError, match="PNG"):
        run.log_image("p", b"<svg onload=", step=7)
    with pytest.raises(ValueError, match="1048576"):
        run.log_text("k", "x" * ((1 << 20) + 1), step=7)


def test_a_sign_of_life_is_the_programs_and_not_the_threads(place, start):
    run, beat = start(), place / "rank-00000.beat"
    run.log({}, step=0)
    run._beat()
    assert not beat.exists()  # no step yet: it is not watched
    run.step(42)
    wait_for("the sign of life", lambda: '{"step":42,"at":' in text_of(beat))
    assert (beat.stat().st_size, beat.stat().st_mode & 0o777) == (256, 0o640)
    at = json.loads(text_of(beat))["at"]
    run._beat()
    assert json.loads(text_of(beat)) == {"step": 42, "at": at}  # the thread goes on, the time stands still
    with run.section("eval", 600):
        with run.section("save", 0.5):
            run._beat()
            said = json.loads(text_of(beat))
            assert (said["section"], said["for_s"]) == ("save", 1) and said["at"] >= at
        run._beat()
        assert json.loads(text_of(beat))["section"] == "eval"
    run._beat()
    assert "section" not in json.loads(text_of(beat))
    for name, timeout_s in (("a name", 1), ("x", 0), ("x", NAN), ("x" * 32, 1), ("", 1)):
        with pytest.raises(ValueError):
            run.section(name, timeout_s)
    with run.section("x", math.inf):
        run._beat()
        assert json.loads(text_of(beat))["for_s"] == 10**9
    sections = [run.section("x", 1) for _ in range(17)]
    for section in sections[:16]:
        section.__enter__()
    with pytest.raises(RuntimeError, match="16"):
        sections[16].__enter__()
    run.finish()
    assert not beat.exists()


def test_orders_come_as_a_value_and_as_a_call(place, start, capsys):
    run, calls = start(), []

    def listen(order):
        calls.append(order)
        raise RuntimeError("of the program")
    run.on_order(listen)
    assert run.order() is None
    publish(place, seq=1, order="save", deadline=None, reason="\"seq\":9", devices={"now": 4})
    wait_for("the first", lambda: len(calls) == 1)
    assert calls[0] == ("save", 1, None, "\"seq\":9", None) and run.order() == calls[0]
    publish(place, seq=2, order="scale", deadline="2023-11-14T22:13:20.500Z", reason="", more={"order": ["stop"]},
            devices={"now": 4, "next": 2})
    wait_for("the second", lambda: len(calls) == 2)  # a callback that raises ends nothing
    assert calls[1] == ("scale", 2, 1700000000.5, "", 2)
    publish(place, seq=4, order="something new")
    wait_for("the third", lambda: len(calls) == 3)
    assert calls[2].order == "none"
    run.on_order(listen)  # who asks anew hears the newest anew
    wait_for("the third again", lambda: len(calls) == 4)
    assert "RuntimeError: of the program" in capsys.readouterr().err


@pytest.mark.parametrize("text", [
    b"", b"{", b"[]", b"7", b"\xff", b'{"seq":1}', b'{"seq":"1","order":"stop"}', b'{"seq":0,"order":"stop"}',
    b'{"seq":true,"order":"stop"}', b"[" * 4000])
def test_a_damaged_order_is_none(text):
    assert _files.parse_order(text) is None


def test_parts_of_an_order_that_make_no_sense_are_passed_over():
    order = _files.parse_order(b'{"seq":1,"order":["stop"],"deadline":"0001-01-01T00:00:00","devices":7,"reason":8}')
    assert (order.order, order.reason, order.devices_next) == ("none", "", None)


def test_a_save_is_asked_for_once_and_answered_for_the_order_that_asked(place, start):
    run, ack = start(), place / "rank-00000.ack"
    assert not run.should_save()
    run.saved(1)
    assert not ack.exists()  # nobody asked
    publish(place, seq=1, order="save")
    wait_for("it", run.should_save)
    assert not run.should_stop()
    publish(place, seq=2, order="save")  # while the first is being saved
    wait_for("the second", lambda: run.order().seq == 2)
    run.saved(5)
    assert text_of(ack) == '{"seq":1,"step":5,"did":"saved"}\n'
    assert run.should_save()
    run.saved(6)
    assert json.loads(text_of(ack))["seq"] == 2 and not run.should_save()


def test_who_is_told_to_stop_saves_answers_and_ends_with_76(place, start):
    run = start()
    run.step(9)
    publish(place, seq=3, order="stop")
    wait_for("it", run.should_stop)
    assert run.should_save()
    run.saved(90)
    assert text_of(place / "rank-00000.ack") == '{"seq":3,"step":90,"did":"stopping"}\n' and not run.should_save()
    with pytest.raises(SystemExit) as end:
        run.stopped(90)
    assert end.value.code == 76 and not (place / "rank-00000.beat").exists()
    assert text_of(place / "rank-00000.result") == '{"outcome":"stopped","step":90,"message":""}\n'


def test_who_is_given_up_saves_nothing_and_ends_with_75(place, start):
    run = start()
    publish(place, seq=3, order="abort")
    wait_for("it", run.should_stop)
    assert not run.should_save()
    with pytest.raises(SystemExit) as end:
        run.stopped(90)
    assert end.value.code == 75 and not (place / "rank-00000.result").exists()


def test_a_result_is_published_whole_with_the_last_step(place, start):
    run = start()
    run.log({}, step=7)
    run.finish(loss=0.5)
    assert text_of(place / "rank-00000.result") == '{"outcome":"done","step":7,"message":""}\n'
    assert lines_of(place / "events.jsonl") == [{"rank": 0, "type": "summary", "loss": 0.5}]
    run._files.result("failed", 7, "node", "ü" * 3000)
    assert (place / "rank-00000.result").stat().st_size < 4096
    assert sorted(p.name for p in place.iterdir() if p.is_file()) == [
        "events.jsonl", "metrics.jsonl", "rank-00000.result"]  # and no temporary file


FORKS = """
import multiprocessing, os, signal, sys, muster
def say():
    mine = muster.init()
    mine.log({'a': 1}, step=5); mine.event('note'); mine.step(9); mine.finish()
    assert not mine.active and not mine.should_stop() and not mine.should_save()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
if __name__ == '__main__':
    run = muster.init()
    assert run.active and signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    child = os.fork()
    if child == 0:
        say()
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(7)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    worker = multiprocessing.get_context('spawn').Process(target=say)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_workers_by_fork_or_spawn_say_nothing_and_die_of_sigterm(place):
    (place / "forks.py").write_text(FORKS, encoding="ascii")
    out = subprocess.run([PYTHON, place / "forks.py"], env={**os.environ, "PYTHONPATH": PACKAGE}, capture_output=True,
                         text=True, timeout=60, check=False)
    assert out.returncode == 0, out.stderr
    assert not list(place.glob("*.jsonl")) and not list(place.glob("rank-*"))


TERM = """
import os, signal, sys, time, muster
if sys.argv[1] == 'own': signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
run = muster.init(signals=sys.argv[1] != 'off')
os.kill(os.getpid(), signal.SIGTERM)
assert run.should_stop() and run.should_save()
run.saved(3)
run.stopped(3)
"""


@pytest.mark.parametrize("how, status", [("on", 76), ("own", 9), ("off", -signal.SIGTERM)])
def test_sigterm_alone_is_an_order_to_stop_unless_the_program_has_its_own_way(place, how, status):
    out = python(TERM, how)
    assert out.returncode == status, out.stderr
    assert (place / "rank-00000.result").exists() == (how == "on") and not (place / "rank-00000.ack").exists()


FULL = """
import resource, signal, sys, muster
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = muster.init()
run.log({}, step=1); run._flush()
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), before[1]))
run.log({}, step=2); run._flush()
run.log({}, step=3); run._flush()
resource.setrlimit(resource.RLIMIT_FSIZE, before)
run.log({}, step=4)
run.finish()
"""


def test_a_full_disk_drops_lines_says_so_once_and_training_goes_on(place):
    out = python(FULL, "60")
    assert out.returncode == 0 and out.stderr.count("muster: ") == 1, out.stderr
    first, torn, last = text_of(place / "metrics.jsonl").splitlines()
    assert json.loads(first)["step"] == 1 and json.loads(last)["step"] == 4 and len(first) + 1 + len(torn) == 60


def test_what_is_no_plain_file_holds_up_no_program(place, start, capsys):
    for name in ("metrics.jsonl", "order.json", "rank-00000.beat"):
        os.mkfifo(place / name)
    os.symlink("/dev/full", place / "events.jsonl")
    run = start()
    run.step(1)
    run.log({}, step=1)
    run.event("note")
    assert run.order() is None
    run.finish()
    assert json.loads(text_of(place / "rank-00000.result"))["outcome"] == "done"
    assert {"metrics.jsonl", "events.jsonl"} <= set(capsys.readouterr().err.replace("'", "/").split("/"))


def test_threads_that_log_together_leave_whole_lines(place, start):
    run = start()
    def work(n):
        for i in range(200):
            run.log({f"a{n}": i}, step=i)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run._flush()
    told = [(line["step"], name) for line in lines_of(place / "metrics.jsonl") for name in line if name[0] == "a"]
    assert len(told) == len(set(told)) == 800


def test_the_wheel_is_built_without_a_network_has_its_types_and_the_version_of_the_programs(tmp_path):
    for module in ("setuptools", "wheel", "pip"):
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"no {module} here: make deps-test")
    subprocess.run(["make", "-s", "python", f"BUILD={tmp_path}/b", f"PYTHON={PYTHON}"], cwd=ROOT, check=True,
                   capture_output=True)
    wheel, = (tmp_path / "b/wheel").iterdir()
    assert {"muster/__init__.py", "muster/_files.py", "muster/_run.py", "muster/py.typed"} <= set(
        zipfile.ZipFile(wheel).namelist())
    version = subprocess.run([f"{BIN}/muster", "--version"], capture_output=True, text=True, check=True).stdout.split()
    assert f"muster-{version[1]}-" in wheel.name


def test_the_example_runs_outside_of_muster_too(tmp_path):
    out = subprocess.run([PYTHON, f"{ROOT}/examples/program.py", "3"], cwd=tmp_path, capture_output=True, text=True,
                         env={"PYTHONPATH": PACKAGE}, timeout=60, check=False)
    assert (out.returncode, out.stdout, out.stderr) == (0, "begins at step 0\n", "")


def program_spec(*args, **env):
    spec = specs.command("")
    spec["command"].update(argv=[PYTHON, f"{ROOT}/examples/program.py", *args], env=env)
    return spec


def test_a_python_program_logs_is_told_to_stop_saves_and_goes_on_where_it_was(tmp_path):
    with Cluster(str(tmp_path), slots=1) as cluster:
        job = cluster.submit(program_spec("1000000"))["id"]
        wait_for("some steps", lambda: (cluster.job(job)["progress"] or {"step": 0})["step"] > 20)
        cluster.action(job, "suspend")
        stopped = cluster.wait(job, "suspended")
        with open(os.path.join(stopped["dir"], "checkpoints", "at"), encoding="ascii") as f:
            at = int(f.read())
        assert at > 20 and stopped["restarts"] == {"user": 0, "system": 0, "node": 0}
        assert stopped["checkpoint"]["step"] == at
        cluster.action(job, "resume")
        wait_for("steps beyond it", lambda: cluster.job(job)["progress"]["step"] > at)
        assert f"begins at step {at}\n" in cluster.log_text(job)
        steps = cluster.api("GET", f"/v1/jobs/{job}/metrics?names=loss")["metrics"]["step"]
        assert steps == sorted(set(steps)) and max(steps) > at > min(steps)
        cluster.action(job, "cancel")
        cluster.wait(job, "cancelled")
        job = cluster.submit(program_spec("30"))["id"]
        assert cluster.wait(job)["state"] == "succeeded"
        # the path of the user's own modules stays, behind the package's
        spec = specs.command("echo $PYTHONPATH; echo $MUSTER_LIB")
        spec["command"]["env"] = {"PYTHONPATH": "/own/modules"}
        job = cluster.submit(spec)["id"]
        cluster.wait(job, "succeeded")
        path, lib = cluster.log_text(job).splitlines()[:2]
        assert path == f"{lib}/python:/own/modules" and os.path.exists(f"{lib}/python/muster/py.typed")
    assert not cluster.leftovers()
