"""PyTorch with fast f32 products, for benchmarks beside it.

Debian's PyTorch multiplies by whatever libblas.so.3 is. The reference BLAS is some thirty times slower than OpenBLAS:
beside it all that Muster adds to a step would look small."""
import glob
import os
import re
import subprocess
import sys


def fast_blas():
    """What to preload so that PyTorch's products are OpenBLAS's; "" when they are already; None: there is none."""
    out = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(r"libblas\.so\.3 .*=> (\S+)", out)
    if found and re.search("openblas|blis|mkl|atlas", os.path.realpath(found.group(1))):
        return ""
    other = sorted(glob.glob(os.environ.get("MUSTER_BENCH_BLAS", "/usr/lib/*/openblas*/libblas.so.3")))
    return other[0] if other else None


def with_fast_blas():
    """This program again with that preloaded and one thread a process, or its end where there is none. Comes first:
    PyTorch is not loaded yet."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return
    blas = fast_blas()
    if blas is None:
        sys.exit(f"{os.path.basename(sys.argv[0])}: PyTorch would multiply by the reference BLAS, and nothing could be "
                 "said of its steps: install libopenblas0-pthread, or name a fast libblas.so.3 in MUSTER_BENCH_BLAS")
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", LD_PRELOAD=blas)
    os.execve(sys.executable, [sys.executable, *sys.argv], env)
