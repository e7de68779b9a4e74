"""Kill a writer of checkpoints at any instant: the newest committed one is whole, unfinished ones do not exist."""
import os
import random
import signal
import subprocess
import time

KILLS = 600 if os.environ.get("MUSTER_TEST_LONG") else 60
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "tests", "fault", "checkpoint_writer")
WAYS = ["uring", "threads", "buffered"]
CODECS = ["none", "plane", "lz4"]


def check(folder):
    done = subprocess.run([PROGRAM, "check", folder], capture_output=True, text=True, timeout=60)
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
        writer = subprocess.Popen([PROGRAM, "write", folder, str(kill + 1), CODECS[kill // 3 % 3]],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        try:
            writer.wait(chance.uniform(0.005, 0.2))
        except subprocess.TimeoutExpired:
            pass
        assert writer.poll() is None, writer.stderr.read()
        writer.send_signal(signal.SIGKILL)
        out, _ = writer.communicate(timeout=60)
        acknowledged = [int(line) for line in out.splitlines()]
        found = check(folder)
        # What was acknowledged is there; at most the one under way may have been committed unheard.
        assert found >= max([newest] + acknowledged)
        assert found <= max([newest] + acknowledged) + 1
        newest = found
    assert newest > 0
    kept = [name for name in os.listdir(folder) if name.startswith("step-")
            and os.path.exists(os.path.join(folder, name, "MANIFEST"))]
    assert 1 <= len(kept) <= 3
