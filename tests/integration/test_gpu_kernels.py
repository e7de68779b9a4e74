"""The CUDA library where there may be no GPU: its kernels run by the processor, thread by thread, its failures, and
what is said where there is no library or no driver. Built wherever nvcc is found; without it only the last part
remains."""
import copy
import json
import os
import subprocess

import pytest

from tests.patience import PATIENCE_S

BUILD = os.path.abspath(os.environ.get("MUSTER_BUILD", "build"))
EMULATED = f"{BUILD}/tests/gpu/muster-cuda-emulated.so"
CHECK = f"{BUILD}/tests/gpu/check"
LIBRARY = f"{BUILD}/lib/muster/muster-cuda.so"
needs_nvcc = pytest.mark.skipif(not os.path.exists(EMULATED), reason="no nvcc: built without code for GPUs")


def check(library, *args, **env):
    return subprocess.run([CHECK, "--quick", *args], env=dict(os.environ, MUSTER_CUDA_BACKEND=library, **env),
                          capture_output=True, text=True, timeout=PATIENCE_S)


@needs_nvcc
@pytest.mark.parametrize("order", [{}, {"EMULATE_REVERSE": "1", "FAKE_LT_NO_BIAS": "1"}])
def test_kernels_and_codecs_agree_with_the_processor_in_either_order_of_threads(order):
    ran = check(EMULATED, **order)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failed" in ran.stdout


@needs_nvcc
def test_heads_of_128_dimensions_find_room_on_a_gpu_with_99_kib_of_shared_memory_and_larger_ones_are_refused():
    ran = check(EMULATED, "--attention", FAKE_CUDA_SHARED="101376")  # of A10, L40S and GeForce
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 cases, 0 failed" in ran.stdout


@needs_nvcc
@pytest.mark.parametrize("fake, said", [
    ("", "attention by cuDNN 91900: 20 calls, 4 by our own kernels\n"),
    ("refuse", "0 calls, 24 by our own kernels: cuDNN: no engine: not supported: no engine of a fake for this"),
    ("loose", "0 calls, 24 by our own kernels: cuDNN's engines for it do not give the same bits each time (4)"),
    ("large", "24 by our own kernels: cuDNN's engines for it do not give the same bits each time (2) or take more"),
    ("old", "attention by cuDNN is not there: '"), ("start", "is not there: cuDNN does not start: a failure")])
def test_attention_goes_by_cudnn_where_it_has_a_way_and_else_by_our_own_kernels(fake, said):
    ran = check(EMULATED, "--attention", FAKE_DNN=fake)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "7 cases, 0 failed" in ran.stdout and said in ran.stdout, ran.stdout


@needs_nvcc
def test_a_call_that_fails_in_cudnn_is_an_error_and_not_computed_twice():
    ran = check(EMULATED, "--attention", FAKE_DNN="failing")
    assert ran.returncode == 1 and "5 failed" in ran.stdout, ran.stdout
    assert "attention by cuDNN failed: a failure" in ran.stdout, ran.stdout


@needs_nvcc
def test_the_real_cudnn_has_fixed_engines_for_what_it_is_given_on_an_h200():
    ran = subprocess.run([f"{BUILD}/tests/gpu/plans"], capture_output=True, text=True, timeout=PATIENCE_S,
                         env=dict(os.environ, LD_LIBRARY_PATH=f"{BUILD}/tests/gpu/driver"))
    if ran.returncode == 77:
        pytest.skip("no cuDNN here")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("forward") == ran.stdout.count("backward") == 6, ran.stdout


