"""A coded block that breaks on its way ends the step with group, peer and codec named, as a fault of the node."""
import os
import re
import shlex
import struct
import subprocess

import pytest

from tests import specs
from tests.integration import ranks

VERSION = 1
# layout, codecs, strict; id of the codec whose block breaks, values in it; what is said
CASES = [
    ({"tp": 2}, {"tp": "r8"}, "relaxed", 1, 1024, "rank 0 .*'tp'.*r8"),
    ({"dp": 2}, {"dp": "sdp4bit"}, "strict", 7, 2048, "virtual worker .* member 0 of group 'dp'.*hs4"),
    ({"dp": 2}, {"dp": "sdp4bit"}, "strict", 9, 2048, "weights from member 0 of group 'dp'.*qwd4"),
]


@pytest.fixture(scope="module")
def breaker(tmp_path_factory):
    here = os.path.dirname(os.path.abspath(__file__))
    library = str(tmp_path_factory.mktemp("breaker") / "break_blocks.so")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", library,
                    os.path.join(here, "break_blocks.c"), "-ldl"], check=True)
    return library


class Breaks(ranks.Run):
    """Blocks that rank 0 sends break."""

    def __init__(self, library, codec, count, *args, **how):
        super().__init__(*args, **how)
        trailer = struct.pack("<BBHQ", codec, VERSION, 0, count)
        self.broken = {"LD_PRELOAD": library, "MUSTER_BREAK": trailer.hex(), "MUSTER_BREAK_AFTER": "40"}

    def start(self):
        plain = self.env
        self.env = dict(plain, UCX_TLS="tcp")
        for r in range(self.world):
            env = dict(self.env, **self.broken) if r == 0 else self.env
            with open(self.log_path(r), "wb") as log:
                self.ranks.append(subprocess.Popen([ranks.TRAIN, "--run", self.folder, "--rank", str(r)], stdout=log,
                                                   stderr=log, stdin=subprocess.DEVNULL, env=env))
        return self


@pytest.mark.parametrize("layout,compress,exact,codec,count,said", CASES)
def test_a_broken_block_is_refused_by_name(breaker, tmp_path, layout, compress, exact, codec, count, said):
    spec = specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=2000, compress=compress)
    spec["parallel"]["exact"] = exact
    with Breaks(breaker, codec, count, str(tmp_path), spec, nodes=2, **layout) as run:
        codes = run.wait()
    assert codes[1] == ranks.NODE, (codes, run.log(0)[-1000:], run.log(1)[-1000:])
    assert codes[0] in (ranks.ABORTED, ranks.NODE)  # what is broken on its way out may be the sender's own, too
    assert re.search(said, run.log(1)), run.log(1)[-1000:]
