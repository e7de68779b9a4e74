"""torchrun as an agent starts it on each node of a job with launcher: torchrun: `python -m muster.torchrun PROGRAM …`.

Every process of the node is a rank of the job. Where one fails and has not said so itself, its result is written for
it, since torchrun ends with 1 whatever it was.
"""
from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, List, Mapping, Sequence, Tuple

SENT_BY_OTHERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def options(env: Mapping[str, str], torch: str, python: Tuple[int, ...]) -> List[str]:
    """What torchrun is told by the environment of its run, for a version of PyTorch and of Python."""
    local = env["LOCAL_WORLD_SIZE"]
    told = ["--nnodes", env["MUSTER_NODES"], "--node_rank", env["NODE_RANK"], "--nproc_per_node", local,
            "--rdzv_backend", "static", "--rdzv_endpoint", f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}",
            "--rdzv_id", f"{env['MUSTER_JOB']}-g{env['MUSTER_GENERATION']}", "--max_restarts", "0",
            "--monitor_interval", "0.1", "--no_python"]
    if int(torch.split(".")[0]) < 2 and python >= (3, 11):
        beyond = f"{max(9, int(local))}:1"  # redirects nothing: of no rank. Else these versions read an alias of none
        told += ["-r", beyond, "-t", beyond]
    return told


def write_result(folder: str, rank: int, status: int) -> None:
    """The result of a rank that failed with a status, negative: by a signal; unless it has left one."""
    name = os.path.join(folder, f"rank-{rank:05d}.result")
    others = status < 0 and -status in SENT_BY_OTHERS
    message = f"ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
    with suppress(OSError):
        with open(name + ".launcher", "w", encoding="ascii") as f:
            json.dump({"outcome": "failed", "class": "system" if others else "user", "message": message}, f)
        with suppress(FileExistsError):
            os.link(name + ".launcher", name)
        os.unlink(name + ".launcher")


def main(program: Sequence[str]) -> int:
    try:
        import torch
        from torch.distributed import run
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    except ImportError as e:
        print(f"muster: launcher torchrun needs PyTorch in {sys.executable}: {e}", file=sys.stderr)
        return 65
    told = options(os.environ, torch.__version__, sys.version_info[:2])
    try:
        own: Any = run
        arguments = (one.replace("$", "$$") for one in program[1:])  # it takes them for templates
        own.run(own.parse_args([*told, program[0], *arguments]))
    except ChildFailedError as e:
        rank, failure = e.get_first_failure()
        print(f"muster: rank {rank} failed first: {failure.message}", file=sys.stderr)
        write_result(os.environ["MUSTER_RUN_DIR"], rank, failure.exitcode)
        return 1
    except SignalException:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
