"""The state of random numbers in a checkpoint: a row of each rank, for a world of the same size."""
from __future__ import annotations

import importlib
import random
import struct
import sys
from typing import Any, Dict, List, Mapping, Tuple

from ._state import Piece
from ._tensors import Entry, torch

PREFIX = "layout.rng."
MIX = 0x9E3779B97F4A7C15
WORDS = 624  # of a Mersenne twister


def _python() -> bytes:
    version, words, gauss = random.getstate()
    return struct.pack(f"<I{WORDS + 1}I?d", version, *words, gauss is not None, gauss or 0.0)


def _set_python(data: bytes) -> None:
    version, *words, has, gauss = struct.unpack(f"<I{WORDS + 1}I?d", data)
    random.setstate((version, tuple(words), gauss if has else None))


def _numpy() -> bytes:
    kind, words, at, has, gauss = importlib.import_module("numpy").random.get_state()
    return struct.pack(f"<{WORDS}IiId", *(int(w) for w in words), at, has, gauss) if kind == "MT19937" else b""


def _set_numpy(data: bytes) -> None:
    numpy: Any = importlib.import_module("numpy")
    *words, at, has, gauss = struct.unpack(f"<{WORDS}IiId", data)
    numpy.random.set_state(("MT19937", numpy.array(words, dtype=numpy.uint32), at, has, gauss))


def _states() -> Dict[str, Any]:
    """Each kind's state as a tensor of bytes."""
    found: Dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    texts = {"python": _python()}
    if "numpy" in sys.modules:
        texts["numpy"] = _numpy()
    for kind, data in texts.items():
        if data:
            found[kind] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return found


def entries(rank: int, world: int) -> List[Entry]:
    """This rank's rows."""
    return [Entry(PREFIX + kind, "opaque", row.view(1, -1), how="own", shape=(world, row.numel()), off=(rank, 0),
                  len=(1, row.numel())) for kind, row in _states().items()]


Rows = Dict[str, Tuple[Piece, Any]]


def pieces(there: Mapping[Tuple[str, str], Tuple[str, Tuple[int, ...]]]) -> Rows:
    """Memory for all rows of a checkpoint, which are few bytes."""
    rows: Rows = {}
    for (name, role), (dtype, shape) in there.items():
        if name.startswith(PREFIX) and dtype == "u8" and len(shape) == 2:
            memory = torch.empty(shape, dtype=torch.uint8)
            rows[name[len(PREFIX):]] = (Piece(name, role, dtype, shape, memory.data_ptr()), memory)
    return rows


def restore(rows: Rows, rank: int, world: int, layout: Mapping[str, Any], step: int) -> List[str]:
    """Go on with the random numbers of the save; in another world they begin anew, which the notes tell."""
    if not rows:
        return []
    if layout.get("world") != world:
        seed = (int(layout.get("seed", 0)) + step * MIX + rank * (MIX >> 7)) % (1 << 63)
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            importlib.import_module("numpy").random.seed(seed % (1 << 32))
        return [f"random numbers begin anew: the checkpoint is of {layout.get('world')} ranks, and here are {world}"]
    for kind, (_, memory) in rows.items():
        row = memory[rank].clone()
        if kind == "torch":
            torch.set_rng_state(row)
        elif kind == "cuda" and torch.cuda.is_available():
            torch.cuda.set_rng_state(row)
        elif kind == "python":
            _set_python(bytes(row.tolist()))
        elif kind == "numpy":
            _set_numpy(bytes(row.tolist()))
    return []
