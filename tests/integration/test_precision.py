"""bf16, and activations made again: the same bits in every layout as on one rank, and near those of f32."""
import copy
import functools
import os
import shutil
import tempfile

import pytest

from tests import specs
from tests.integration import hf, ranks
from tests.integration.test_layouts import interrupted, numbers

STEPS = 12
LLAMA = {"family": "llama", "layers": 4, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 96, "context": 32,
         "vocab": 300, "tie_embeddings": False, "qkv_bias": True}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "text"))


def job(corpus, family, precision="bf16", **parallel):
    spec = specs.train(corpus, steps=STEPS, every_steps=0)
    if family == "llama":
        spec["train"]["model"] = dict(LLAMA)
    spec["train"]["model"]["dropout"] = 0.1
    spec["train"]["precision"] = precision
    spec["train"]["eval"]["every_steps"] = 6
    spec["devices"] = {"min": 4, "max": 8}
    spec["parallel"].update(parallel)
    return spec


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    """The run of a family and precision on one rank with nothing made again, made once."""
    @functools.lru_cache(maxsize=None)
    def run(family, precision):
        return ranks.train(job(corpus, family, precision), str(tmp_path_factory.mktemp(family + precision)))
    return run


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_bf16_learns_as_f32_does(alone, family):
    narrow, wide = ranks.losses(alone(family, "bf16")), ranks.losses(alone(family, "f32"))
    assert 0 < ranks.relative(narrow, wide) < 1e-3
    assert narrow[-1] < narrow[0] - 0.5


@pytest.mark.parametrize("family,parallel,layout", [
    ("gpt2", {}, {}), ("gpt2", {}, {"dp": 3}), ("gpt2", {"schedule": "zb-h1"}, {"pp": 2}), ("llama", {}, {"dp": 2}),
    ("llama", {"schedule": "interleaved", "chunks": 2}, {"pp": 2, "dp": 2})],
    ids=["again", "dp3", "zb-pp2", "llama-dp2", "llama-interleaved-pp2-dp2"])
def test_bf16_has_the_same_bits_in_every_layout(corpus, alone, family, parallel, layout, tmp_path):
    spec = job(corpus, family, pp=layout.get("pp", 1), **parallel)
    assert numbers(ranks.train(spec, str(tmp_path), **layout)) == numbers(alone(family, "bf16"))


@pytest.mark.parametrize("family,layout,by_tokens", [("gpt2", {"tp": 2, "pp": 2}, True), ("llama", {"tp": 4}, False)],
                         ids=["gpt2-tp2-pp2-by-tokens", "llama-tp4"])
def test_bf16_stays_near_in_tensor_parallel(corpus, alone, family, layout, by_tokens, tmp_path):
    run = ranks.train(job(corpus, family, sequence_parallel=by_tokens, **layout), str(tmp_path), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone(family, "bf16"))) < 1e-3


@pytest.mark.parametrize("family,precision,recompute,parallel,layout", [
    ("gpt2", "f32", "selective", {}, {}), ("gpt2", "f32", "full", {}, {"pp": 2, "dp": 2}),
    ("gpt2", "bf16", "full", {"schedule": "interleaved", "chunks": 2}, {"pp": 2}),
    ("llama", "f32", "full", {}, {}), ("llama", "bf16", "selective", {}, {"dp": 2})],
    ids=lambda v: v if isinstance(v, str) else "-".join("%s%s" % x for x in v.items()) or "alone")
def test_what_is_made_again_changes_no_bit(corpus, alone, family, precision, recompute, parallel, layout, tmp_path):
    spec = job(corpus, family, precision, recompute=recompute, pp=layout.get("pp", 1), **parallel)
    assert numbers(ranks.train(spec, str(tmp_path), **layout)) == numbers(alone(family, precision))


def budgeted(corpus, policy, mib, pp=2):
    """A job whose activations take some MiB; 72 micro-batches of one size, of which Mimose learns from 64."""
    spec = job(corpus, "gpt2", "f32", pp=pp)
    spec["train"]["model"]["context"] = 128
    spec["train"].update(steps=9, batch={"sequences": 16, "micro": 2, "length": 128})
    spec["train"]["eval"]["every_steps"] = 0
    spec["memory"] = {"policy": policy, "activation_budget_mib": mib}
    return spec


