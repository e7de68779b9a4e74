"""Kill a writer of checkpoints at any instant: the newest committed one is whole, unfinished ones do not exist."""
import concurrent.futures
import errno
import os
import random
import signal
import subprocess
import tempfile
import time

import pytest

from tests.patience import PATIENCE_S

LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
KILLS = 600 if LONG else 60
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "tests", "fault", "checkpoint_writer")
POWER = os.path.join(os.path.dirname(PROGRAM), "checkpoint_power")
WAYS = ["uring", "threads", "buffered"]
CODECS = ["none", "plane", "zstd", "lz4", "auto"]
KILLED = [*CODECS, "archive"]
AT_ONCE = 2 * (os.cpu_count() or 1)  # sweeps, which wait for the disk most of the time


def writer(*argv, way=None):
    env = dict(os.environ, MUSTER_IO=way) if way else dict(os.environ)
    done = subprocess.run([PROGRAM, *argv], capture_output=True, text=True, timeout=540, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sweep(folder, what, codec, every, way, *more):
    """Every n-th point, shared out over sweeps at once; the last one. It begins with another one each run, told so that
    it can be had again."""
    first = int(os.environ.get("MUSTER_SEED", time.time_ns())) % every + 1
    print(f"MUSTER_SEED={first - 1}: first point {first}, every {every}")

    def share(i):
        points = str(first + i * every), str(AT_ONCE * every)
        return int(writer(what, str(folder / str(i)), codec, *points, *more, way=way))

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        last = min(pool.map(share, range(AT_ONCE)))
    print(f"{what} {codec} {way}: {(last - first + every - 1) // every} points")
    return last


def check(folder):
    done = subprocess.run([PROGRAM, "check", folder], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_writer_killed_at_any_instant_leaves_whole_checkpoints(tmp_path):
    seed = int(os.environ.get("MUSTER_SEED", time.time_ns() % 10**9))
    print(f"MUSTER_SEED={seed}")
    chance = random.Random(seed)
    folder = str(tmp_path / "checkpoints")
    newest = 0
    for kill in range(KILLS):
        env = dict(os.environ, MUSTER_IO=WAYS[kill % 3])
        process = subprocess.Popen([PROGRAM, "write", folder, str(kill + 2), KILLED[kill // 3 % len(KILLED)]],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        try:
            process.wait(chance.uniform(0.005, 0.2))
        except subprocess.TimeoutExpired:
            pass
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=PATIENCE_S)
        acknowledged = [int(line) for line in out.splitlines()]
        found = check(folder)
        # What was acknowledged is there; at most the one under way may have been committed unheard.
        assert found >= max([newest] + acknowledged)
        assert found <= max([newest] + acknowledged) + 1
        newest = found
    assert newest > 0
    # Killed again and again between a commit and what goes for it, they leave more than are to be kept: the next one
    # that is left alone tidies up.
    argv = [PROGRAM, "write", folder, str(KILLS + 2), "none"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as last:
        assert [last.stdout.readline() for _ in range(2)][1], "it ended before its second checkpoint"
        last.kill()
    kept = [name for name in os.listdir(folder) if name.startswith("step-")
            and os.path.exists(os.path.join(folder, name, "MANIFEST"))]
    assert 1 <= len(kept) <= 3


@pytest.mark.parametrize("way, codec", list(zip([*WAYS, *WAYS], KILLED)))
def test_a_writer_killed_between_any_two_system_calls_leaves_whole_checkpoints(tmp_path, way, codec):
    last = sweep(tmp_path, "kill", codec, 1 if LONG else 47, way)
    assert last > 60  # the points were met: there are more calls than that


def test_what_a_power_loss_may_leave_holds_what_was_said_to_be_saved():
    seed = int(os.environ.get("MUSTER_SEED", time.time_ns() % 10**9))
    print(f"MUSTER_SEED={seed}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # it is the log that tells what was synced
        done = subprocess.run([POWER, folder, str(seed), str(20000 if LONG else 1000)], capture_output=True, text=True,
                              timeout=540, env=dict(os.environ, MUSTER_IO="threads"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # some were caught between the commit and its being told


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_writer_goes_on_after_any_call_that_fails(tmp_path, way, error):
    last = sweep(tmp_path, "fail", "none", 1 if LONG else 9, way, str(error))
    assert last > 20


def test_requests_beyond_what_a_slow_disk_takes_are_refused(tmp_path):
    writer("slow", str(tmp_path / "checkpoints"), way="threads")


def test_training_goes_on_beside_a_disk_that_takes_nothing(tmp_path):
    assert writer("stuck", str(tmp_path / "checkpoints"), way="threads") == "3\n"


def test_a_file_goes_out_from_registered_memory_and_is_synced_once(tmp_path):
    files, blocks = 2 * 2, 2 * (1 + 2)  # of two ranks in two steps; a file has a first page and an end, too
    fixed, plain, syncs = map(int, writer("requests", str(tmp_path / "a"), "", way="uring").split())
    assert fixed + plain == blocks + 2 * files and syncs == files
    assert fixed == blocks or os.geteuid() != 0  # others may pin little
    assert writer("requests", str(tmp_path / "b"), "64", way="uring") == f"0 {blocks + 2 * files} {files}\n"


def test_what_several_ranks_want_of_the_same_chunks_goes_through_the_page_cache(tmp_path):
    whole_direct, _, part_direct, part_cached, _ = map(int, writer("reads", str(tmp_path / "a")).split())
    assert whole_direct > 0 and part_direct == 0 and part_cached > 0


@pytest.mark.parametrize("way", ["uring", "threads"])
def test_without_direct_writes_the_page_cache_is_used(tmp_path, way):
    writer("no-direct", str(tmp_path / "checkpoints"), way=way)


def test_what_io_uring_refuses_ends_the_checkpoint_and_no_other(tmp_path):
    assert writer("ring", str(tmp_path / "checkpoints"), way="uring") == "3\n"


def test_without_io_uring_threads_write(tmp_path):
    writer("no-uring", str(tmp_path / "checkpoints"))


def on_a_small_disk(folder, mib, *argv, way=None):
    """In a mount name space of its own; as another user, in a user name space too."""
    script = f'mount -t tmpfs -o size={mib}m none "$1" && exec "$2" "$3" "$1" "$4"'
    space = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    env = dict(os.environ, MUSTER_IO=way) if way else None
    done = subprocess.run([*space, "sh", "-c", script, "sh", str(folder), PROGRAM, *argv], capture_output=True,
                          text=True, timeout=PATIENCE_S, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec", ["none", "plane", "lz4"])
def test_a_full_file_system_costs_only_the_attempt(tmp_path, codec):
    on_a_small_disk(tmp_path, 24, "fill", codec)


@pytest.mark.parametrize("way, codec, mib", [("uring", "none", 48), ("threads", "plane", 36)])
def test_the_oldest_checkpoints_go_for_one_that_a_full_disk_has_no_room_for(tmp_path, way, codec, mib):
    on_a_small_disk(tmp_path, mib, "crowd", codec, way=way)