@needs_nvcc
@pytest.mark.parametrize("order", [{}, {"EMULATE_REVERSE": "1"}])
def test_products_of_a_warp_are_laid_out_as_documented(order):
    ran = subprocess.run([f"{BUILD}/tests/gpu/fragments-emulated"], env=dict(os.environ, **order), capture_output=True,
                         text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0 and "as documented" in ran.stdout, ran.stdout + ran.stderr


@needs_nvcc
def test_a_machine_without_a_driver_is_told_so_and_nothing_is_claimed_to_be_checked():
    ran = check(EMULATED, FAKE_CUDA="absent")
    assert ran.returncode == 77
    assert "no NVIDIA driver here, or one older than 5" in ran.stdout


@needs_nvcc
@pytest.mark.parametrize("fake, said", [("own", "emulated, compute capability"), ("absent", "no NVIDIA driver here")])
def test_what_a_machine_has_for_training_on_a_gpu_is_told_by_one_command(tmp_path, fake, said):
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcublasLt.so.12").symlink_to(f"{BUILD}/tests/gpu/libcublasLt-fake.so")
    ran = subprocess.run([f"{BUILD}/bin/muster-train", "--gpu-check"], capture_output=True, text=True,
                         env=dict(os.environ, MUSTER_CUDA_BACKEND=EMULATED, FAKE_CUDA=fake, CUDA_HOME=str(tmp_path),
                                  LD_LIBRARY_PATH=f"{BUILD}/tests/gpu"), timeout=PATIENCE_S)
    assert ran.returncode == (77 if fake == "absent" else 0), ran.stdout + ran.stderr
    assert said in ran.stdout, ran.stdout
    if fake == "own":
        assert [line.split()[0] for line in ran.stdout.splitlines()] == [
            "driver", "built", "GPU", "memory", "shared", "managed", "cuBLASLt", "NCCL", "cuDNN"]
        assert "21903" in ran.stdout and "227 KiB" in ran.stdout  # of the fake NCCL


@needs_nvcc
def test_a_gpu_whose_memory_the_processor_must_not_touch_is_checked_and_refused_to_ranks_that_share():
    ran = check(EMULATED, "--bench", FAKE_CUDA="apart")  # no cases: with them it takes minutes
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "only a rank that is alone can train here: GPU 0 does not let the processor at its memory" in ran.stdout


@needs_nvcc
def test_the_library_loads_without_a_driver_and_shows_one_symbol():
    ran = check(LIBRARY, CUDA_VISIBLE_DEVICES="-1")
    assert ran.returncode == 77
    assert "cannot use GPU 0" in ran.stdout
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == ["muster_cuda_backend"]


@needs_nvcc
def test_each_call_of_the_runtime_may_fail_once_and_nothing_is_left_behind():
    ran = subprocess.run([f"{BUILD}/tests/gpu/failures"], env=dict(os.environ, MUSTER_CUDA_BACKEND=EMULATED),
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "failed in turn" in ran.stdout


LONG = os.environ.get("MUSTER_TEST_LONG")
SPEC = {"name": "gpu", "devices": {"min": 1, "max": 1}, "train": {
    "model": {"family": "gpt2", "layers": 1, "hidden": 16, "heads": 2, "context": 16, "vocab": 256},
    "steps": 1, "batch": {"sequences": 8, "micro": 1}}}


def train(folder, name, spec, devices, **env):
    (folder / "text").write_text("to train on " * 4000)
    spec["train"]["data"] = {"path": str(folder / "text")}
    (folder / f"{name}.json").write_text(json.dumps(spec))
    ran = subprocess.run([f"{BUILD}/bin/muster", "run", str(folder / f"{name}.json"), "--devices", str(devices),
                          "--dir", str(folder / name)], env=dict(os.environ, MUSTER_KERNELS="cuda", **env),
                         capture_output=True, text=True, timeout=PATIENCE_S)
    logs = ran.stdout + ran.stderr + "".join(p.read_text(errors="replace") for p in (folder / name).rglob("*.log"))
    return ran.returncode, logs


def two_ranks(compress=None, **parallel):
    spec = copy.deepcopy(SPEC)
    spec["devices"] = {"min": 2, "max": 2}
    spec["parallel"], spec["compress"] = parallel, compress or {}
    spec["train"]["model"] |= {"hidden": 64, "context": 256 if parallel else 16, "layers": parallel.get("pp", 1)}
    spec["train"]["batch"]["sequences"] = 2
    return spec


@needs_nvcc
@pytest.mark.parametrize("layout", [{}, {"compress": {"dp": "sdp4bit"}}] + (
    [{"pp": 2}, {"tp": 2}, {"cp": 2}, {"tp": 2, "compress": {"tp": "r8"}}, {"pp": 2, "compress": {"pp": "r8"}}]
    if LONG else []))
def test_two_ranks_train_alike_whether_they_speak_by_nccl_or_through_the_host(tmp_path, layout):
    spec = two_ranks(**layout)
    said = {"need": "stay on GPUs: NCCL 2.19.3", "off": ""}
    for way, words in said.items():
        code, logs = train(tmp_path, way, spec, 2, FAKE_CUDA="own", MUSTER_NCCL=way, MUSTER_CUDA_BACKEND=EMULATED,
                           LD_LIBRARY_PATH=f"{BUILD}/tests/gpu")
        assert code == 0 and words in logs and ("NCCL" in logs) == bool(words), logs
    steps = [str(tmp_path / way / "checkpoints" / "step-00000001") for way in said]
    same = subprocess.run([f"{BUILD}/bin/muster", "checkpoint", "diff", *steps], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout


@needs_nvcc
def test_cuda_graphs_leave_the_bits_of_the_calls_whose_place_they_take(tmp_path):
    spec = copy.deepcopy(SPEC)
    spec["train"]["model"]["dropout"] = 0.1
    spec["train"] |= {"steps": 3, "batch": {"sequences": 2, "micro": 1}}
    spec["parallel"] = {"virtual_workers": 1}
    ways = {"graphs": {}, "calls": {"MUSTER_CUDA_GRAPHS": "off"}, "refused": {"FAKE_CUDA_GRAPHS": "none"}}
    said = {}
    for way, env in ways.items():
        code, said[way] = train(tmp_path, way, spec, 1, MUSTER_CUDA_BACKEND=EMULATED, **env)
        assert code == 0, said[way]
    # 6 forwards, 6 backwards, 3 updates of two ranges: the first of each only shows what there is to capture
    assert "4 CUDA graphs, launched 14 times" in said["graphs"]
    assert "cannot be recorded" not in said["graphs"] + said["calls"]
    assert "0 CUDA graphs, launched 0 times" in said["calls"]
    assert said["refused"].count("go one by one: the GPU's stream cannot be captured") == 1
    steps = [str(tmp_path / way / "checkpoints" / "step-00000003") for way in said]
    for other in steps[1:]:
        same = subprocess.run([f"{BUILD}/bin/muster", "checkpoint", "diff", steps[0], other], capture_output=True,
                              text=True)
        assert same.returncode == 0, same.stdout


@needs_nvcc
@pytest.mark.parametrize("codec", [None, "sdp4bit"])  # coded strictly: by copies to the processor and back
def test_a_rank_that_is_alone_trains_on_a_gpu_whose_memory_the_host_never_touches(tmp_path, codec):
    spec = copy.deepcopy(SPEC)
    spec["train"] |= {"steps": 2, "precision": "bf16", "batch": {"sequences": 2, "micro": 1}}
    spec["parallel"] = {"virtual_workers": 1}
    if codec:
        spec["parallel"]["exact"], spec["compress"], spec["train"]["batch"]["sequences"] = "strict", {"dp": codec}, 1
    ways = {"shared": {}, "apart": {"FAKE_CUDA": "apart"}}
    for way, env in ways.items():
        code, logs = train(tmp_path, way, spec, 1, MUSTER_CUDA_BACKEND=EMULATED, **env)
        assert code == 0, logs
    steps = [str(tmp_path / way / "checkpoints" / "step-00000002") for way in ways]
    same = subprocess.run([f"{BUILD}/bin/muster", "checkpoint", "diff", *steps], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout


@needs_nvcc
def test_two_gpus_share_sequences_with_the_loss_of_one(tmp_path):
    loss = []
    for n in (1, 2):
        spec = two_ranks(cp=n)
        spec["train"]["model"]["context"] = 32
        spec["devices"] = {"min": n, "max": n}
        code, logs = train(tmp_path, f"cp{n}", spec, n, MUSTER_CUDA_BACKEND=EMULATED)
        assert code == 0, logs
        loss.append(json.loads((tmp_path / f"cp{n}" / "metrics.jsonl").read_text())["loss"])
    assert loss[0] == pytest.approx(loss[1], rel=1e-5)


@needs_nvcc
def test_ranks_of_one_gpu_say_that_they_share_it_when_nccl_is_needed(tmp_path):
    code, logs = train(tmp_path, "shared", two_ranks(), 2, MUSTER_NCCL="need", MUSTER_CUDA_BACKEND=EMULATED,
                       LD_LIBRARY_PATH=f"{BUILD}/tests/gpu")
    assert code != 0
    assert "calls cannot go by NCCL: ranks 0 and 1 share a GPU" in logs


@needs_nvcc
def test_tensors_that_do_not_fit_onto_the_gpu_end_the_job_with_words(tmp_path):
    code, logs = train(tmp_path, "full", copy.deepcopy(SPEC), 1, MUSTER_CUDA_BACKEND=EMULATED, FAKE_CUDA_FREE="1000")
    assert code == 65, logs  # the user's: another GPU would be as full
    assert "GiB too little memory: 1 rank here want" in logs
    assert "and its GPU has 0.00 GiB free" in logs


def test_training_asked_to_use_a_gpu_without_the_library_says_what_is_missing(tmp_path):
    code, logs = train(tmp_path, "none", copy.deepcopy(SPEC), 1, MUSTER_CUDA_BACKEND=str(tmp_path / "none.so"))
    assert code != 0
    assert "no code for GPUs here" in logs
