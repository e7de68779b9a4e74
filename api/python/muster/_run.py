"""The run of this process: one at most, and none outside Muster and in the children of a rank."""
from __future__ import annotations

import atexit
import os
import signal as signals_
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, NoReturn, Optional, Set, Type, Union

from . import _files
from ._files import Files, Line, Order

if TYPE_CHECKING:
    from pathlib import Path

LOOK_S = 0.1
LOOKS_A_BEAT = 10
SECTIONS = 16
STOPPED, GAVE_UP = 76, 75
TO_END = ("stop", "scale", "abort")

_lock = threading.Lock()
_the_run: Optional[Run] = None
_was_child = False  # this process came by a fork of one that is a rank


def _number_of(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def _is_child() -> bool:
    """Whether this is a worker of a rank, by a fork or by multiprocessing's other ways: a worker is not the rank."""
    processes = sys.modules.get("multiprocessing.process")
    return _was_child or (processes is not None and processes.parent_process() is not None)


def init(*, config: Optional[Mapping[str, Any]] = None, signals: bool = True) -> Run:
    """The run of this process; every call gives the same. config: what the program was given, such as vars(args), for
    the job's page and for comparisons. signals: SIGTERM makes should_stop() true where nothing else of the program
    handles it, and ends the program no more."""
    global _the_run
    with _lock:
        if _the_run is None:
            _the_run = Run(signals)
    if config is not None:
        _the_run.config(config)
    return _the_run


def _after_fork() -> None:
    global _lock, _was_child
    _lock = threading.Lock()
    if _the_run is not None and _the_run.active:
        _was_child = True
        _the_run._become_inert()


os.register_at_fork(after_in_child=_after_fork)


class _Section:
    def __init__(self, run: Run, name: str, timeout_s: float) -> None:
        self.run, self.name, self.timeout_s = run, name, timeout_s

    def __enter__(self) -> None:
        self.run._enter(self)

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.run._leave(self)


class Run:
    """What init() gives. Calls are safe on any thread. Where a report cannot be written, as on a full disk, training
    goes on and a line on stderr says so once; wrong arguments raise."""

    active: bool
    rank: int
    world: int
    attempt: int  # which run of the job this is, from 1
    resume: bool  # an earlier run has told of a checkpoint

    def __init__(self, signals: bool = True) -> None:
        folder = os.environ.get("MUSTER_RUN_DIR", "")
        self.active = bool(folder) and os.path.isdir(folder) and not _is_child()
        if self.active and not os.environ.get("RANK", "").isdecimal():
            raise ValueError("RANK is no number of a rank")
        self.rank, self.world = _number_of("RANK", 0), _number_of("WORLD_SIZE", 1)
        self.attempt = _number_of("MUSTER_ATTEMPT", 1)
        self.resume = os.environ.get("MUSTER_RESUME") == "1"
        self._step = 0  # the last that was told
        self._at = 0.0  # of the last sign of life; 0: none yet
        self._quiet = self._term = self._handles = False
        self._lock = threading.RLock()  # of what follows; a handler of a signal may log, too
        self._line: Optional[Line] = None
        self._sections: List[_Section] = []
        self._order: Optional[Order] = None
        self._on_order: Optional[Callable[[Order], object]] = None
        self._told = 0  # seq that the callback has seen
        self._asked: Optional[Order] = None  # for which should_save() was true last
        self._saved = 0  # seq that is answered; -1: SIGTERM alone
        self._warned: Set[str] = set()
        if not self.active:
            return
        self._files = Files(folder, os.environ.get("MUSTER_JOB_DIR", ""), self.rank)
        self._ending = threading.Event()
        if signals and threading.current_thread() is threading.main_thread() and \
                signals_.getsignal(signals_.SIGTERM) is signals_.SIG_DFL:
            self._handles = True
            signals_.signal(signals_.SIGTERM, self._on_term)
        self._thread = threading.Thread(target=self._watch, name="muster", daemon=True)
        self._thread.start()
        atexit.register(self._flush)

    @property
    def checkpoint_dir(self) -> Path:
        """Where checkpoints of the job belong; outside Muster: checkpoints in the working folder."""
        from pathlib import Path
        return Path(os.environ.get("MUSTER_CHECKPOINT_DIR") or "checkpoints")

    # --- what the program tells ---------------------------------------------------------------------------------------

    def log(self, values: Mapping[str, Any], *, step: Optional[int] = None, sync: bool = False) -> None:
        """Numbers of a step that is done, of rank 0 alone: values are numbers and arrays of no dimensions, by names of
        1 to 128 of A-Z a-z 0-9 _ . / : -. Without a step it is that of the last call that told one. What is told of
        one step becomes one line, written when another step's begins, or within a second. sync: wait for values that
        are on a GPU."""
        if step is not None:
            self._step = _files.want_step(step)
        if self.active and self.rank == 0:
            line = Line(self._step)
            line.add(values, sync)
            with self._lock:
                if self._line is not None and self._line.takes(line):
                    return
                self._flush()
                self._line = line

    def _flush(self) -> None:
        with self._lock:
            line, self._line = self._line, None
            if line is not None:
                self._report("metrics.jsonl", self._files.append, "metrics.jsonl", line.text())

    def log_text(self, key: str, text: str, *, step: int) -> None:
        """A text of at most 1 MiB, kept in the job's folder under key."""
        if self.active:
            self._report("artifacts", self._files.artifact, "text", key, step, text.encode("utf-8", "replace"))

    def log_image(self, key: str, data: bytes, *, step: int) -> None:
        """A picture, PNG or JPEG, of at most 1 MiB, kept in the job's folder under key."""
        if self.active:
            self._report("artifacts", self._files.artifact, "image", key, step, bytes(data))

    def config(self, values: Mapping[str, Any]) -> None:
        """What the program was given; the newest counts, of rank 0 alone."""
        told = _files.config_of(values)
        if self.rank == 0:
            self.event("config", config=told)

    def summary(self, **values: Any) -> None:
        """What the run came to; the newest counts."""
        self.event("summary", **values)

    def event(self, type: str, **data: Any) -> None:
        """Something that the job's history keeps; docs/programs.md has the types that mean more."""
        if self.active:
            line = _files.event_line(self.rank, type, data)
            self._report("events.jsonl", self._files.append, "events.jsonl", line)

    def checkpoint(self, path: Union[str, os.PathLike[str]], *, step: int, **more: Any) -> None:
        """A checkpoint is whole at path, of the state after step; more: bytes, seconds, metrics."""
        self.event("checkpoint", **more, path=os.fspath(path), step=_files.want_step(step))

    # --- signs of life ------------------------------------------------------------------------------------------------

    def step(self, n: int) -> None:
        """n steps are done. From the first call on the program is watched: it is ended and begins again where it
        stands still beyond its pace."""
        self._step = _files.want_step(n)
        self._at = time.monotonic()

    def section(self, name: str, timeout_s: float) -> _Section:
        """with run.section("eval", 600): what follows may take so long without a step. The innermost counts."""
        _files.want_section(name, timeout_s)
        return _Section(self, name, timeout_s)

    def _enter(self, section: _Section) -> None:
        with self._lock:
            if len(self._sections) >= SECTIONS:
                raise RuntimeError(f"{SECTIONS} sections are open")
            self._sections.append(section)
        self._at = time.monotonic()

    def _leave(self, section: _Section) -> None:
        with self._lock:
            if section in self._sections:
                self._sections.remove(section)
        self._at = time.monotonic()

    def _beat(self) -> None:
        if self._at == 0 or self._quiet:
            return
        with self._lock:
            inner = self._sections[-1] if self._sections else None
        self._files.beat(self._step, self._at, inner.name if inner else "", inner.timeout_s if inner else 0)
        if self._quiet:  # it has ended while this was written
            self._files.end_beat()

    # --- orders -------------------------------------------------------------------------------------------------------

    def order(self) -> Optional[Order]:
        """The newest order, at most 100 ms old. Of a program of several ranks each sees it by itself, and not at the
        same moment: let rank 0's count, by a broadcast."""
        return self._order

    def on_order(self, fn: Optional[Callable[[Order], object]]) -> None:
        """Call fn for each new order, on a thread of this package; None: no more. One that stands already counts. Let
        it set a flag: stopped() is for the program's own thread."""
        with self._lock:
            self._on_order, self._told = fn, 0

    def should_save(self) -> bool:
        """Whether the program is asked to save, or to save and stop, and has not said saved() since."""
        asked = self._wants()
        if asked is None or asked.order not in ("save", "stop", "scale") or asked.seq == self._saved:
            return False
        self._asked = asked
        return True

    def should_stop(self) -> bool:
        """Whether the program is to end: stopped() does. Where it has been given up there is nothing to be saved, and
        should_save() is false."""
        asked = self._wants()
        return asked is not None and asked.order in TO_END

    def _wants(self) -> Optional[Order]:
        """The order that stands; SIGTERM without one is an order to stop."""
        if not self._term:
            return self._order
        if self._order is None or self._order.order not in TO_END:
            self._read()  # it was published before the signal
        if self._order is not None and self._order.order in TO_END:
            return self._order
        return Order("stop", -1, None, "SIGTERM", None)

    def saved(self, step: int) -> None:
        """The state after step is saved: the answer to should_save()."""
        if self._asked is not None:
            self._answer(self._asked, _files.want_step(step))

    def _answer(self, order: Order, step: int) -> None:
        self._saved, self._asked = order.seq, None
        if order.seq > 0:
            self._report("", self._files.ack, order.seq, step,
                         "saved" if order.order == "save" else "stopping")

    def stopped(self, step: int) -> NoReturn:
        """Say that the program has stopped after step, and end it: by SystemExit with status 76, after which the job
        goes on later. Given up: 75, and 0 outside Muster."""
        step = _files.want_step(step)
        if not self.active:
            raise SystemExit(0)
        asked = self._wants()
        if asked is not None and asked.order == "abort":
            self._end()
            raise SystemExit(GAVE_UP)
        if asked is not None and asked.order in ("stop", "scale") and asked.seq != self._saved:
            self._answer(asked, step)
        self._end()
        self._report("", self._files.result, "stopped", step)
        raise SystemExit(STOPPED)

    def finish(self, **summary: Any) -> None:
        """The program has done its work; summary: what it came to, as summary() has it."""
        if not self.active:
            return
        if summary:
            self.summary(**summary)
        self._end()
        self._report("", self._files.result, "done", self._step)

    # --- the thread, and the end --------------------------------------------------------------------------------------

    def _read(self) -> None:
        found = self._files.order()
        if found is not None and (self._order is None or found.seq != self._order.seq):
            self._order = found

    def _look(self) -> None:
        self._read()
        with self._lock:
            fn, news = self._on_order, self._order
            if fn is None or news is None or news.seq == self._told:
                return
            self._told = news.seq
        try:
            fn(news)
        except Exception:  # of the program's own call: it is shown, and the thread lives on
            sys.excepthook(*sys.exc_info())

    def _watch(self) -> None:
        signals_.pthread_sigmask(signals_.SIG_BLOCK, signals_.valid_signals())  # they interrupt the program's threads
        looks = 0
        while not self._ending.is_set():
            self._look()
            if looks % LOOKS_A_BEAT == 0:
                self._flush()
                self._report("the sign of life", self._beat)
            looks += 1
            self._ending.wait(LOOK_S)

    def _on_term(self, number: int, frame: object) -> None:
        self._term = True

    def _report(self, what: str, fn: Callable[..., None], *args: Any) -> None:
        """Training goes on where nothing can be written; what says so once; "": each time."""
        try:
            fn(*args)
        except OSError as e:
            if what not in self._warned:
                self._warned.update(filter(None, [what]))
                with suppress(OSError, ValueError):  # stderr may be on the same disk
                    print(f"muster: {e}", file=sys.stderr, flush=True)

    def _end(self) -> None:
        """The program is watched no more."""
        self._quiet = True
        self._ending.set()
        self._flush()
        self._report("the sign of life", self._files.end_beat)
        if threading.current_thread() is not self._thread:
            self._thread.join(1)

    def _become_inert(self) -> None:
        """In a child of fork(): what the parent has is not here, and SIGTERM ends it as it would without us."""
        self.active = False
        self._lock = threading.RLock()
        self._line = self._order = self._asked = None
        if self._handles and signals_.getsignal(signals_.SIGTERM) == self._on_term:
            signals_.signal(signals_.SIGTERM, signals_.SIG_DFL)
        self._term = False
