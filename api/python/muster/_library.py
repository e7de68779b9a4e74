"""Where Muster's libraries for programs may lie."""
from __future__ import annotations

import os
from pathlib import Path
from typing import List


def places(name: str) -> List[str]:
    """MUSTER_LIB alone where it is set, as it is for programs under Muster. Else, so that a notebook can open what a
    job has written: beside an installed package, in the build folder of a source tree, and where packages install."""
    told = os.environ.get("MUSTER_LIB")
    here = Path(__file__).resolve().parent.parent.parent  # of python/muster: lib/muster, or a tree's api
    folders = [told] if told else [str(here), str(here.parent / "build/lib/muster"), "/usr/local/lib/muster",
                                   "/usr/lib/muster"]
    return [os.path.join(folder, name) for folder in folders]
