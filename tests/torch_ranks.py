"""Ranks of a PyTorch program in processes of their own, by gloo: forked, so that PyTorch is imported once."""
import contextlib
import multiprocessing
import os
import pickle
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist

from tests.patience import PATIENCE_S

torch.set_num_threads(1)  # before any fork: threads of OpenMP do not come along


def _rank(fn, rank, world, store, pipe, args):
    try:
        warnings.simplefilter("ignore")
        if world > 1:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        answer = None, fn(rank, world, *args)
    except BaseException:  # pylint: disable=broad-except
        answer = traceback.format_exc(), None
    pipe.send_bytes(pickle.dumps(answer))  # send() would let tensors be fetched from a process that is no more
    pipe.close()
    os._exit(0)


def ranks(world, fn, *args):
    """What fn(rank, world, *args) gives on each of world ranks."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = []
        for rank in range(world):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(fn, rank, world, f"{folder}/store", there, args))
            process.start()
            stack.callback(process.kill)
            there.close()
            running.append((process, here))
        answers = []
        for rank, (process, pipe) in enumerate(running):
            assert pipe.poll(PATIENCE_S), f"rank {rank} of {world} says nothing"
            try:
                answers.append(pickle.loads(pipe.recv_bytes()))
            except EOFError:
                process.join(PATIENCE_S)
                answers.append((f"ended with {process.exitcode}", None))
            process.join(PATIENCE_S)
        for rank, (error, _) in enumerate(answers):
            assert error is None, f"rank {rank} of {world}:\n{error}"
        return [answer for _, answer in answers]
