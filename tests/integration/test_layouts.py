"""One job in every layout of ranks: the same numbers, also across a resume and with dropout on."""
import copy
import json
import os
import shutil
import struct
import subprocess

import pytest

from tests import specs
from tests.integration import ranks
from tests.patience import PATIENCE_S

# what differs in the order of additions along tp is worth about 1e-8 here; the promise is 1e-4 over 30 steps
TP_RELATIVE = 1e-4
BIT_FOR_BIT = [{"dp": 2}, {"dp": 3}, {"dp": 4}, {"pp": 2}, {"pp": 4}, {"pp": 2, "dp": 3}]
WITHIN = [{"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}, {"tp": 2, "pp": 2, "dp": 2}]


def name(layout):
    return "-".join("%s%d" % (k, v) for k, v in layout.items())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "text"))


@pytest.fixture(scope="module")
def job(corpus):
    spec = specs.train(corpus, steps=30, every_steps=10)
    spec["train"]["model"]["dropout"] = 0.1
    spec["train"]["eval"]["every_steps"] = 10
    return spec


@pytest.fixture(scope="module")
def alone(job, tmp_path_factory):
    return ranks.train(job, str(tmp_path_factory.mktemp("alone")))


def numbers(run):
    """Everything in a run's files that must not depend on the layout."""
    return ([(m["step"], m["loss"], m["grad_norm"], m["lr"], m["tokens"]) for m in run.metrics()],
            [(e["step"], e["loss"], e["tokens"], e["unigram"]) for e in run.events("eval")])


def test_a_run_leaves_metrics_events_and_checkpoints(alone):
    lines = alone.metrics()
    assert [m["step"] for m in lines] == list(range(30))
    assert [m["tokens"] for m in lines] == [(s + 1) * 8 * 32 for s in range(30)]
    assert set(lines[0]) == {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "step_ms", "mfu", "bytes_tp",
                             "bytes_pp", "bytes_dp", "stall_ms", "activation_mib", "recomputed", "leaf_ms", "t",
                             "generation", "ranks"}
    assert [e["step"] for e in alone.events("eval")] == [0, 10, 20, 30]
    assert sorted(e["step"] for e in alone.events("checkpoint")) == [10, 20, 30] == alone.checkpoints()
    assert not any("error" in e for e in alone.events("checkpoint"))
    assert [e["step"] for e in alone.events("finished")] == [30]
    assert alone.events("eval")[-1]["loss"] < alone.events("eval")[0]["loss"] - 1
    assert alone.lines(os.path.join(alone.folder, "metrics.jsonl")) == lines


@pytest.mark.parametrize("layout", BIT_FOR_BIT, ids=name)
def test_data_and_pipeline_parallel_give_the_same_bits(job, alone, layout, tmp_path):
    run = ranks.train(job, str(tmp_path), **layout)
    assert numbers(run) == numbers(alone)
    assert all(m["ranks"] == run.world for m in run.metrics())
    last = run.metrics()[-1]
    assert (last["bytes_dp"] > 0) == ("dp" in layout) and (last["bytes_pp"] > 0) == ("pp" in layout)


