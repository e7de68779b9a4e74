"""libmuster-state.so.1 through muster._state: checkpoints of plain memory, plans of sequences, orders of samples."""
import ctypes
import os
import re
import subprocess
import sys

import pytest

from tests.cluster import BIN, ROOT

sys.path.insert(0, f"{ROOT}/api/python")
os.environ.setdefault("MUSTER_LIB", os.path.join(os.path.dirname(BIN), "lib", "muster"))
from muster import _state  # noqa: E402  pylint: disable=wrong-import-position
from muster._state import Piece, Reader, Writer  # noqa: E402  pylint: disable=wrong-import-position


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


def piece(memory, name="w", **more):
    return Piece(name, "master", "f32", (len(memory),), ctypes.addressof(memory), **more)


def writer(folder, *pieces, **more):
    return Writer(list(pieces), str(folder), **{"rank": 0, "world": 1, "generation": 1, "keep": 2, "keep_every": 0,
                                                "codec": "none", "pool_bytes": 0, **more})


def ended(w):
    w.drain(30)
    return w.next_done()


def test_two_writers_halves_are_read_as_one(tmp_path):
    whole, back = floats(*range(10)), floats(*[0] * 10)
    half = ctypes.addressof(whole) + 4 * 4
    ranks = [writer(tmp_path, piece(whole, end=4), rank=0, world=2),
             writer(tmp_path, piece(whole, begin=4, end=10)._replace(data=half), rank=1, world=2)]
    for w in ranks:
        assert w.begin(7, b'{"step":7,"program":{"a":1}}')
        w.gate()
    assert [ended(w)["code"] for w in ranks] == [0, 0]
    with Reader(str(tmp_path), 7) as reader:
        assert reader.inspect()["kv"]["program"] == {"a": 1}
        reader.load([piece(back)])
        with pytest.raises(_state.NotFound, match="'v' .master. is not in the checkpoint"):
            reader.load([piece(back, "v")])
        with pytest.raises(ValueError, match="another shape"):
            reader.load([piece(floats(1))])
    assert list(back) == list(range(10))
    assert [one["step"] for one in _state.listing(str(tmp_path))[0]] == [7]
    for w in ranks:
        w.close()


def test_errors_come_as_the_exceptions_of_the_documents(tmp_path):
    memory = floats(1, 2)
    first = writer(tmp_path / "a", piece(memory))
    assert first.begin(1, b'{"step":1}')
    assert first.begin(2, b'{"step":2}') and not first.begin(3, b'{"step":3}')  # nobody has passed a gate
    with pytest.raises(TimeoutError):
        first.drain(0.05)
    first.gate()
    assert ended(first)["code"] == 0 and first.next_done()["step"] == 2
    with pytest.raises(ValueError, match="no JSON"):
        first.begin(4, b"{")
    with pytest.raises(ValueError, match="not an object with a step"):
        first.begin(4, b"{}")
    second = writer(tmp_path / "a", piece(memory), generation=2)
    with pytest.raises(_state.Superseded):
        writer(tmp_path / "a", piece(memory))
    assert first.begin(5, b'{"step":5}')
    first.gate()
    done = ended(first)
    assert isinstance(_state.error_of(done["code"], done["message"]), _state.Superseded)
    assert not (tmp_path / "a" / "step-00000005").exists()
    with pytest.raises(_state.NotFound):
        Reader(str(tmp_path / "a"), 5)
    with open(tmp_path / "a" / "step-00000002" / "MANIFEST", "r+b") as f:
        f.write(b"?")
    with pytest.raises(_state.Corrupt):
        Reader(str(tmp_path / "a"), 2)
    assert [one["step"] for one in _state.listing(str(tmp_path / "a"))[1]] == [2]
    with pytest.raises(ValueError, match="codec 'gzip' is unknown"):
        writer(tmp_path / "b", piece(memory), codec="gzip")
    for w in (first, second):
        w.close()


ODD = {"f64": 8, "i64": 8, "i32": 4, "u8": 1, "i8": 1, "i16": 2, "bool": 1, "f8e4m3fn": 1, "f8e5m2": 1, "u16": 2,
       "u32": 4, "u64": 8, "c64": 8, "c128": 16}  # bytes of an element


