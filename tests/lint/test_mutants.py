"""What `make sim-mutants` plants still has its place: the code has not moved away from under a mutant unnoticed."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "sim"))
import mutants


def test_the_text_that_each_mutant_replaces_stands_in_its_file_once():
    gone = []
    for name, path, old, new in mutants.MUTANTS:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            if f.read().count(old) != 1 or old == new:
                gone.append(f"{name}: {path}")
    assert not gone, gone
    assert len({name for name, *_ in mutants.MUTANTS}) == len(mutants.MUTANTS) >= 10