@pytest.mark.parametrize("layout", WITHIN, ids=name)
def test_tensor_parallel_stays_within_its_tolerance(job, alone, layout, tmp_path):
    run = ranks.train(job, str(tmp_path), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < TP_RELATIVE
    assert ranks.relative([e["loss"] for e in run.events("eval")],
                          [e["loss"] for e in alone.events("eval")]) < TP_RELATIVE
    assert run.metrics()[-1]["bytes_tp"] > 0


@pytest.mark.parametrize("layout", [{"tp": 4}, {"tp": 2, "pp": 2, "dp": 2}], ids=name)
def test_sequence_parallel_stays_within_the_tolerance_too(job, alone, layout, tmp_path):
    spec = pipeline(job, layout.get("pp", 1), tp=layout["tp"], sequence_parallel=True)
    run = ranks.train(spec, str(tmp_path), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < TP_RELATIVE
    assert ranks.relative([m["grad_norm"] for m in run.metrics()],
                          [m["grad_norm"] for m in alone.metrics()]) < TP_RELATIVE
    assert ranks.relative([e["loss"] for e in run.events("eval")],
                          [e["loss"] for e in alone.events("eval")]) < TP_RELATIVE


def test_replicated_optimizer_state_gives_the_bits_of_the_sharded(job, alone, tmp_path):
    spec = copy.deepcopy(job)
    spec["parallel"]["zero"] = 0
    assert numbers(ranks.train(spec, str(tmp_path), dp=3)) == numbers(alone)


def test_virtual_workers_that_are_no_power_of_two(job, tmp_path):
    spec = copy.deepcopy(job)
    spec["train"]["batch"]["sequences"] = 10
    spec["parallel"]["virtual_workers"] = 5
    alone = ranks.train(spec, str(tmp_path / "1"))
    for dp in (2, 3, 5):
        assert numbers(ranks.train(spec, str(tmp_path / str(dp)), dp=dp)) == numbers(alone)


def test_an_untied_head_and_a_padded_vocabulary(job, tmp_path):
    spec = copy.deepcopy(job)
    spec["train"]["model"].update(tie_embeddings=False, vocab=300)
    spec["train"]["steps"] = 12
    alone = ranks.train(spec, str(tmp_path / "1"))
    assert numbers(ranks.train(spec, str(tmp_path / "2"), pp=2, dp=2)) == numbers(alone)
    assert ranks.relative(ranks.losses(ranks.train(spec, str(tmp_path / "3"), tp=4)), ranks.losses(alone)) < TP_RELATIVE


def pipeline(job, pp, chunks=1, **parallel):
    """The job with its layers in chunks."""
    spec = copy.deepcopy(job)
    spec["parallel"].update(parallel, pp=pp, chunks=chunks)
    spec["devices"] = {"min": spec["parallel"]["tp"] * pp, "max": 64}
    return spec


def test_uneven_stages_give_the_same_bits(job, alone, tmp_path):
    run = ranks.train(pipeline(job, 3, layers=[1, 2, 1]), str(tmp_path), pp=3)
    assert "2 layers from 1 on" in run.log(1)
    assert numbers(run) == numbers(alone)


@pytest.mark.parametrize("schedule,pp,chunks,dp", [("interleaved", 2, 2, 3), ("zb-h1", 4, 1, 1), ("zb-h1", 2, 2, 2)])
def test_every_schedule_gives_the_same_bits(job, alone, schedule, pp, chunks, dp, tmp_path):
    run = ranks.train(pipeline(job, pp, chunks=chunks, schedule=schedule), str(tmp_path), pp=pp, dp=dp)
    assert numbers(run) == numbers(alone)


def test_two_nodes_without_shared_memory_give_the_same_bits(job, alone, tmp_path):
    assert numbers(ranks.train(job, str(tmp_path), dp=2, pp=2, nodes=2)) == numbers(alone)


# --- another family --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def llama_job(job):
    spec = copy.deepcopy(job)
    spec["train"]["model"] = {"family": "llama", "layers": 4, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 96,
                              "context": 32, "vocab": 300, "tie_embeddings": True, "qkv_bias": True, "dropout": 0.1}
    return spec


@pytest.fixture(scope="module")
def llama_alone(llama_job, tmp_path_factory):
    return ranks.train(llama_job, str(tmp_path_factory.mktemp("llama")))


@pytest.mark.parametrize("layout", [{"dp": 2}, {"pp": 2}, {"pp": 4}, {"pp": 2, "dp": 3}], ids=name)
def test_a_llama_has_the_same_bits_in_data_and_pipeline_parallel(llama_job, llama_alone, layout, tmp_path):
    assert numbers(ranks.train(llama_job, str(tmp_path), **layout)) == numbers(llama_alone)


@pytest.mark.parametrize("kind", [{}, {"qkv_bias": False, "qk_norm": True, "window": 9}], ids=["qwen2", "qwen3"])
@pytest.mark.parametrize("layout", [{"tp": 4}, {"tp": 2, "dp": 2}], ids=name)
def test_ranks_share_heads_of_keys_and_values(llama_job, kind, layout, tmp_path):
    spec = copy.deepcopy(llama_job)
    spec["train"]["steps"] = 12
    spec["train"]["model"].update(kind, kv_heads=1)
    alone = ranks.train(spec, str(tmp_path / "1"))
    spec = pipeline(spec, 1, tp=layout["tp"], sequence_parallel="dp" in layout)
    run = ranks.train(spec, str(tmp_path / "2"), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < TP_RELATIVE
    assert ranks.relative([m["grad_norm"] for m in run.metrics()],
                          [m["grad_norm"] for m in alone.metrics()]) < TP_RELATIVE
    shutil.rmtree(os.path.join(run.job, "checkpoints", "step-00000012"))
    back = ranks.train(spec, str(tmp_path / "2"), generation=2, **layout)  # from what the copies' owners wrote
    assert ranks.losses(back) == ranks.losses(run)


@pytest.mark.parametrize("layout", [{"pp": 2, "dp": 2}, {"pp": 2, "tp": 2}], ids=name)
def test_norms_of_heads_and_fused_tensors_without_bubbles(llama_job, layout, tmp_path):
    spec = copy.deepcopy(llama_job)
    spec["train"]["steps"] = 12
    kinds = {"normed": {"qk_norm": True, "head_dim": 12}, "fused": {"fused": True, "kv_heads": 8, "window": 7}}
    for kind, fields in kinds.items():
        spec["train"]["model"].update({"qkv_bias": False, "qk_norm": False, "fused": False}, **fields)
        alone = ranks.train(spec, str(tmp_path / kind / "1"))
        other = pipeline(spec, 2, chunks=2, schedule="zb-h1", tp=layout.get("tp", 1))
        run = ranks.train(other, str(tmp_path / kind / "2"), **layout)
        if "tp" not in layout:
            assert numbers(run) == numbers(alone)
        assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < TP_RELATIVE


def test_a_llama_without_bubbles_and_with_its_norms_cut_by_tokens(llama_job, llama_alone, tmp_path):
    spec = pipeline(llama_job, 2, chunks=2, schedule="zb-h1", tp=2, sequence_parallel=True)
    run = ranks.train(spec, str(tmp_path), pp=2, tp=2)
    assert ranks.relative(ranks.losses(run), ranks.losses(llama_alone)) < TP_RELATIVE


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2, "dp": 2}], ids=name)
def test_a_llama_stays_within_its_tolerance_in_tensor_parallel(llama_job, llama_alone, layout, tmp_path):
    run = ranks.train(llama_job, str(tmp_path), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(llama_alone)) < TP_RELATIVE
    assert run.metrics()[-1]["bytes_tp"] > 0


