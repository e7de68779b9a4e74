"""Each tool of `make lint` that is not ours fails on a planted fault, and not on its lawful twin."""
import os
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLANTED = {  # target: its variable, the file, a fault, its lawful twin, what is said of the fault
    "format": ("C_FILES", "x.c", "int  x;\n", "int x;\n", "clang-format"),
    "cppcheck": ("C_FILES", "x.c", "int f(void)\n{\n    int a[2] = {0};\n\n    return a[2];\n}\n",
                 "int f(void)\n{\n    int a[2] = {0};\n\n    return a[1];\n}\n", "out of bounds"),
    "types": ("TYPED", "x.py", "def f(x: int) -> str:\n    return x\n", "def f(x: int) -> int:\n    return x\n",
              "Incompatible return value"),
    "spelling": ("SPELLED", "x.md", "We rec" + "ieve it.\n", "We receive it.\n", "==> receive"),
    "shell": ("SH_FILES", "x.sh", "#!/bin/sh\nrm $1\n", "#!/bin/sh\nrm \"$1\"\n", "SC2086"),
}


def linted(folder, which):
    """What `make` says of all the files together: it is started once, since that is what costs."""
    files = {}
    shutil.copy(f"{ROOT}/.clang-format", folder)
    for target, (variable, name, *texts, _) in PLANTED.items():
        (folder / target).mkdir()
        (folder / target / name).write_text(texts[which])
        files.setdefault(variable, []).append(str(folder / target / name))
    done = subprocess.run(["make", "--no-print-directory", "-k", *(f"lint-{target}" for target in PLANTED),
                           *(f"{variable}={' '.join(paths)}" for variable, paths in files.items())],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def of_faults(tmp_path_factory):
    return linted(tmp_path_factory.mktemp("faults"), 0)


@pytest.mark.parametrize("target", PLANTED)
def test_a_planted_fault_fails(of_faults, target):
    status, said = of_faults
    assert status == 2 and f": lint-{target}] Error" in said and PLANTED[target][-1] in said, said


def test_their_lawful_twins_do_not(tmp_path):
    status, said = linted(tmp_path, 1)
    assert status == 0, said
