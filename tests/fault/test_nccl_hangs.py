"""A program that uses NCCL is watched through the profiler interface: the rank that skips a collective is named.

There is no GPU in these tests: a program calls the plugin as NCCL does, by layouts of its own, and two processes are
its ranks. Kernels end once both have entered, as those of NCCL do.
"""
import os
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for

PROGRAM = """
import ctypes as c, os, time
V, run, rank = VERSION, os.environ['MUSTER_RUN_DIR'], int(os.environ['RANK'])
class Coll(c.Structure):
    _fields_ = [('seq', c.c_uint64), ('func', c.c_char_p), ('send', c.c_void_p), ('recv', c.c_void_p),
                ('count', c.c_size_t), ('root', c.c_int), ('datatype', c.c_char_p), ('channels', c.c_uint8),
                ('warps', c.c_uint8), ('algo', c.c_char_p), ('proto', c.c_char_p), ('group', c.c_void_p)]
class Kernel(c.Structure): _fields_ = [('channel', c.c_uint8), ('timer', c.c_uint64)]
class Any(c.Union): _fields_ = [('coll', Coll), ('kernel', Kernel)]
class Event(c.Structure):
    _fields_ = [('type', c.c_uint8 if V == 4 else c.c_uint64), ('parent', c.c_void_p), ('rank', c.c_int), ('u', Any)]
class Table(c.Structure): _fields_ = [('name', c.c_char_p)] + [(n, c.c_void_p) for n in
                                      ('init', 'start', 'stop', 'record', 'finalize')]
lib = c.CDLL(os.environ['MUSTER_LIB'] + '/libmuster-nccl-profiler.so')
t = Table.in_dll(lib, f'ncclProfiler_v{V}')
P, I = c.c_void_p, c.c_int
four = [P, c.POINTER(I), c.c_char_p, c.c_uint64, I, I, I, P]
five = [P, c.c_uint64, c.POINTER(I), c.c_char_p, I, I, I, P]
init = c.CFUNCTYPE(I, *(four if V == 4 else five))(t.init)
start = c.CFUNCTYPE(I, P, c.POINTER(P), c.POINTER(Event))(t.start)
stop = c.CFUNCTYPE(I, P)(t.stop)

def communicator(name, key):
    context, mask = P(), I()
    more = (c.byref(mask), name, key) if V == 4 else (key, c.byref(mask), name)
    assert init(c.addressof(context), *more, 1, 2, rank, None) == 0 and mask.value == 1 << 1 | 1 << 6
    return context

def event(context, type, parent=None, **of):
    e, h = Event(type=type, parent=parent, rank=rank), P()
    for k, v in of.items(): setattr(e.u.coll if type == 2 else e.u.kernel, k, v)
    assert start(context, c.byref(h), c.byref(e)) == 0 and h.value
    return h

def enqueue(context, count=1000):
    group = event(context, 1)
    h = event(context, 2, group.value, func=b'AllReduce', count=count, datatype=b'ncclFloat32', channels=2)
    assert stop(h) == 0 and stop(group) == 0
    return h

def ends(context, h, name):
    kernels = [event(context, 64, h.value, channel=i) for i in range(2)]
    with open(f'{run}/{name}-{rank}', 'w'): pass
    while not os.path.exists(f'{run}/{name}-{1 - rank}'): time.sleep(0.002)
    for k in kernels: assert stop(k) == 0

tp, dp = communicator(b'tp', 0x1234), communicator(b'dp', 0xFFFFFFFF00000001)
muster, m = c.CDLL(os.environ['MUSTER_LIB'] + '/libmuster.so.1'), P()
assert muster.muster_open(None, c.byref(m)) == 0
for step in range(1, 1000000):
    muster.muster_section_begin(m, b'step', c.c_double(2))
    if step == 20 and os.environ['MUSTER_ATTEMPT'] == '1': HANG
    a, b = enqueue(tp), enqueue(dp)
    ends(tp, a, f'a{step}')
    ends(dp, b, f'b{step}')
    muster.muster_section_end(m)
    muster.muster_step(m, c.c_int64(step))
"""
ELSE = {"skip": "rank == 1 and time.sleep(100000)",
        # the calls of two communicators in the other order
        "order": "rank == 1 and (enqueue(dp), enqueue(tp), time.sleep(100000))"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("cluster")), slots=2, server_args=["--round", "1"]) as c:
        yield c
    assert not c.leftovers()


@pytest.mark.parametrize("version, hang", [(4, "skip"), (5, "skip"), (5, "order")])
def test_the_rank_that_skips_a_collective_is_named(cluster, version, hang):
    spec = specs.command("", devices=2, retry={"max": 3})
    spec["command"]["argv"] = ["/usr/bin/python3", "-c",
                               PROGRAM.replace("VERSION", str(version)).replace("HANG", ELSE[hang])]
    job = cluster.submit(spec)["id"]
    told = wait_for("the verdict", lambda: [e for e in cluster.events(job) if e["cause"]["code"] == "hang"])[0]
    text = told["cause"]["text"]
    if hang == "skip":
        assert text.startswith("rank 1 on n1 has not entered all-reduce 20 of 'tp' at step "), text
        assert " that 1 other waits in; it has been in section 'step' for " in text, text
        assert (told["data"]["class"], told["data"]["roots"]) == ("not-entered", [1])
    else:  # each waits in what the other has not come to: neither of the two orders is the right one
        assert told["data"]["class"] == "cycle" and told["data"]["roots"] == [0, 1], text
    wait_for("the next attempt", lambda: (j := cluster.job(job))["generation"] > 1 and j["state"] == "running")
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_a_program_that_muster_did_not_start_is_left_alone(tmp_path):
    """The plugin may be named in an environment for all: without a page it asks for no events, and nothing fails."""
    lib = os.path.join(os.path.dirname(BIN), "lib", "muster")
    text = PROGRAM.split("tp, dp = ")[0].replace("VERSION", "5").replace("and mask.value == 1 << 1 | 1 << 6",
                                                                        "and mask.value == 0")
    env = dict(os.environ, MUSTER_LIB=lib, MUSTER_RUN_DIR=str(tmp_path), RANK="0")
    subprocess.run(["/usr/bin/python3", "-c", text + "x = communicator(b'', 0)\nassert stop(enqueue(x)) == 0\n"],
                   env=env, check=True)