def test_a_llama_has_the_same_bits_without_bubbles(llama_job, llama_alone, tmp_path):
    run = ranks.train(pipeline(llama_job, 2, chunks=2, schedule="zb-h1"), str(tmp_path), pp=2)
    assert numbers(run) == numbers(llama_alone)


def test_a_llama_resumes_in_another_layout_and_writes_text(llama_job, llama_alone, tmp_path):
    run = ranks.train(llama_job, interrupted(llama_alone, str(tmp_path), 10), generation=2, pp=2, dp=2)
    assert [m[:3] for m in numbers(run)[0]] == [m[:3] for m in numbers(llama_alone)[0]]
    text = muster_train("--sample", "--checkpoint", os.path.join(run.job, "checkpoints"), "--prompt", "the ",
                        "--tokens", "40", "--top-p", "0.9")
    assert text.returncode == 0 and text.stdout


def test_an_untied_llama_has_the_same_bits_too(llama_job, tmp_path):
    spec = copy.deepcopy(llama_job)
    spec["train"]["model"].update(tie_embeddings=False, qkv_bias=False, kv_heads=2, rope_scaling="linear",
                                  rope_factor=2)
    spec["train"]["steps"] = 12
    alone = ranks.train(spec, str(tmp_path / "1"))
    assert numbers(ranks.train(spec, str(tmp_path / "2"), pp=2, dp=2)) == numbers(alone)
    assert ranks.relative(ranks.losses(ranks.train(spec, str(tmp_path / "3"), tp=2)), ranks.losses(alone)) < TP_RELATIVE


# --- resuming ------------------------------------------------------------------------------------------

