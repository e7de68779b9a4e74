"""Hugging Face folders: read and written sharded or single, in any float type, trained from, bit for bit, sampled."""
import os
import resource
import struct
import subprocess

import numpy as np
import pytest
import torch

from tests.integration import hf, ranks, test_torch_llama

MODELS = {"gpt2": hf.gpt2_config(), "llama": hf.llama_config(),
          "llama-untied": hf.llama_config(tie_word_embeddings=False),
          "qwen2": hf.llama_config(model_type="qwen2", rope_theta=1e6),
          "qwen3": hf.llama_config(model_type="qwen3", head_dim=16, rope_theta=1e6),
          "mistral": hf.llama_config(model_type="mistral", sliding_window=9),
          "phi3": hf.llama_config(model_type="phi3", sliding_window=9, tie_word_embeddings=False)}
SHAPES = [("F32", 1), ("F32", 3), ("BF16", 1), ("BF16", 4), ("F16", 1), ("F16", 2)]
MIB = 1 << 20


def muster(*args):
    return subprocess.run([hf.MUSTER, *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def plain(name):
    return name[len("transformer."):] if name.startswith("transformer.") else name


def same_bits(folder, weights, dtype):
    got = hf.read_all(folder)
    assert set(got) == {plain(n) for n in weights}
    for name, t in weights.items():
        assert got[plain(name)] == (dtype, t.shape, hf.to_type(t, dtype).tobytes()), name


@pytest.mark.parametrize("dtype,shards", SHAPES)
@pytest.mark.parametrize("model", sorted(MODELS))
def test_import_and_export_give_back_every_bit(model, dtype, shards, tmp_path):
    c = MODELS[model]
    weights = hf.fresh_weights(c, 3)
    folder = hf.write_folder(str(tmp_path / "in"), c, weights, dtype, shards)
    muster("checkpoint", "import", folder, str(tmp_path / "checkpoints"))
    muster("checkpoint", "export", str(tmp_path / "checkpoints"), str(tmp_path / "out"), "--dtype", dtype.lower())
    same_bits(str(tmp_path / "out"), weights, dtype)
    muster("checkpoint", "verify", str(tmp_path / "checkpoints"))
    again = subprocess.run([hf.MUSTER, "checkpoint", "import", folder, str(tmp_path / "checkpoints")], check=False,
                           stderr=subprocess.PIPE)
    assert again.returncode != 0 and b"holds a checkpoint already" in again.stderr


@pytest.mark.parametrize("model,changes,words", [
    ("qwen3", {"use_sliding_window": True, "max_window_layers": 1}, "max_window_layers"),
    ("phi3", {"rope_scaling": {"type": "longrope"}}, "longrope"),
    ("llama", {"model_type": "gemma2"}, "model type 'gemma2'"), ("llama", {"head_dim": 7}, "cannot be rotated")])
def test_import_refuses_what_training_would(model, changes, words, tmp_path):
    c = MODELS[model]
    weights = hf.fresh_weights(c, 3)
    folder = hf.write_folder(str(tmp_path / "in"), dict(c, **changes), weights)
    spec = job(c, folder, write_tokens(str(tmp_path), c["vocab_size"]))
    refused = subprocess.run([hf.MUSTER, "checkpoint", "import", folder, str(tmp_path / "checkpoints")], check=False,
                             stderr=subprocess.PIPE)
    assert refused.returncode == 1 and words in refused.stderr.decode()
    assert not (tmp_path / "checkpoints").exists()
    with ranks.Run(str(tmp_path / "run"), spec) as run:
        assert run.wait() == [ranks.USER]
        assert words in run.log()
    os.remove(os.path.join(folder, "config.json"))
    muster("checkpoint", "import", folder, str(tmp_path / "checkpoints"))


def test_what_other_writers_may_write_comes_back(tmp_path):
    """Any order of bytes, no number aligned for the header's padding, scalars, empty tensors, types beside floats."""
    half = np.array([1.5, -2, 65504, 6e-8], np.float16)
    tensors = {"z": ("F32", (2, 3), struct.pack("<6f", *range(6))), "scalar": ("F32", (), struct.pack("<f", 4.25)),
               "empty": ("F32", (0, 7), b""), "no.rows": ("I64", (3, 0), b""),
               "count": ("I64", (3,), struct.pack("<3q", 1, -2, 3)), "mask": ("BOOL", (5,), b"\1\0\1\1\0"),
               "small": ("I32", (1, 1, 1), b"\1\2\3\4"),
               "wide": ("F64", (2,), struct.pack("<2d", 1e300, -0.1)), "half": ("F16", (2, 2), half.tobytes()),
               "a": ("U8", (1,), b"\7")}
    order = ["mask", "empty", "half", "a", "scalar", "no.rows", "wide", "small", "z", "count"]
    hf.write_raw(str(tmp_path / "odd.safetensors"), tensors, order, padding=37)
    muster("checkpoint", "import", str(tmp_path / "odd.safetensors"), str(tmp_path / "checkpoints"))
    muster("checkpoint", "verify", str(tmp_path / "checkpoints"))
    muster("checkpoint", "export", str(tmp_path / "checkpoints"), str(tmp_path / "out"))
    changed = {"half": ("F32", (2, 2), half.astype(np.float32).tobytes())}
    assert hf.read_all(str(tmp_path / "out")) == tensors | changed


def test_weights_are_exported_in_files_of_a_size(tmp_path):
    sizes = {"a": 300, "b": 500, "c": 300, "d": 1500, "e": 20, "f": 1004, "g": 1}  # KiB; the limit is 1024
    weights = {n: np.random.default_rng(k).standard_normal((k, 256)).astype(np.float32) for n, k in sizes.items()}
    hf.write_file(str(tmp_path / "model.safetensors"), weights)
    checkpoints, out = str(tmp_path / "checkpoints"), tmp_path / "out"
    muster("checkpoint", "import", str(tmp_path), checkpoints)
    muster("checkpoint", "export", checkpoints, str(out), "--part-mib", "1")
    same_bits(str(out), weights, "F32")
    files = sorted(p.name for p in out.glob("*.safetensors"))
    assert files == [f"model-{i + 1:05d}-of-00005.safetensors" for i in range(5)]
    assert [sorted(hf.read_raw(str(out / f))) for f in files] == [["a", "b"], ["c"], ["d"], ["e", "f"], ["g"]]
    muster("checkpoint", "export", checkpoints, str(out), "--part-mib", "1", "--dtype", "bf16")
    same_bits(str(out), weights, "BF16")
    muster("checkpoint", "import", str(out), str(tmp_path / "again"))
    muster("checkpoint", "export", checkpoints, str(tmp_path / "one"), "--part-mib", "100")
    assert os.listdir(tmp_path / "one") == ["model.safetensors"]
    refused = subprocess.run([hf.MUSTER, "checkpoint", "export", checkpoints, str(tmp_path / "one"), "--part-mib", "1"],
                             check=False, stderr=subprocess.PIPE)
    assert refused.returncode == 1 and b"would be read instead" in refused.stderr


def test_weights_larger_than_memory_pass_through(tmp_path):
    """With 160 MiB to write to, of which the writer's pool takes 64."""
    tensors = {f"layer.{i}.weight": (128 * MIB,) for i in range(3)}
    places = {n: {"dtype": "U8", "shape": s, "data_offsets": [i * s[0], (i + 1) * s[0]]}
              for i, (n, s) in enumerate(tensors.items())}
    text = hf.json.dumps(places).encode()
    with open(tmp_path / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 3 * 128 * MIB)
        f.seek(-1000, os.SEEK_END)
        f.write(b"end" * 10)
    for args in (("import", str(tmp_path), str(tmp_path / "checkpoints")), ("verify", str(tmp_path / "checkpoints")),
                 ("digest", str(tmp_path / "checkpoints")),
                 ("export", str(tmp_path / "checkpoints"), str(tmp_path / "out"), "--part-mib", "200")):
        subprocess.run([hf.MUSTER, "checkpoint", *args], check=True, stdout=subprocess.DEVNULL,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (160 * MIB, 160 * MIB)))
    with open(tmp_path / "out" / "model-00003-of-00003.safetensors", "rb") as f:
        f.seek(-1000, os.SEEK_END)
        assert f.read() == (b"end" * 10).ljust(1000, b"\0")


def job(c, folder, tokens, steps=4, lr=1e-3, **parallel):
    return {"name": "hf", "devices": {"min": 4, "max": 8},
            "train": {"model": hf.spec_model(c), "init": {"from": folder},
                      "data": {"path": tokens, "format": "tokens"},
                      "batch": {"sequences": 4, "micro": 1, "length": 16}, "steps": steps,
                      "optimizer": {"lr": lr, "warmup": 0, "weight_decay": 0.0, "schedule": "constant"}},
            "parallel": dict({"virtual_workers": 2}, **parallel), "checkpoint": {"every_steps": 0}}


def write_tokens(folder, vocab):
    path = os.path.join(folder, "tokens.bin")
    np.random.default_rng(5).integers(0, vocab, 4000).astype(np.uint16).tofile(path)
    return path


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 3}, {"tp": 2, "dp": 2}], ids=str)
@pytest.mark.parametrize("model", ["gpt2", "llama", "qwen2", "qwen3", "phi3"])
def test_training_from_a_folder_in_any_layout_keeps_what_it_does_not_change(model, layout, tmp_path):
    """With a rate far below the last bit of a weight, what comes out is what went in."""
    c = MODELS[model]
    weights = hf.fresh_weights(c, 3)
    folder = hf.write_folder(str(tmp_path / "in"), c, weights, "BF16", 2)
    tokens = write_tokens(str(tmp_path), c["vocab_size"])
    parallel = {k: v for k, v in layout.items() if k != "dp"}
    run = ranks.train(job(c, folder, tokens, lr=1e-30, **parallel), str(tmp_path / "run"), **layout)
    kept = {n: hf.from_bf16(hf.to_bf16(t)) for n, t in weights.items()}
    same_bits(hf.export(run, str(tmp_path / "out"), "f32"), kept, "F32")
    same_bits(hf.export(run, str(tmp_path / "half"), "bf16"), kept, "BF16")


