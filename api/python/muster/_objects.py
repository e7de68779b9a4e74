"""Objects as closed, tagged JSON: what a checkpoint keeps beside tensors. Reading it runs no code of a class that was
not registered here, and does not break when a class moves."""
from __future__ import annotations

import base64
import binascii
import collections
import math
import pickle
from typing import Any, Callable, Dict, Optional, Tuple

MARK = "!"  # an object with this member is no dict but what the member says
LIMIT = 1 << 20
DEPTH = 100
INT64 = 1 << 63

Take = Callable[[str, Any], Optional[str]]
_to: Dict[type, Tuple[str, Callable[[Any], Any]]] = {}
_from: Dict[str, Callable[[Any], Any]] = {}


def register(cls: type, to: Callable[[Any], Any], from_: Callable[[Any], Any], name: str = "") -> None:
    """Let objects of cls be kept: to(object) gives what can be kept, from_ makes one of that again. name: what it is
    called in checkpoints, by default the class's own name."""
    called = name or f"{cls.__module__}.{cls.__qualname__}"
    _to[cls], _from[called] = (called, to), from_


register(collections.OrderedDict, dict, collections.OrderedDict, "OrderedDict")
register(collections.Counter, dict, collections.Counter, "Counter")


def _tag(kind: str, value: Any) -> Dict[str, Any]:
    return {MARK: kind, "v": value}


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _pack_text(value: str) -> Any:
    try:
        plain = "\0" not in value and bool(value.encode("utf-8") or True)
    except UnicodeEncodeError:
        plain = False
    return value if plain else _tag("text", _encode(value.encode("utf-8", "surrogatepass")))


def pack(value: Any, path: str, *, pickles: bool = False, take: Optional[Take] = None, depth: int = 0) -> Any:
    """value as JSON. take(path, value): the name under which something of it is kept elsewhere, or None. TypeError with
    the path of what cannot be kept."""
    if depth > DEPTH:
        raise TypeError(f"{path}: lies more than {DEPTH} levels deep, or in itself")

    def inner(v: Any, at: str) -> Any:
        return pack(v, f"{path}{at}", pickles=pickles, take=take, depth=depth + 1)

    if value is None or isinstance(value, bool):
        return value
    if type(value) in _to:
        name, to = _to[type(value)]
        return _tag(name, inner(to(value), ""))
    if isinstance(value, int):
        return int(value) if -INT64 <= value < INT64 else _tag("int", str(int(value)))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _tag("float", str(float(value)))
    if isinstance(value, str):
        return _pack_text(value)
    kept = take(path, value) if take is not None else None
    if kept is not None:
        return _tag("tensor", kept)
    if isinstance(value, (bytes, bytearray)):
        return _tag("bytes", _encode(value))
    if type(value) is list:
        return [inner(v, f"[{i}]") for i, v in enumerate(value)]
    if type(value) is tuple:
        return _tag("tuple", [inner(v, f"[{i}]") for i, v in enumerate(value)])
    if type(value) in (set, frozenset):
        return _tag(type(value).__name__, [inner(v, "{}") for v in sorted(value, key=repr)])
    if isinstance(value, dict):
        if type(value) is not dict:
            value = dict(value)
        return _tag("dict", [[inner(k, ".keys()"), inner(v, f".{k}")] for k, v in value.items()])
    if pickles:
        return _tag("pickle", _encode(pickle.dumps(value)))
    raise TypeError(f"{path}: a {type(value).__module__}.{type(value).__qualname__} cannot be kept in a checkpoint: "
                    "numbers, text, bytes, tensors, None and lists, tuples, dicts and sets of them can, and what "
                    "muster.torch.register knows")


def unpack(value: Any, *, pickles: bool = False, tensor: Optional[Callable[[str], Any]] = None) -> Any:
    """What pack made JSON of. ValueError where it is of no kind that is known, or a pickle that was not asked for."""
    def inner(v: Any) -> Any:
        return unpack(v, pickles=pickles, tensor=tensor)

    if isinstance(value, list):
        return [inner(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind, v = value.get(MARK), value.get("v")
    try:
        if kind in ("int", "float"):
            return int(v) if kind == "int" else float(v)  # type: ignore[arg-type]
        if kind == "text":
            return base64.b64decode(v).decode("utf-8", "surrogatepass")  # type: ignore[arg-type]
        if kind == "bytes":
            return base64.b64decode(v)  # type: ignore[arg-type]
        if kind in ("tuple", "set", "frozenset"):
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](inner(v))
        if kind == "dict":
            return {inner(k): inner(x) for k, x in v}  # type: ignore[union-attr]
        if kind == "tensor" and tensor is not None:
            return tensor(str(v))
        if kind == "pickle" and pickles:
            return pickle.loads(base64.b64decode(v))  # type: ignore[arg-type]
    except (TypeError, AttributeError, binascii.Error) as e:
        raise ValueError(f"an object of a checkpoint is no {kind}: {e}") from None
    if kind == "pickle":
        raise ValueError("the checkpoint holds a pickle, which may run any code: allow_pickle=True loads it")
    if kind in _from:
        return _from[str(kind)](inner(v))
    raise ValueError(f"the checkpoint holds a '{kind}', which is not known here: muster.torch.register makes it so")
