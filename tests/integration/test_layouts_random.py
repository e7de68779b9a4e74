"""Random jobs in random layouts, and resumed in another: the numbers and the weights of one rank.

MUSTER_SEED repeats a run of draws, which print what they are; MUSTER_TEST_LONG makes many."""
import copy
import json
import os
import random
import shutil
import subprocess

import pytest

from tests import specs
from tests.integration import ranks
from tests.patience import PATIENCE_S

LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
SEED = int(os.environ.get("MUSTER_SEED") or random.SystemRandom().randrange(1 << 32))
DRAWS = 60 if LONG else 6
RANKS_MAX = 12 if LONG else 8
STEPS = 4
# additions along tp in another order: 1e-7 a step, and what four steps of training make of it
TP_RELATIVE = {"f32": 2e-5, "bf16": 2e-2}  # in bf16 a last bit decides which way a number is rounded


def draw_model(rng):
    family = rng.choice(["gpt2", "llama"])
    heads = rng.choice([4, 8])
    model = {"family": family, "layers": rng.randint(2, 7), "hidden": 64, "heads": heads, "ffn": rng.choice([64, 96]),
             "context": 32, "vocab": rng.choice([256, 300]), "tie_embeddings": rng.random() < 0.5,
             "dropout": rng.choice([0.0, 0.2])}
    if family == "llama":
        model.update(kv_heads=rng.choice([h for h in (1, 2, 4, 8) if h <= heads]), qkv_bias=rng.random() < 0.5)
    return model


def draw_job(rng, corpus):
    spec = specs.train(corpus, steps=STEPS, every_steps=STEPS // 2)
    spec["train"]["model"] = draw_model(rng)
    leaves, micros, micro = rng.randint(1, 6), rng.randint(1, 4), rng.randint(1, 3)
    spec["train"]["batch"] = {"sequences": leaves * micros * micro, "micro": micro, "length": rng.choice([8, 16, 32])}
    spec["train"]["precision"] = rng.choice(["f32", "bf16"])
    spec["train"]["optimizer"].update(warmup=1, clip=rng.choice([0.0, 0.5]))
    spec["parallel"] = {"virtual_workers": leaves}
    return spec


def composition(rng, total, parts):
    """`parts` numbers from 1 that add up to total."""
    cuts = sorted(rng.sample(range(1, total), parts - 1))
    return [b - a for a, b in zip([0] + cuts, cuts + [total])]


def draw_layout(rng, spec):
    """A layout, and the job's spec in it."""
    model, leaves = spec["train"]["model"], spec["parallel"]["virtual_workers"]
    while True:
        tp, pp, dp = rng.choice([1, 1, 2, 4]), rng.randint(1, min(4, model["layers"])), rng.randint(1, min(3, leaves))
        if 1 < tp * pp * dp <= RANKS_MAX:
            break
    parallel = {"virtual_workers": leaves, "tp": tp, "pp": pp, "zero": rng.choice([0, 1]),
                "sequence_parallel": rng.random() < 0.5}
    chunks = rng.randint(1, min(3, model["layers"] // pp)) if pp > 1 else 1
    parallel.update(chunks=chunks, schedule=rng.choice(["interleaved" if chunks > 1 else "1f1b", "zb-h1"]))
    if parallel["schedule"] != "zb-h1":
        parallel["recompute"] = rng.choice(["none", "selective", "full"])
    if rng.random() < 0.5:
        parallel["layers"] = composition(rng, model["layers"], pp * chunks)
    mine = copy.deepcopy(spec)
    mine["parallel"] = parallel
    mine["devices"] = {"min": tp * pp, "max": tp * pp * dp}
    world = tp * pp * dp
    return mine, {"tp": tp, "pp": pp, "dp": dp, "nodes": rng.choice([1, 2]) if world % 2 == 0 else 1}


def numbers(run):
    return ([(m["loss"], m["grad_norm"]) for m in run.metrics()], [e["loss"] for e in run.events("eval")][-1:])


def digest(run):
    muster = os.path.join(ranks.BUILD, "bin", "muster")
    out = subprocess.run([muster, "checkpoint", "digest", os.path.join(run.job, "checkpoints"), "-o", "json"],
                         capture_output=True, check=True, timeout=PATIENCE_S)
    return json.loads(out.stdout)


def compare(run, alone, exact, precision):
    near = TP_RELATIVE[precision]
    if exact:
        assert numbers(run) == numbers(alone)
        assert digest(run) == digest(alone)
        return
    for mine, theirs in zip(numbers(run)[0], numbers(alone)[0]):
        assert ranks.relative(list(mine), list(theirs)) < near
    assert ranks.relative(numbers(run)[1], numbers(alone)[1]) < near


@pytest.mark.parametrize("draw", range(DRAWS))
def test_any_layout_gives_what_one_rank_gives(draw, tmp_path):
    rng = random.Random("%d/%d" % (SEED, draw))
    spec = draw_job(rng, specs.write_corpus(str(tmp_path / "text"), documents=60))
    (first, where), (second, then) = draw_layout(rng, spec), draw_layout(rng, spec)
    print("MUSTER_SEED=%d draw %d: %s\n%s in %s\n%s in %s" % (
        SEED, draw, json.dumps(spec["train"]), json.dumps(first["parallel"]), where, json.dumps(second["parallel"]),
        then))
    alone = ranks.train(spec, str(tmp_path / "1"))
    run = ranks.train(first, str(tmp_path / "2"), **where)
    compare(run, alone, where["tp"] == 1, spec["train"]["precision"])
    shutil.rmtree(os.path.join(run.job, "checkpoints", "step-%08d" % STEPS))
    run = ranks.train(second, str(tmp_path / "2"), generation=2, **then)
    assert [e["step"] for e in run.events("resumed")] == [STEPS // 2]
    compare(run, alone, where["tp"] == then["tp"] == 1, spec["train"]["precision"])