def test_what_was_exported_trains_on_like_the_checkpoint_it_came_from(tmp_path):
    c = MODELS["qwen2"]
    folder = hf.write_folder(str(tmp_path / "in"), c, hf.fresh_weights(c, 3))
    tokens = write_tokens(str(tmp_path), c["vocab_size"])
    run = ranks.train(job(c, folder, tokens), str(tmp_path / "run"))
    out = hf.export(run, str(tmp_path / "out"))
    checkpoint = os.path.join(run.job, "checkpoints")
    one, two = (ranks.train(job(c, source, tokens), str(tmp_path / name))
                for name, source in (("1", out), ("2", checkpoint)))
    assert ranks.losses(one) == ranks.losses(two) != ranks.losses(run)


def test_a_resumed_job_needs_its_first_weights_no_longer(tmp_path):
    c = dict(MODELS["llama-untied"], rms_norm_eps=1e-4, rope_theta=321.0)
    folder = hf.write_folder(str(tmp_path / "in"), c, hf.fresh_weights(c, 3))
    tokens = write_tokens(str(tmp_path), c["vocab_size"])
    whole = ranks.train(job(c, folder, tokens, steps=6), str(tmp_path / "whole"))
    first = job(c, folder, tokens, steps=3)
    ranks.train(first, str(tmp_path / "run"))
    os.rename(folder, folder + ".gone")
    second = ranks.train(job(c, folder, tokens, steps=6), str(tmp_path / "run"), generation=2)
    assert ranks.losses(second)[-3:] == ranks.losses(whole)[-3:]