def interrupted(alone, folder, step):
    """The job's folder as it was after `step`, with the metrics of all steps still in it."""
    job = os.path.join(folder, "job")
    shutil.copytree(alone.job, job)
    for s in alone.checkpoints():
        if s > step:
            shutil.rmtree(os.path.join(job, "checkpoints", "step-%08d" % s))
    return folder


@pytest.mark.parametrize("layout", [{}, {"dp": 2}, {"pp": 2}, {"dp": 3}], ids=lambda x: name(x) or "alone")
def test_a_resumed_run_goes_on_with_the_same_bits(job, alone, layout, tmp_path):
    run = ranks.train(job, interrupted(alone, str(tmp_path), 10), generation=2, **layout)
    assert [e["step"] for e in run.events("resumed")] == [10]
    assert [m[:3] for m in numbers(run)[0]] == [m[:3] for m in numbers(alone)[0]]
    assert [m["generation"] for m in run.metrics()] == [1] * 10 + [2] * 20
    assert len(run.lines(os.path.join(run.folder, "metrics.jsonl"))) == 20


def test_a_run_resumes_with_its_layers_in_chunks_and_back(job, alone, tmp_path):
    spec = pipeline(job, 2, chunks=2, schedule="interleaved")
    folder = interrupted(alone, str(tmp_path), 10)
    chunked = ranks.train(spec, folder, generation=2, pp=2, dp=2)
    assert [m[:3] for m in numbers(chunked)[0]] == [m[:3] for m in numbers(alone)[0]]
    shutil.rmtree(os.path.join(chunked.job, "checkpoints", "step-00000030"))
    run = ranks.train(job, folder, generation=3)
    assert [e["step"] for e in run.events("resumed")] == [20]
    assert [m[:3] for m in numbers(run)[0]] == [m[:3] for m in numbers(alone)[0]]


def test_a_run_resumes_in_a_layout_cut_three_ways(job, alone, tmp_path):
    run = ranks.train(job, interrupted(alone, str(tmp_path), 20), generation=2, tp=2, pp=2, dp=2)
    assert ranks.relative(ranks.losses(run), ranks.losses(alone)) < TP_RELATIVE


def test_a_finished_job_started_again_trains_no_further(job, alone, tmp_path):
    run = ranks.train(job, interrupted(alone, str(tmp_path), 30), generation=2)
    assert [e["step"] for e in run.events("finished")] == [30]
    assert ranks.losses(run) == ranks.losses(alone)