def muster(*argv):
    return subprocess.run([f"{BIN}/muster", "checkpoint", *map(str, argv)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("codec", ["none", "plane", "zstd"])
def test_each_type_of_elements_is_kept_bit_for_bit_and_seen_by_the_tools(tmp_path, codec):
    memory = {name: ctypes.create_string_buffer((bytes(range(5)) * n)[:n], n)
              for name, n in ((name, 3 * 65536 * size) for name, size in ODD.items())}

    def pieces(of):
        return [Piece(f"t.{name}", "buffer", name, (3, 65536), ctypes.addressof(of[name])) for name in ODD]
    assert set(ODD) | {"f32", "bf16", "f16"} == set(_state.TYPES)
    w = writer(tmp_path, *pieces(memory), codec=codec)
    for step in (1, 2):
        assert w.begin(step, b'{"step":1}')
        w.gate()
        assert ended(w)["code"] == 0
        memory["c128"][16] = b"?"
    w.close()
    back = {name: ctypes.create_string_buffer(len(m)) for name, m in memory.items()}
    with Reader(str(tmp_path), 2) as reader:
        assert [t["dtype"] for t in reader.inspect()["tensors"]] == sorted(ODD)
        reader.load(pieces(back))
        with pytest.raises(ValueError, match="'t.i8' .buffer. is i8 in the checkpoint: it does not convert to u8"):
            reader.load([pieces(back)[list(ODD).index("i8")]._replace(dtype="u8")])
    assert all(back[name].raw == memory[name].raw for name in ODD)
    assert muster("verify", tmp_path / "step-00000002").returncode == 0
    diff = muster("diff", tmp_path / "step-00000001", tmp_path / "step-00000002")
    assert diff.returncode == 1 and "t.c128" in diff.stdout and "t.c64" not in diff.stdout, diff.stdout


def test_names_below_layout_are_no_difference_and_c128_is_not_exported(tmp_path):
    weight, rows = floats(*range(8)), floats(*range(64))
    digests = []
    for i, n in enumerate((2, 4)):
        w = writer(tmp_path / str(i), piece(weight), piece((ctypes.c_float * n).from_buffer(rows), "layout.rng.torch"))
        assert w.begin(1, b'{"step":1}')
        w.gate()
        assert ended(w)["code"] == 0
        w.close()
        digests.append(muster("digest", tmp_path / str(i) / "step-00000001").stdout)
    assert digests[0] and digests[0] == digests[1]
    diff = muster("diff", tmp_path / "0" / "step-00000001", tmp_path / "1" / "step-00000001")
    assert diff.returncode == 0 and "layout" not in diff.stdout, diff.stdout
    w = writer(tmp_path / "2", piece(weight)._replace(dtype="c128", shape=(2,)))
    assert w.begin(1, b'{"step":1}')
    w.gate()
    assert ended(w)["code"] == 0
    w.close()
    export = muster("export", tmp_path / "2" / "step-00000001", tmp_path / "out")
    assert export.returncode and "'w' is c128, which safetensors files do not have" in export.stderr


def test_structs_of_a_newer_program_are_refused_and_of_an_older_one_filled_up(tmp_path):
    lib = _state.library()
    handle = ctypes.c_void_p()

    class Newer(ctypes.Structure):
        _fields_ = [("known", _state._Options), ("more", ctypes.c_uint64)]

    options = Newer(known=_state._Options(size=ctypes.sizeof(Newer), world=1, keep=2, dir=os.fsencode(tmp_path),
                                          codec=b"none"))
    newer = ctypes.cast(ctypes.byref(options), ctypes.POINTER(_state._Options))
    assert lib.mstate_writer_new(newer, None, 0, ctypes.byref(handle)) == 0  # it asks for nothing new
    lib.mstate_writer_free(handle)
    options.more = 1
    assert lib.mstate_writer_new(newer, None, 0, ctypes.byref(handle)) == -22
    assert b"newer library" in lib.mstate_last_error()
    options.known.size = _state._Options.pool_bytes.offset  # of a time before it was known
    options.known.pool_bytes = options.known.mode = options.known.timeout_s = 1 << 30
    assert lib.mstate_writer_new(newer, None, 0, ctypes.byref(handle)) == 0
    lib.mstate_writer_free(handle)


def test_each_epoch_has_an_order_of_its_own_that_leaves_nothing_out():
    first, second = ([_state.order_index(3, e * 1000 + i, 1000) for i in range(1000)] for e in (0, 1))
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second and first != [_state.order_index(4, i, 1000) for i in range(1000)]
    assert first == [_state.order_index(3, i, 1000) for i in range(1000)]
    with pytest.raises(ValueError):
        _state.order_index(3, 0, 0)


def test_a_plan_places_each_sequence_once():
    lengths = [(i * 37) % 900 + 1 for i in range(64)]
    plan = _state.plan(lengths, replicas=3, capacity=2048, hidden=256, kv_hidden=256, layers=4, flops_per_s=1e12)
    placed = [p["sequence"] for replica in plan["plan"] for micro in replica for p in micro["pieces"]]
    assert sorted(placed) == list(range(64)) and len({len(replica) for replica in plan["plan"]}) == 1
    assert _state.plan(lengths, replicas=1, capacity=2048, lin_s=1e-6, policy="static")["micro_batches"] == 64
    with pytest.raises(ValueError, match="sequence 1 has 5000 tokens"):
        _state.plan([1, 5000], replicas=1, capacity=2048, lin_s=1e-6)
    with pytest.raises(ValueError, match="wants a model and a rank's speed"):
        _state.plan([1], replicas=1, capacity=2048)


def test_it_is_loaded_by_the_first_use_and_its_absence_is_told():
    script = ("import os, muster, muster._state as s\n"
              "assert 'libmuster-state' not in open('/proc/self/maps').read()\n"
              "os.environ['MUSTER_LIB'] = '/nowhere'\n"
              "s.library()")
    out = subprocess.run(["/usr/bin/python3", "-c", script], env={**os.environ, "PYTHONPATH": f"{ROOT}/api/python"},
                         capture_output=True, text=True, check=False)
    assert re.search(r"MusterError.*libmuster-state.so.1 cannot be loaded from /nowhere", out.stderr), out.stderr


def test_a_process_outside_of_muster_finds_it_in_a_tree_or_where_it_is_installed():
    env = {k: v for k, v in os.environ.items() if k != "MUSTER_LIB"}
    for python_path in (f"{ROOT}/api/python", f"{os.path.dirname(BIN)}/lib/muster/python"):
        out = subprocess.run(["/usr/bin/python3", "-c", "import muster._state as s; s.library(); print('found')"],
                             env={**env, "PYTHONPATH": python_path}, capture_output=True, text=True, check=False)
        assert out.stdout == "found\n", out.stderr
    script = "from muster._library import places; print(places('x')[-1], len(places('x')))"
    places = subprocess.run(["/usr/bin/python3", "-c", script], env={**env, "PYTHONPATH": python_path}, text=True,
                            capture_output=True, check=True).stdout
    assert places == "/usr/lib/muster/x 4\n"


def test_codecs_code_decode_and_add_and_refuse_what_is_no_block():
    codec, site, n = _state.Codec("r8"), _state.Site(1, 2, 3, 4, 0), 300
    values, out = floats(*[(i % 7) - 3 for i in range(n)]), floats(*[0] * n)
    at, back = ctypes.addressof(values), ctypes.addressof(out)
    block, wrong = (ctypes.create_string_buffer(codec.size(n)) for _ in range(2))
    codec.encode(site, at, n, ctypes.addressof(block))
    codec.decode(ctypes.addressof(block), back, n)
    assert max(abs(a - b) for a, b in zip(values, out)) < 0.1 and codec.group == 128 and not codec.take_flags()
    codec.reduce([ctypes.addressof(block), None], at, back, n)
    assert max(abs(2 * a - b) for a, b in zip(values, out)) < 0.1
    values[5] = float("inf")
    codec.encode(site, at, n, ctypes.addressof(wrong))
    assert codec.take_flags() and not codec.take_flags()
    codec.reduce_encode([ctypes.addressof(block), ctypes.addressof(wrong)], 0, codec, site, ctypes.addressof(wrong), n)
    assert codec.take_flags(), "the block of a sum tells what its parts told"
    with pytest.raises(_state.Corrupt):
        codec.decode(ctypes.addressof(ctypes.create_string_buffer(codec.size(n))), back, n)
    with pytest.raises(ValueError, match="one of the parts is uncoded, or none"):
        codec.reduce([ctypes.addressof(block)], at, back, n)
    with pytest.raises(ValueError, match="gzip"):
        _state.Codec("gzip")
    assert codec.size(1 << 60) == 0