# --- text ---------------------------------------------------------------------------------------------------

def sample(folder, *args, ok=True):
    r = subprocess.run([ranks.TRAIN, "--sample", "--checkpoint", folder, *args], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, check=False)
    assert (r.returncode == 0) == ok, r.stderr
    return r.stdout.decode().split() if ok else r.stderr.decode()


def likeliest(c, weights, prompt, n):
    """What PyTorch goes on with, the whole sequence anew for each token."""
    w = {k: torch.tensor(v) for k, v in weights.items()}
    tokens = list(prompt)
    for _ in range(n):
        logits = test_torch_llama.llama(c, w, torch.tensor([tokens]))[0, -1]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt):]


@pytest.mark.parametrize("model", ["llama", "qwen2", "qwen3", "mistral", "phi3"])
def test_generation_goes_on_as_pytorch_does(model, tmp_path):
    c = dict(MODELS[model], max_position_embeddings=160)
    weights = hf.fresh_weights(c, 3)
    prompt = [int(x) for x in np.random.default_rng(1).integers(0, c["vocab_size"], 100)]
    folder = hf.write_folder(str(tmp_path / "in"), c, weights, shards=2)
    got = sample(folder, "--prompt-tokens", " ".join(map(str, prompt)), "--tokens", "24", "--temperature", "0")
    assert [int(x) for x in got] == likeliest(c, weights, prompt, 24)


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_seeds_and_limits_of_generation(model, tmp_path):
    c = MODELS[model]
    folder = hf.write_folder(str(tmp_path / "in"), c, hf.fresh_weights(c, 3))

    def go(*args):  # past the context of 32, so that the older half is forgotten on the way
        return sample(folder, "--prompt-tokens", "1,2,3", "--tokens", "80", *args)

    a = go("--seed", "1")
    assert len(a) == 80 and a == go("--seed", "1") != go("--seed", "2")
    greedy = go("--temperature", "0")
    assert greedy == go("--top-k", "1", "--seed", "5") == go("--top-p", "1e-9", "--top-k", "0", "--seed", "6")
    assert go("--threads", "2", "--seed", "1") == a


def test_what_cannot_be_sampled_is_said(tmp_path):
    c = MODELS["llama"]
    folder = hf.write_folder(str(tmp_path / "in"), c, hf.fresh_weights(c, 3))
    assert "--prompt-tokens" in sample(folder, "--prompt", "The", ok=False)
    assert "from 0 to 100" in sample(folder, "--prompt-tokens", "1 101", ok=False)
    assert "from 0 to 100" in sample(folder, "--prompt-tokens", "1 x", ok=False)
    assert "no prompt" in sample(folder, "--prompt-tokens", " ", ok=False)
    assert "top-p" in sample(folder, "--prompt-tokens", "1", "--top-p", "0", ok=False)
    os.remove(os.path.join(folder, "config.json"))
    assert "config.json" in sample(folder, "--prompt-tokens", "1", ok=False)
