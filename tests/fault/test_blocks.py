"""A bit that flips between two nodes ends the step with group, peer and codec named, as a fault of the node."""
import os
import re
import shlex
import subprocess

import pytest

from tests import specs
from tests.integration import ranks

# layout, codecs, strict; what is said
CASES = [
    ({"tp": 2}, {"tp": "r8"}, "relaxed", r"rank 0 sent \d+ bytes in call \d+ \(all_reduce\) of 'tp', codec r8"),
    ({"pp": 2}, {"pp": "r4"}, "relaxed", r"rank 0 sent \d+ bytes in a message with tag \d+ in 'pp', codec r4"),
    ({"dp": 2}, {"dp": "sdp4bit"}, "strict", r"rank 0 sent \d+ bytes .* 'dp', codec sdp4bit"),
    ({"dp": 2}, {}, "relaxed", r"rank 0 sent \d+ bytes .* 'dp', codec none"),
]


@pytest.fixture(scope="module")
def breaker(tmp_path_factory):
    here = os.path.dirname(os.path.abspath(__file__))
    library = str(tmp_path_factory.mktemp("breaker") / "break_blocks.so")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", library,
                    os.path.join(here, "break_blocks.c"), "-ldl"], check=True)
    return library


class Breaks(ranks.Run):
    """A bit of what rank 0 sends flips, of which no piece that is not values has so many bytes."""

    def __init__(self, library, *args, **how):
        super().__init__(*args, **how)
        self.broken = {"LD_PRELOAD": library, "MUSTER_BREAK_LONG": "500", "MUSTER_BREAK_AFTER": "40"}

    def start(self):
        plain = self.env
        self.env = dict(plain, UCX_TLS="tcp")
        for r in range(self.world):
            env = dict(self.env, **self.broken) if r == 0 else self.env
            with open(self.log_path(r), "wb") as log:
                self.ranks.append(subprocess.Popen([ranks.TRAIN, "--run", self.folder, "--rank", str(r)], stdout=log,
                                                   stderr=log, stdin=subprocess.DEVNULL, env=env))
        return self


@pytest.mark.parametrize("layout,compress,exact,said", CASES)
def test_a_bit_that_flips_on_the_way_is_noticed(breaker, tmp_path, layout, compress, exact, said):
    spec = specs.train(specs.write_corpus(str(tmp_path / "corpus")), steps=2000, compress=compress)
    spec["parallel"]["exact"] = exact
    with Breaks(breaker, str(tmp_path), spec, nodes=2, **layout) as run:
        codes = run.wait()
    assert codes[1] == ranks.NODE, (codes, run.log(0)[-1000:], run.log(1)[-1000:])
    assert codes[0] in (ranks.ABORTED, ranks.NODE)  # what is broken on its way out may be the sender's own, too
    assert re.search(said, run.log(1)), run.log(1)[-1000:]
