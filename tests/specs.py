"""Small jobs that tests share. Each is a fresh dict: change it as you like.

With MUSTER_TEST_TINY=1 their models are so small that a step takes a fraction of a millisecond (`make test-pace`).
"""
import os
import random

WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
         "which one you were all her she there would their we him been has when who will no more if out so said "
         "what").split()


def write_corpus(path, documents=400, seed=7):
    """English-looking documents separated by lines of '%', the same for the same seed."""
    rng = random.Random(seed)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(documents):
            f.write(" ".join(rng.choice(WORDS) for _ in range(rng.randint(8, 60))) + "\n%\n")
    return path


IS_TINY = bool(os.environ.get("MUSTER_TEST_TINY"))


def train(corpus, steps=30, tp=1, pp=1, devices=None, virtual_workers=4, every_steps=10, **extra):
    """A byte-level GPT so small that a step takes milliseconds."""
    replica = tp * pp
    spec = {
        "name": "small",
        "devices": {"min": devices or replica, "max": devices or replica},
        "train": {
            "model": {"family": "gpt2", "layers": 4, "hidden": 64, "heads": 4, "context": 32, "vocab": 256},
            "init": {"seed": 1234},
            "data": {"path": os.path.abspath(corpus), "format": "text", "separator": "percent", "tokenizer": "bytes",
                     "order": "shuffle", "holdout": 0.05},
            "batch": {"sequences": 8, "micro": 1},
            "steps": steps,
            "optimizer": {"lr": 1e-3, "warmup": 5},
            "eval": {"every_steps": 0, "sequences": 8},
        },
        "parallel": {"tp": tp, "pp": pp, "virtual_workers": virtual_workers},
        "checkpoint": {"every_steps": every_steps, "keep": 3},
        "retry": {"max": 5},
    }
    if IS_TINY:
        spec["train"]["model"].update(layers=max(2, pp), hidden=8, context=8)
    spec.update(extra)
    return spec


def command(script, devices=1, **extra):
    """A shell script as a job of `devices` ranks."""
    spec = {"name": "command", "devices": {"min": devices, "max": devices},
            "command": {"argv": ["/bin/sh", "-c", script], "grace_s": 2}}
    spec.update(extra)
    return spec