def test_a_damaged_checkpoint_is_passed_over(job, alone, tmp_path):
    folder = interrupted(alone, str(tmp_path), 20)
    path = os.path.join(folder, "job", "checkpoints", "step-00000020", "rank-00000.mck")
    size = os.path.getsize(path)
    with open(path, "r+b") as f:  # in the middle of the first tensors: the quick check cannot see it
        f.seek(size // 4)
        data = f.read(4096)
        f.seek(size // 4)
        f.write(bytes(b ^ 0x5A for b in data))
    run = ranks.train(job, folder, generation=2, pp=2)
    assert [e["step"] for e in run.events("resumed")] == [10]
    assert [e["step"] for e in run.events("note")][:1] == [20]
    assert ranks.losses(run) == ranks.losses(alone)


def test_weights_of_a_checkpoint_start_another_job(job, alone, tmp_path):
    spec = copy.deepcopy(job)
    spec["train"]["init"]["from"] = os.path.join(alone.job, "checkpoints")
    spec["train"]["steps"] = 1
    spec["train"]["optimizer"]["warmup"] = 0
    run = ranks.train(spec, str(tmp_path), tp=2)
    assert abs(run.events("eval")[0]["loss"] - alone.events("eval")[-1]["loss"]) < 1e-4


# --- orders and faults ---------------------------------------------------------------------------------

@pytest.fixture
def long_job(corpus):
    return specs.train(corpus, steps=100000, every_steps=0)


def test_drain_saves_and_ends_and_the_next_run_goes_on(long_job, corpus, tmp_path):
    with ranks.Run(str(tmp_path), long_job, dp=2) as run:
        run.until(lambda: len(run.metrics()) > 3)
        run.order(1, ranks.DRAIN)  # one rank is told: all obey at the same step
        run.must(ranks.DRAINED)
    steps = run.checkpoints()
    assert len(steps) == 1 and steps[0] == len(run.metrics())
    short = specs.train(corpus, steps=steps[0] + 5, every_steps=0)
    again = ranks.train(short, str(tmp_path), generation=2)
    assert [e["step"] for e in again.events("resumed")] == steps
    assert len(again.metrics()) == steps[0] + 5


def test_save_makes_a_checkpoint_and_training_goes_on(long_job, tmp_path):
    with ranks.Run(str(tmp_path), long_job, pp=2) as run:
        run.until(lambda: len(run.metrics()) > 3)
        run.order(0, ranks.SAVE)
        step = run.until(lambda: run.events("checkpoint"))[0]["step"]
        run.until(lambda: len(run.metrics()) > step + 3)
        with open(run.flight_path(0), "rb") as f:
            assert struct.unpack("<I", f.read(20)[16:])[0] == 0  # the order is taken back
        run.order(0, ranks.ABORT)
        assert run.wait() == [ranks.ABORTED] * 2
    assert run.checkpoints() == [step]


def test_every_nth_checkpoint_is_kept(corpus, tmp_path):
    spec = specs.train(corpus, steps=30, every_steps=5)
    spec["checkpoint"] |= {"keep": 2, "keep_every": 10}
    run = ranks.train(spec, str(tmp_path))
    written = [e["step"] for e in run.events("checkpoint")]  # one is left out while two are under way
    assert written[0] == 5 and written[-1] == 30
    assert run.checkpoints() == sorted({s for s in written if s % 10 == 0} | set(written[-2:]))


def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(job, alone, tmp_path):
    in_the_way = tmp_path / "job" / "checkpoints" / "step-00000020"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("no folder")
    run = ranks.train(job, str(tmp_path), dp=2)
    told = {e["step"]: e.get("error") for e in run.events("checkpoint")}
    assert told.keys() == {10, 20, 30} and told[10] is told[30] is None and str(in_the_way) in told[20]
    assert run.checkpoints() == [10, 30]
    assert ranks.losses(run) == ranks.losses(alone)


def test_checkpoints_come_by_themselves_as_often_as_failures_demand(long_job, tmp_path):
    long_job["checkpoint"] |= {"every_steps": "auto", "mtbf_hours": 1e-4}
    with ranks.Run(str(tmp_path), long_job, dp=2) as run:
        run.until(lambda: len(run.events("checkpoint")) > 2)
        run.order(0, ranks.ABORT)
        assert run.wait() == [ranks.ABORTED] * 2


@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_takes_the_others_along_and_nothing_is_lost(job, alone, victim, tmp_path):
    with ranks.Run(str(tmp_path), job, pp=2, dp=2, hold_at=15) as run:
        run.until(lambda: 10 in run.checkpoints())
        run.ranks[victim].kill()
        codes = run.wait(PATIENCE_S)
    assert codes[victim] == -9
    assert all(c == ranks.ABORTED for i, c in enumerate(codes) if i != victim), codes
    again = ranks.train(job, str(tmp_path), generation=2, pp=2, dp=2)
    assert ranks.losses(again) == ranks.losses(alone)


def test_sigterm_gives_up(long_job, tmp_path):
    with ranks.Run(str(tmp_path), long_job, tp=2) as run:
        run.until(lambda: run.metrics())
        for p in run.ranks:
            p.terminate()
        assert run.wait() == [ranks.ABORTED] * 2
    assert not run.events("fault")


def test_a_gradient_that_is_not_finite_names_its_rank(corpus, tmp_path):
    spec = specs.train(corpus, steps=50, every_steps=0)
    spec["train"]["optimizer"].update(lr=900.0, warmup=0, clip=0)
    spec["train"]["optimizer"]["weight_decay"] = 900.0
    with ranks.Run(str(tmp_path), spec, pp=2) as run:
        codes = run.wait()
    fault = run.events("fault")
    assert sorted(codes) == [ranks.USER, ranks.ABORTED], run.log()
    assert len(fault) == 1 and fault[0]["class"] == "user" and codes[fault[0]["rank"]] == ranks.USER
    assert "not finite" in fault[0]["message"] or "loss is" in fault[0]["message"]


def test_steps_that_are_not_finite_are_left_out_up_to_a_limit(corpus, tmp_path):
    spec = specs.train(corpus, steps=50, every_steps=0)
    spec["train"]["optimizer"].update(lr=900.0, warmup=0, clip=0, weight_decay=900.0)
    spec["train"].update(on_nonfinite="skip", nonfinite_limit=3)
    with ranks.Run(str(tmp_path), spec) as run:
        assert run.wait() == [ranks.USER]
    notes = [e["message"] for e in run.events("note")]
    assert len(notes) == 3 and all("not finite" in n or "loss is" in n for n in notes)
    assert len(run.events("fault")) == 1


def test_a_model_that_cannot_fit_is_refused_before_the_first_step(job, tmp_path):
    spec = copy.deepcopy(job)
    spec["train"]["model"].update(layers=512, hidden=16384, heads=128)
    with ranks.Run(str(tmp_path), spec) as run:
        assert run.wait() == [ranks.USER]
    words = run.events("fault")[0]["message"]
    assert "GiB too little memory" in words and "weights" in words and "would help" in words
    assert not run.metrics()


def test_missing_data_is_the_users_fault_and_said_by_path(job, tmp_path):
    spec = copy.deepcopy(job)
    spec["train"]["data"]["path"] = "/nowhere/corpus.txt"
    with ranks.Run(str(tmp_path), spec) as run:
        assert run.wait() == [ranks.USER]
    fault = run.events("fault")
    assert fault[0]["class"] == "user" and "/nowhere/corpus.txt" in fault[0]["message"]


def test_a_layout_that_cannot_be_is_refused(job, tmp_path):
    with ranks.Run(str(tmp_path), job, pp=8) as run:
        codes = run.wait()
    assert ranks.USER in codes and set(codes) <= {ranks.USER, ranks.ABORTED, -15}  # ended before it was up
    assert any("4 layers" in e["message"] for e in run.events("fault"))


# --- the program's other modes -------------------------------------------------------------------------

def muster_train(*argv):
    return subprocess.run([ranks.TRAIN] + list(argv), capture_output=True, timeout=PATIENCE_S, check=False)


def test_text_is_sampled_from_a_checkpoint_and_depends_on_the_seed(alone):
    checkpoint = os.path.join(alone.job, "checkpoints")
    common = ["--sample", "--checkpoint", checkpoint, "--prompt", "the ", "--tokens", "40"]
    one, same, other = (muster_train(*common, "--seed", s) for s in ("1", "1", "2"))
    assert one.returncode == 0 and len(one.stdout) == 40, one.stderr
    assert one.stdout == same.stdout != other.stdout
    assert muster_train(*common[:2], checkpoint + ":20", *common[3:]).returncode == 0
    assert muster_train(*common[:2], checkpoint + ":7", *common[3:]).returncode == ranks.USER
    greedy = [muster_train(*common, "--temperature", "0", "--seed", s).stdout for s in ("1", "2")]
    assert greedy[0] == greedy[1]


def test_a_schedule_prints(tmp_path):
    out = muster_train("--print-schedule", "--pp", "4", "--micro-batches", "8")
    assert out.returncode == 0 and out.stdout.startswith(b"r0: 0F0 0SF0")
    assert b"span 33 " in out.stdout
    assert muster_train("--print-schedule", "--pp", "0", "--micro-batches", "8").returncode == 2
    out = muster_train("--print-schedule", "--pp", "4", "--chunks", "2", "--micro-batches", "16")
    assert b" 7F0 " in out.stdout and b"span 52.5 " in out.stdout
    refused = muster_train("--print-schedule", "--pp", "2", "--micro-batches", "2", "--schedule", "fast")
    assert refused.returncode == 2 and b"1f1b" in refused.stderr


def test_a_folder_without_an_assignment_is_said_so(tmp_path):
    out = muster_train("--run", str(tmp_path), "--rank", "0")
    assert out.returncode == ranks.USER and b"assignment.json" in out.stderr
    with open(tmp_path / "assignment.json", "w") as f:
        json.dump({"job": "j1"}, f)
    out = muster_train("--run", str(tmp_path), "--rank", "0")
    assert out.returncode == ranks.USER and b"'dir'" in out.stderr