def test_activations_keep_their_budget_and_change_no_bit(corpus, tmp_path):
    whole = ranks.train(budgeted(corpus, "none", 0), str(tmp_path / "none"), pp=2)
    most = max(m["activation_mib"] for m in whole.metrics())
    for policy, mib in (("sqrt", 0), ("mimose", int(0.9 * most))):
        run = ranks.train(budgeted(corpus, policy, mib), str(tmp_path / policy), pp=2)
        assert numbers(run) == numbers(whole)
        lines = run.metrics()
        if policy == "mimose":
            assert all(m["activation_mib"] <= mib for m in lines)
            # once it knows their sizes, making norms and activations again is enough
            assert lines[0]["recomputed"] == 1 and lines[-1]["recomputed"] == 0
        else:
            assert all(m["recomputed"] == 0 for m in lines)  # two blocks are one run, which is the last


def test_a_budget_that_cannot_be_kept_is_refused(corpus, tmp_path):
    for policy, words in (("none", "memory.policy 'mimose'"), ("mimose", "even when no block keeps any")):
        with ranks.Run(str(tmp_path / policy), budgeted(corpus, policy, 1, pp=1)) as run:
            assert run.wait() == [ranks.USER]
        assert "activation_budget_mib 1 is too small" in run.events("fault")[0]["message"]
        assert words in run.events("fault")[0]["message"]


@pytest.mark.parametrize("recompute,by_tokens", [("full", False), ("selective", True)])
def test_what_is_made_again_changes_no_bit_in_tensor_parallel(corpus, recompute, by_tokens, tmp_path):
    runs = [ranks.train(job(corpus, "gpt2", "bf16", recompute=r, sequence_parallel=by_tokens, tp=2),
                        str(tmp_path / r), tp=2) for r in ("none", recompute)]
    assert numbers(runs[0]) == numbers(runs[1])


def test_bf16_resumes_from_its_f32_weights(corpus, tmp_path):
    spec = job(corpus, "gpt2")
    spec["checkpoint"]["every_steps"] = 6
    whole = ranks.train(spec, str(tmp_path / "whole"))
    again = ranks.train(spec, interrupted(whole, str(tmp_path / "part"), 6), generation=2, pp=2)
    assert [e["step"] for e in again.events("resumed")] == [6]
    assert numbers(again)[0] == numbers(whole)[0]
    # what is exported is the f32 master, whose lower halves are not zero, and it starts a run in either precision
    weights = hf.read_folder(hf.export(whole, str(tmp_path / "out")))
    master = weights["h.0.attn.c_attn.weight"]
    assert (master != hf.from_bf16(hf.to_bf16(master))).any()
    for precision in ("bf16", "f32"):
        spec = job(corpus, "gpt2", precision)
        spec["train"]["init"]["from"] = str(tmp_path / "out")
        spec["train"]["steps"] = 5
        run = ranks.train(spec, str(tmp_path / precision))
        assert ranks.relative([run.events("eval")[0]["loss"]], [whole.events("eval")[-1]["loss"]]) < 1e-3


def test_a_job_that_does_not_fit_is_told_to_make_activations_again(corpus, tmp_path):
    spec = copy.deepcopy(job(corpus, "gpt2"))
    spec["train"]["model"]["layers"] = 1024
    spec["train"]["batch"].update(sequences=4096, micro=1024)
    with ranks.Run(str(tmp_path), spec) as run:
        assert run.wait() == [ranks.USER]
    words = run.events("fault")[0]["message"]
    assert "GiB too little memory" in words and "parallel.recompute 'full'" in words


