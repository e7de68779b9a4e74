"""Training on documents of any length: the same numbers in every layout and after every resume, the same gradients
under every policy."""
import json
import os
import random
import struct
import subprocess

import pytest

from tests import specs
from tests.integration import ranks

STEPS = 8
LENGTH = 300
# policies differ in the order of additions; worth about 1e-9 here
POLICY_RELATIVE = 1e-7
POLICIES = ["pad", "pack", "skrull", "sorted", "static", "pack-lpt", "round-robin", "dynamic"]


def write_jsonl(path, documents=120, seed=5):
    """Prompts with completions and plain texts, mostly short, some long."""
    rng = random.Random(seed)

    def words(n):
        return " ".join(rng.choice(specs.WORDS) for _ in range(n))

    with open(path, "w", encoding="ascii") as f:
        for i in range(documents):
            n = 50 if i % 9 == 0 else rng.randint(1, 8)
            one = {"text": words(n)} if i % 3 else {"prompt": words(n) + " ", "completion": words(3)}
            f.write(json.dumps(one) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_jsonl(str(tmp_path_factory.mktemp("corpus") / "documents.jsonl"))


def job(corpus, policy="sweep", **extra):
    spec = specs.train(corpus, steps=STEPS, every_steps=3, **extra)
    spec["train"]["model"].update(context=LENGTH, dropout=0.1)
    spec["train"]["data"].update(format="jsonl", samples="documents", holdout=0.1)
    del spec["train"]["data"]["separator"]
    spec["train"]["batch"] = {"sequences": 12, "length": LENGTH, "capacity": 2 * LENGTH}
    spec["train"]["eval"]["every_steps"] = 4
    spec["sequence"] = {"policy": policy}
    return spec


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    return ranks.train(job(corpus), str(tmp_path_factory.mktemp("alone")))


def numbers(run):
    """What must not depend on the layout."""
    return ([(m["step"], m["loss"], m["grad_norm"], m["tokens"], m["targets"], m["documents"], m["micro_batches"])
             for m in run.metrics()], [(e["step"], e["loss"], e["tokens"]) for e in run.events("eval")])


def test_a_step_says_how_its_documents_were_laid_out(alone):
    lines = alone.metrics()
    assert [m["step"] for m in lines] == list(range(STEPS))
    seen = 0
    for m in lines:
        assert m["documents"] == 12 and 12 <= m["targets"] < m["tokens"] - seen
        assert m["rank_tokens_min"] == m["rank_tokens_max"] == m["tokens"] - seen
        assert m["imbalance"] == 1 and m["padding_share"] == 0
        seen = m["tokens"]
    assert alone.events("eval")[-1]["loss"] < alone.events("eval")[0]["loss"] - 0.5


@pytest.mark.parametrize("layout", [{"dp": 2}, {"dp": 3}, {"pp": 2, "dp": 2}], ids=str)
def test_replicas_and_pipelines_give_the_same_bits(corpus, alone, layout, tmp_path):
    run = ranks.train(job(corpus), str(tmp_path), **layout)
    assert numbers(run) == numbers(alone)
    if layout == {"dp": 2}:
        for m in run.metrics():
            assert 1 <= m["imbalance"] < 1.6
            assert 0 < m["rank_tokens_min"] <= m["rank_tokens_max"]


@pytest.mark.parametrize("change", [
    {"parallel": {"schedule": "interleaved", "chunks": 2, "pp": 2, "virtual_workers": 4}},
    {"parallel": {"schedule": "zb-h1", "pp": 2, "virtual_workers": 4}},
], ids=["interleaved", "zb-h1"])
def test_other_pipelines_too(corpus, alone, change, tmp_path):
    spec = job(corpus)
    spec.update(change, devices={"min": 2, "max": 2})
    assert numbers(ranks.train(spec, str(tmp_path), pp=2)) == numbers(alone)


def test_tensor_parallel_with_shared_norms_stays_within_its_tolerance(corpus, alone, tmp_path):
    spec = job(corpus)
    spec["parallel"].update(tp=2, sequence_parallel=True)
    spec["devices"] = {"min": 2, "max": 2}
    run = ranks.train(spec, str(tmp_path), tp=2)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < 1e-4


@pytest.mark.parametrize("policy", POLICIES if os.environ.get("MUSTER_TEST_LONG") else POLICIES[:3])
def test_each_policy_gives_the_same_gradients(corpus, alone, policy, tmp_path):
    spec = job(corpus, policy)
    spec["train"]["steps"] = 3
    spec["train"]["optimizer"] = {"lr": 1e-3, "warmup": 3, "schedule": "constant"}
    plain = job(corpus)
    plain["train"]["steps"], plain["train"]["optimizer"] = 3, dict(spec["train"]["optimizer"])
    run, other = ranks.train(spec, str(tmp_path / "a"), dp=2), ranks.train(plain, str(tmp_path / "b"), dp=2)
    assert ranks.relative(ranks.losses(run), ranks.losses(other)) < POLICY_RELATIVE
    if policy == "pad":
        assert max(m["padding_share"] for m in run.metrics()) > 0.3


def test_a_job_goes_on_at_the_exact_document(corpus, alone, tmp_path):
    """Drained in the middle, then on other ranks."""
    with ranks.Run(str(tmp_path), job(corpus), dp=2, hold_at=3) as run:
        run.until(lambda: len(run.metrics()) == 3)
        for r in range(2):
            run.order(r, ranks.DRAIN)
        run.must(ranks.DRAINED)
    rest = ranks.train(job(corpus), str(tmp_path), generation=2, pp=2)
    assert numbers(rest)[0] == numbers(alone)[0]
    assert rest.events("eval")[-1]["loss"] == alone.events("eval")[-1]["loss"]


def test_the_plans_of_the_first_steps_can_be_printed(corpus, alone, tmp_path):
    """As they are then run."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(corpus)))
    out = subprocess.run([os.path.join(ranks.BUILD, "bin", "muster"), "plan", str(path), "--steps", "3"],
                         capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    plans = [json.loads(line) for line in out.stdout.splitlines()]
    lines = alone.metrics()
    assert [(p["micro_batches"], p["sequences"], p["targets"]) for p in plans] == [
        (m["micro_batches"], m["documents"], m["targets"]) for m in lines[:3]]
    assert [p["tokens"] for p in plans] == [b["tokens"] - a["tokens"]
                                            for a, b in zip([{"tokens": 0}] + lines, lines[:3])]
    assert all(p["policy"] == "sweep" and len(p["plan"]) == p["replicas"] == 4 for p in plans)
    stream = job(corpus)
    stream["train"]["data"]["samples"], stream["sequence"] = "stream", {}
    path.write_text(json.dumps(stream))
    out = subprocess.run([os.path.join(ranks.BUILD, "bin", "muster"), "plan", str(path), "--steps", "3"],
                         capture_output=True, text=True)
    assert out.returncode != 0 and "documents" in out.stderr and out.stdout == ""


def test_tokens_with_an_index_train_as_their_text_does(corpus, tmp_path):
    """The documents of a text, tokenised beforehand with the end mark that text gets."""
    texts = ["".join(random.Random(i).choice("abc \n") for _ in range(3 + 7 * i % 90)) for i in range(40)]
    ends, tokens = [], []
    for text in texts:
        tokens += list(text.encode()) + [0]
        ends.append(len(tokens))
    (tmp_path / "t.bin").write_bytes(struct.pack("<%dH" % len(tokens), *tokens))
    (tmp_path / "t.idx").write_bytes(struct.pack("<%dQ" % len(ends), *ends))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    spec = job(str(tmp_path / "t.jsonl"))
    spec["train"]["steps"] = 3
    spec["train"]["optimizer"] = {"lr": 1e-3, "warmup": 1}
    text = ranks.train(spec, str(tmp_path / "text"))
    spec["train"]["data"].update(format="tokens", path=str(tmp_path / "t.bin"), index=str(tmp_path / "t.idx"))
    assert numbers(ranks.train(spec, str(tmp_path / "tokens"))) == numbers(text)


@pytest.mark.parametrize("line, says", [
    ('{"text": "a" oops', "is not JSON"),
    ('{"text": ""}', "empty"),
    ('{"text": "%s"}' % ("x" * (LENGTH + 1)), "%d tokens, more than batch.length %d" % (LENGTH + 1, LENGTH)),
], ids=["broken", "empty", "long"])
def test_a_corpus_that_cannot_serve_is_named_by_its_line(tmp_path, line, says):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n%s\n' % line)
    with ranks.Run(str(tmp_path), job(str(path))) as run:
        assert run.wait() == [ranks.USER]
        assert says in run.log() and "line 3 of '%s'" % path in run.log()
        assert run.events("fault")[0]["class"] == "user"


def test_a_line_that_breaks_beyond_what_is_looked_at_first_ends_the_job_by_name(corpus, tmp_path):
    """Found when its step is prepared, long after the start: named all the same."""
    path = tmp_path / "late.jsonl"
    with open(path, "w") as f:
        for i in range(70):
            f.write(json.dumps({"text": "x", "note": "y" * (1 << 20)}) + "\n")
        f.write("{broken\n")
    spec = job(str(path))
    spec["train"]["data"].update(order="sequential", holdout=0)
    with ranks.Run(str(tmp_path), spec) as run:
        assert run.wait() == [ranks.USER]
        assert len(run.metrics()) == 5 and "line 71 of '%s' is not JSON" % path in run.log()


def in_chunks(corpus, keep, tokens=64, **parallel):
    spec = job(corpus, "chunk")
    spec["sequence"].update(chunk_tokens=tokens, keep_chunks=keep)
    spec["parallel"].update(parallel)
    spec["devices"] = {"min": 4, "max": 4}
    return spec


@pytest.fixture(scope="module")
def chunked(corpus, tmp_path_factory):
    return ranks.train(in_chunks(corpus, 1), str(tmp_path_factory.mktemp("chunked")))


def test_documents_in_chunks_train_like_whole_ones_in_less_memory(alone, chunked):
    assert ranks.relative(ranks.losses(chunked), ranks.losses(alone)) < POLICY_RELATIVE
    assert ranks.relative([m["grad_norm"] for m in chunked.metrics()],
                          [m["grad_norm"] for m in alone.metrics()]) < 1e-4
    assert ranks.relative([e["loss"] for e in chunked.events("eval")],
                          [e["loss"] for e in alone.events("eval")]) < POLICY_RELATIVE
    assert chunked.metrics()[0]["micro_batches"] > alone.metrics()[0]["micro_batches"]
    assert any(m["recomputed"] > 0 for m in chunked.metrics()) and alone.metrics()[0]["recomputed"] == 0
    assert chunked.metrics()[0]["activation_mib"] < 0.5 * alone.metrics()[0]["activation_mib"]


@pytest.mark.parametrize("keep,layout", [(3, {}), (1, {"dp": 2}), (2, {"pp": 2, "dp": 2})], ids=str)
def test_documents_in_chunks_give_the_same_bits_in_every_layout(corpus, chunked, keep, layout, tmp_path):
    run = ranks.train(in_chunks(corpus, keep, pp=layout.get("pp", 1)), str(tmp_path), **layout)
    assert numbers(run) == numbers(chunked)
