"""Llama and its kinds against PyTorch: the same weights, the same tokens, the same losses, step after step."""
import functools
import json
import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.integration import hf, ranks, torch_loop

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 12}
MODELS = {
    "llama": hf.llama_config(),
    "llama-untied-scaled": hf.llama_config(tie_word_embeddings=False, rope_scaling=LLAMA3, rope_theta=500.0),
    "llama-linear": hf.llama_config(rope_scaling={"type": "linear", "factor": 2.0}, rms_norm_eps=1e-3),
    "llama-wide-heads": hf.llama_config(head_dim=20, num_key_value_heads=4),
    "qwen2": hf.llama_config(model_type="qwen2", rope_theta=1000000.0, rms_norm_eps=1e-6),
    "qwen3": hf.llama_config(model_type="qwen3", head_dim=20, rope_theta=1000000.0, rms_norm_eps=1e-6),
    "mistral": hf.llama_config(model_type="mistral", sliding_window=7, tie_word_embeddings=False),
    "phi3": hf.llama_config(model_type="phi3", sliding_window=11, tie_word_embeddings=False),
}


def inverse_frequencies(c):
    """As in Hugging Face's modeling_rope_utils."""
    dim = hf.head_dim(c)
    inv = 1.0 / (c["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
    s = c.get("rope_scaling") or {}
    kind = s.get("rope_type", s.get("type", "default"))
    if kind == "linear":
        return inv / s["factor"]
    if kind != "llama3":
        return inv
    old, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    length = 2 * math.pi / inv
    slowed = torch.where(length > old / low, inv / s["factor"], inv)
    smooth = (old / length - low) / (high - low)
    blend = (1 - smooth) * slowed / s["factor"] + smooth * slowed
    return torch.where((length >= old / high) & (length <= old / low), blend, slowed)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def rms_norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def llama(c, w, tokens):
    """Logits of Hugging Face's Llama or one of its kinds, in f32."""
    n, t = tokens.shape
    heads, kv, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    dim = hf.head_dim(c)
    angles = torch.outer(torch.arange(t).float(), inverse_frequencies(c))
    cos, sin = (z(torch.cat((angles, angles), dim=-1)) for z in (torch.cos, torch.sin))
    mask = torch.full((t, t), -math.inf).triu(1)
    if hf.window(c):
        mask = mask + torch.full((t, t), -math.inf).tril(-hf.window(c))
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        h = "model.layers.%d." % i

        def linear(y, name):
            return F.linear(y, w[h + name + ".weight"], w.get(h + name + ".bias"))

        y = rms_norm(x, w[h + "input_layernorm.weight"], eps)
        if c["model_type"] == "phi3":
            q, k, v = linear(y, "self_attn.qkv_proj").split([heads * dim, kv * dim, kv * dim], dim=2)
        else:
            q, k, v = (linear(y, "self_attn.%s_proj" % z) for z in "qkv")
        q, k, v = (z.view(n, t, -1, dim).transpose(1, 2) for z in (q, k, v))
        if c["model_type"] == "qwen3":
            q = rms_norm(q, w[h + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, w[h + "self_attn.k_norm.weight"], eps)
        k, v = (z.repeat_interleave(heads // kv, dim=1) for z in (rotate(k, cos, sin), v))
        p = torch.softmax(rotate(q, cos, sin) @ k.transpose(2, 3) / math.sqrt(dim) + mask, dim=3)
        x = x + linear((p @ v).transpose(1, 2).reshape(n, t, heads * dim), "self_attn.o_proj")
        y = rms_norm(x, w[h + "post_attention_layernorm.weight"], eps)
        if c["model_type"] == "phi3":
            gate, up = linear(y, "mlp.gate_up_proj").chunk(2, dim=2)
        else:
            gate, up = linear(y, "mlp.gate_proj"), linear(y, "mlp.up_proj")
        x = x + linear(F.silu(gate) * up, "mlp.down_proj")
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T


def spec(c, folder, **parallel):
    return torch_loop.spec(folder, hf.spec_model(c), "hf", **parallel)


def prepare(c, folder):
    weights = hf.fresh_weights(c, 11)
    hf.write_folder(os.path.join(folder, "hf"), c, weights)
    return weights, torch_loop.write_stream(folder, c["vocab_size"])


@pytest.fixture(scope="module", params=sorted(MODELS))
def reference(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp(request.param))
    c = MODELS[request.param]
    weights, stream = prepare(c, folder)
    return (c, folder) + torch_loop.train(functools.partial(llama, c), weights, stream)


def test_losses_norms_and_weights_are_pytorchs(reference, tmp_path):
    c, folder, losses, norms, weights = reference
    run = ranks.train(spec(c, folder), str(tmp_path / "run"))
    assert ranks.relative(ranks.losses(run), losses) < 2e-4
    # norms are sums of squares of many small numbers: a little more room than the loss
    assert ranks.relative([m["grad_norm"] for m in run.metrics()], norms) < 1e-3
    assert losses[0] > losses[-1]
    got = hf.read_folder(hf.export(run, str(tmp_path / "out")))
    assert set(got) == set(weights)
    for name, want in weights.items():
        # a step of AdamW is about the rate whatever the gradient: what is near zero may go another way
        assert np.abs(got[name] - want).max() < 0.05 * torch_loop.LR * torch_loop.STEPS, name
        assert np.linalg.norm(got[name] - want) < 2e-3 * np.linalg.norm(want) + 1e-4, name
    with open(str(tmp_path / "out" / "config.json")) as f:
        written = json.load(f)
    for key in ("model_type", "hidden_size", "num_key_value_heads", "rope_theta", "rms_norm_eps",
                "tie_word_embeddings"):
        assert written[key] == c[key]
    assert hf.window(written) == hf.window(c) and hf.head_dim(written) == hf.head_dim(c)


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 2, "pp": 2, "dp": 2}], ids=["tp2", "tp2-pp2-dp2"])
def test_layouts_follow_pytorch_too(reference, layout, tmp_path):
    c, folder, losses, _, _ = reference
    parallel = {k: layout[k] for k in ("tp", "pp") if k in layout}
    run = ranks.train(spec(c, folder, **parallel), str(tmp_path / "run"), **layout)
    assert ranks.relative(ranks.losses(run), losses) < 2e-4


def test_bf16_stays_within_a_hundredth_of_pytorchs_f32(reference, tmp_path):
    c, folder, losses, norms, _ = reference
    run = ranks.train(spec(c, folder, precision="bf16"), str(tmp_path / "run"))
    assert ranks.relative(ranks.losses(run), losses) < 1e-2
    assert ranks.relative([m["grad_norm"] for m in run.metrics()], norms) < 2e-2


def test_a_spec_that_contradicts_its_weights_is_refused(tmp_path):
    c = MODELS["llama"]
    prepare(c, str(tmp_path))
    for field, value, words in (("rope_theta", 777.0, "rope_theta is 777"), ("qkv_bias", True, "qkv_bias is 1"),
                                ("ffn", 96, "ffn is 96"), ("norm_eps", 0.5, "norm_eps is 0.5"),
                                ("window", 5, "window is 5"), ("qk_norm", True, "qk_norm is 1"),
                                ("head_dim", 8, "head_dim is 8"),
                                ("rope_scaling", "llama3", "rope_scaling is 'llama3'")):
        bad = spec(c, str(tmp_path))
        bad["train"]["model"][field] = value
        with ranks.Run(str(tmp_path / field), bad) as run:
            assert run.wait() == [ranks.USER]
            assert words in run.log()