def test_the_rank_says_its_precision_and_what_it_plans(alone):
    logs = {p: alone("gpt2", p).log() for p in ("f32", "bf16")}

    def mib(precision, what):
        return float(logs[precision].split(what + " ")[1].split()[0].rstrip(","))
    # an owner's masters are the optimizer's; what has one dimension, here a third of these few, is held in f32, too
    assert mib("bf16", "weights") < 0.8 * mib("f32", "weights")
    assert mib("bf16", "optimizer") == pytest.approx(1.5 * mib("f32", "optimizer"), abs=0.11)
    assert mib("bf16", "activations") < 0.75 * mib("f32", "activations")
    assert os.path.exists(alone("gpt2", "bf16").job)


def test_replicas_hold_bf16_alone_and_go_on_from_what_held_f32_and_back(corpus, alone, tmp_path):
    """With zero 0 every replica holds all weights in f32, as all did before there were owners' masters."""
    narrow, wide = job(corpus, "gpt2"), job(corpus, "gpt2", zero=0)
    for spec in narrow, wide:
        spec["checkpoint"]["every_steps"] = 4
    first = ranks.train(narrow, str(tmp_path / "first"), dp=2)
    assert numbers(first) == numbers(alone("gpt2", "bf16"))
    second = ranks.train(wide, interrupted(first, str(tmp_path / "second"), 4), generation=2, dp=3)
    shutil.rmtree(os.path.join(second.job, "checkpoints", "step-%08d" % STEPS))
    third = ranks.train(narrow, str(tmp_path / "second"), generation=3, dp=2)
    assert [run.events("resumed")[-1]["step"] for run in (second, third)] == [4, 8]
    assert ranks.losses(second)[:8] == ranks.losses(first)[:8]
    assert ranks.losses(third) == ranks.losses(first) and ranks.digest(third) == ranks.digest(first)
    for spec in narrow, wide:
        spec["train"]["init"] = {"from": os.path.join(first.job, "checkpoints") + ":4"}
    began = [ranks.train(spec, str(tmp_path / f"from{i}"), dp=2) for i, spec in enumerate((narrow, wide))]
    assert ranks.losses(began[0]) == ranks.losses(began[1]) != ranks.losses(first)


def test_bf16_is_handed_over_and_left_in_memory(corpus, alone, tmp_path):
    spec = job(corpus, "gpt2")
    spec["checkpoint"]["memory_every_steps"] = 100
    resumed = []
    with tempfile.TemporaryDirectory(prefix="muster-test-", dir="/dev/shm") as memory:
        for generation, dp, order in (1, 2, ranks.HAND_OVER), (2, 3, ranks.HAND_OVER), (3, 1, ranks.MOVE):
            with ranks.Run(str(tmp_path), spec, dp=dp, generation=generation, memory=memory,
                           hold_at=3 * generation) as run:
                run.until(lambda: f"held before step {3 * generation}" in run.log())
                for rank in range(dp):
                    run.order(rank, order)
                run.must(ranks.DRAINED)
            resumed += run.events("resumed")
        run = ranks.train(spec, str(tmp_path), generation=4, dp=2, memory=memory)
    assert [(e["step"], e["source"] == "kept") for e in resumed + run.events("resumed")] == [
        (3, True), (6, True), (9, False)]
    assert ranks.losses(run) == ranks.losses(alone("gpt2", "bf16"))


@pytest.mark.parametrize("precision,recompute,length", [("f32", "none", 256), ("bf16", "full", 128)])
def test_a_rank_takes_the_memory_it_plans(corpus, precision, recompute, length, tmp_path):
    spec = job(corpus, "gpt2", precision, recompute=recompute, virtual_workers=1)
    spec["train"]["model"].update(layers=6, hidden=384, heads=6, ffn=1536, context=256)
    spec["train"].update(steps=2, batch={"sequences": 2, "micro": 2, "length": length})
    spec["train"]["optimizer"]["warmup"] = 1
    with ranks.Run(str(tmp_path), spec) as run:
        _, status, usage = os.wait4(run.ranks[0].pid, 0)
        run.ranks[0].returncode = os.waitstatus_to_exitcode(status)
        assert run.wait() == [ranks.DONE], run.log()
    planned = float(run.log().split(", all ")[1].split()[0])
    assert usage.ru_maxrss / 1024 == pytest.approx(planned, rel=0.15)
