"""Llama and Qwen2 against PyTorch: the same weights, the same tokens, the same losses, step after step."""
import json
import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.integration import hf, ranks

BATCH, LENGTH, STEPS = 8, 16, 14
LR, WARMUP, DECAY, CLIP, BETAS, EPS, MIN_RATIO = 3e-3, 3, 0.1, 0.5, (0.9, 0.95), 1e-8, 0.1

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 12}
MODELS = {
    "llama": hf.llama_config(),
    "llama-untied-scaled": hf.llama_config(tie_word_embeddings=False, rope_scaling=LLAMA3, rope_theta=500.0),
    "llama-linear": hf.llama_config(rope_scaling={"type": "linear", "factor": 2.0}, rms_norm_eps=1e-3),
    "llama-wide-heads": hf.llama_config(head_dim=20, num_key_value_heads=4),
    "qwen2": hf.llama_config(model_type="qwen2", rope_theta=1000000.0, rms_norm_eps=1e-6),
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
    """Logits of Hugging Face's Llama or Qwen2, in f32."""
    n, t = tokens.shape
    heads, kv, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    dim = hf.head_dim(c)
    angles = torch.outer(torch.arange(t).float(), inverse_frequencies(c))
    cos, sin = (z(torch.cat((angles, angles), dim=-1)) for z in (torch.cos, torch.sin))
    mask = torch.full((t, t), -math.inf).triu(1)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        h = "model.layers.%d." % i

        def linear(y, name):
            return F.linear(y, w[h + name + ".weight"], w.get(h + name + ".bias"))

        y = rms_norm(x, w[h + "input_layernorm.weight"], eps)
        q = linear(y, "self_attn.q_proj").view(n, t, heads, dim).transpose(1, 2)
        k = linear(y, "self_attn.k_proj").view(n, t, kv, dim).transpose(1, 2)
        v = linear(y, "self_attn.v_proj").view(n, t, kv, dim).transpose(1, 2)
        k, v = (z.repeat_interleave(heads // kv, dim=1) for z in (rotate(k, cos, sin), v))
        p = torch.softmax(rotate(q, cos, sin) @ k.transpose(2, 3) / math.sqrt(dim) + mask, dim=3)
        x = x + linear((p @ v).transpose(1, 2).reshape(n, t, heads * dim), "self_attn.o_proj")
        y = rms_norm(x, w[h + "post_attention_layernorm.weight"], eps)
        x = x + linear(F.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T


def rate(s):
    if s < WARMUP:
        return LR * (s + 1) / WARMUP
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP))))


def train_torch(c, weights, stream):
    w = {k: torch.tensor(v, requires_grad=True) for k, v in weights.items()}
    optimizer = torch.optim.AdamW([{"params": [p for p in w.values() if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in w.values() if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS)
    samples = (len(stream) - 1) // LENGTH
    losses, norms = [], []
    for s in range(STEPS):
        at = [(s * BATCH + i) % samples * LENGTH for i in range(BATCH)]
        x = torch.tensor(np.stack([stream[a:a + LENGTH] for a in at]).astype(np.int64))
        y = torch.tensor(np.stack([stream[a + 1:a + LENGTH + 1] for a in at]).astype(np.int64))
        loss = F.cross_entropy(llama(c, w, x).reshape(-1, c["vocab_size"]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(w.values(), CLIP)))
        for group in optimizer.param_groups:
            group["lr"] = rate(s)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms, {k: v.detach().numpy() for k, v in w.items()}


def spec(c, folder, **parallel):
    return {
        "name": "torch", "devices": {"min": 4, "max": 8},
        "train": {
            "model": hf.spec_model(c), "init": {"from": os.path.join(folder, "hf")},
            "data": {"path": os.path.join(folder, "tokens.bin"), "format": "tokens", "order": "sequential"},
            "batch": {"sequences": BATCH, "micro": 2, "length": LENGTH}, "steps": STEPS,
            "optimizer": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "clip": CLIP,
                          "schedule": "cosine", "warmup": WARMUP, "min_lr_ratio": MIN_RATIO}},
        "parallel": dict({"virtual_workers": 2}, **parallel), "checkpoint": {"every_steps": 0},
    }


def prepare(c, folder):
    weights = hf.fresh_weights(c, 11)
    hf.write_folder(os.path.join(folder, "hf"), c, weights)
    rng = np.random.default_rng(12)
    # a short stream that repeats, so that the batches come round again and the loss can fall
    stream = rng.integers(0, c["vocab_size"], 60 * LENGTH + 1).astype(np.uint16)
    stream.tofile(os.path.join(folder, "tokens.bin"))
    return weights, stream


@pytest.fixture(scope="module", params=sorted(MODELS))
def reference(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp(request.param))
    c = MODELS[request.param]
    weights, stream = prepare(c, folder)
    return (c, folder) + train_torch(c, weights, stream)


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
        assert np.abs(got[name] - want).max() < 0.05 * LR * STEPS, name
        assert np.linalg.norm(got[name] - want) < 2e-3 * np.linalg.norm(want) + 1e-4, name
    with open(str(tmp_path / "out" / "config.json")) as f:
        written = json.load(f)
    for key in ("model_type", "hidden_size", "num_key_value_heads", "rope_theta", "rms_norm_eps",
                "tie_word_embeddings"):
        assert written[key] == c[key]


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 2, "pp": 2, "dp": 2}], ids=["tp2", "tp2-pp2-dp2"])
def test_layouts_follow_pytorch_too(reference, layout, tmp_path):
    c, folder, losses, _, _ = reference
    parallel = {k: layout[k] for k in ("tp", "pp") if k in layout}
    run = ranks.train(spec(c, folder, **parallel), str(tmp_path / "run"), **layout)
    assert ranks.relative(ranks.losses(run), losses) < 2e-4


def test_a_spec_that_contradicts_its_weights_is_refused(tmp_path):
    c = MODELS["llama"]
    prepare(c, str(tmp_path))
    for field, value, words in (("rope_theta", 777.0, "rope_theta is 777"), ("qkv_bias", True, "qkv_bias is 1"),
                                ("ffn", 96, "ffn is 96"), ("norm_eps", 0.5, "norm_eps is 0.5"),
                                ("rope_scaling", "llama3", "rope_scaling is 'llama3'")):
        bad = spec(c, str(tmp_path))
        bad["train"]["model"][field] = value
        with ranks.Run(str(tmp_path / field), bad) as run:
            assert run.wait() == [ranks.USER]
            assert words in run.log()
