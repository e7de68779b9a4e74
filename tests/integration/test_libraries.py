"""What the programs load: the engine's libraries belong to muster-train alone."""
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "bin")
ENGINE = ("libdnnl", "libucp", "libgomp")


def loaded(program):
    listed = subprocess.run(["ldd", os.path.join(BIN, program)], capture_output=True, text=True, check=True).stdout
    return {name for name in ENGINE if name in listed}


def test_a_rank_computes_and_talks_with_the_engines_libraries():
    assert loaded("muster-train") == set(ENGINE)


@pytest.mark.parametrize("program", ["muster-agent", "musterd", "muster"])
def test_no_other_program_loads_the_engine(program):
    assert loaded(program) == set()
