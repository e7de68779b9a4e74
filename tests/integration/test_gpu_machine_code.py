"""The machine code of GPUs' kernels as the build has left it: no registers spilled, wide loads before stores, products
of tensor cores, registers within bounds (tests/gpu/sass.py). Wherever nvcc is."""
import os
import subprocess
import sys

import pytest

from tests.gpu import sass

BUILD = os.path.abspath(os.environ.get("MUSTER_BUILD", "build"))
LOAD, STORE = (0x981, 6 << 9), (0x986, 6 << 9)  # of 16 bytes
GELU = "for_units<map_two<bf16, gelu_back> >"


def test_kernels_of_this_build_are_what_they_were_made_to_be():
    ran = subprocess.run([sys.executable, sass.__file__, "--gate", f"{BUILD}/obj/cuda"], capture_output=True, text=True)
    if ran.returncode == 77:
        pytest.skip("no machine code here: built without nvcc")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("words, registers, shared, said", [
    ([LOAD] * 4 + [STORE], 40, 0, ""),
    ([LOAD, STORE] * 4, 40, 0, "1 loads of 16 bytes before a store instead of 4"),
    ([LOAD] * 4 + [STORE], 70, 0, "70 registers instead of at most 64"),
    ([LOAD] * 4 + [STORE, (0x387, 0)], 40, 0, "registers are spilled"),
    ([LOAD] * 4 + [STORE], 40, 65536, "65536 bytes of fixed shared memory"),
])
def test_a_kernel_that_is_not_what_it_was_made_to_be_is_named(words, registers, shared, said):
    wrong = list(sass.faults(GELU, words, registers, shared))
    assert len(wrong) == bool(said) and said in "".join(wrong), wrong
