"""Training against PyTorch: the same weights, the same tokens, the same losses, step after step."""
import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

from tests.integration import ranks

LAYERS, HIDDEN, HEADS, FFN, CONTEXT, VOCAB = 3, 48, 4, 192, 24, 101
BATCH, LENGTH, STEPS = 8, 16, 14
LR, WARMUP, DECAY, CLIP, BETAS, EPS, MIN_RATIO = 3e-3, 3, 0.1, 0.5, (0.9, 0.95), 1e-8, 0.1


def fresh_weights(seed):
    """Tensors by their Hugging Face names; biases and norms off their usual start so that they matter."""
    rng = np.random.default_rng(seed)

    def normal(*shape, std=0.05):
        return (rng.standard_normal(shape) * std).astype(np.float32)

    w = {"wte.weight": normal(VOCAB, HIDDEN), "wpe.weight": normal(CONTEXT, HIDDEN),
         "ln_f.weight": 1 + normal(HIDDEN), "ln_f.bias": normal(HIDDEN)}
    for i in range(LAYERS):
        h = "h.%d." % i
        w.update({
            h + "ln_1.weight": 1 + normal(HIDDEN), h + "ln_1.bias": normal(HIDDEN),
            h + "attn.c_attn.weight": normal(HIDDEN, 3 * HIDDEN), h + "attn.c_attn.bias": normal(3 * HIDDEN),
            h + "attn.c_proj.weight": normal(HIDDEN, HIDDEN), h + "attn.c_proj.bias": normal(HIDDEN),
            h + "ln_2.weight": 1 + normal(HIDDEN), h + "ln_2.bias": normal(HIDDEN),
            h + "mlp.c_fc.weight": normal(HIDDEN, FFN), h + "mlp.c_fc.bias": normal(FFN),
            h + "mlp.c_proj.weight": normal(FFN, HIDDEN), h + "mlp.c_proj.bias": normal(HIDDEN)})
    return w


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header["transformer." + name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.tobytes())


def gpt2(w, tokens):
    """Logits of Hugging Face's GPT-2, in f32."""
    n, t = tokens.shape
    x = w["wte.weight"][tokens] + w["wpe.weight"][:t]
    mask = torch.full((t, t), -math.inf).triu(1)
    for i in range(LAYERS):
        h = "h.%d." % i
        y = F.layer_norm(x, (HIDDEN,), w[h + "ln_1.weight"], w[h + "ln_1.bias"], 1e-5)
        qkv = y @ w[h + "attn.c_attn.weight"] + w[h + "attn.c_attn.bias"]
        q, k, v = (z.view(n, t, HEADS, -1).transpose(1, 2) for z in qkv.split(HIDDEN, dim=2))
        p = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS) + mask, dim=3)
        y = (p @ v).transpose(1, 2).reshape(n, t, HIDDEN)
        x = x + y @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]
        y = F.layer_norm(x, (HIDDEN,), w[h + "ln_2.weight"], w[h + "ln_2.bias"], 1e-5)
        y = y @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"]
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + y @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
    return F.layer_norm(x, (HIDDEN,), w["ln_f.weight"], w["ln_f.bias"], 1e-5) @ w["wte.weight"].T


def rate(s):
    if s < WARMUP:
        return LR * (s + 1) / WARMUP
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP))))


def train_torch(weights, stream):
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
        loss = F.cross_entropy(gpt2(w, x).reshape(-1, VOCAB), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(w.values(), CLIP)))
        for group in optimizer.param_groups:
            group["lr"] = rate(s)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def spec(folder, **parallel):
    return {
        "name": "torch", "devices": {"min": 4, "max": 8},
        "train": {
            "model": {"family": "gpt2", "layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "ffn": FFN,
                      "context": CONTEXT, "vocab": VOCAB},
            "init": {"from": os.path.join(folder, "model.safetensors")},
            "data": {"path": os.path.join(folder, "tokens.bin"), "format": "tokens", "order": "sequential"},
            "batch": {"sequences": BATCH, "micro": 2, "length": LENGTH}, "steps": STEPS,
            "optimizer": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "clip": CLIP,
                          "schedule": "cosine", "warmup": WARMUP, "min_lr_ratio": MIN_RATIO}},
        "parallel": dict({"virtual_workers": 2}, **parallel), "checkpoint": {"every_steps": 0},
    }


def prepare(folder):
    weights = fresh_weights(11)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    rng = np.random.default_rng(12)
    # a short stream that repeats, so that the batches come round again and the loss can fall
    stream = rng.integers(0, VOCAB, 60 * LENGTH + 1).astype(np.uint16)
    stream.tofile(os.path.join(folder, "tokens.bin"))
    return weights, stream


def test_losses_and_norms_are_pytorchs(tmp_path):
    weights, stream = prepare(str(tmp_path))
    losses, norms = train_torch(weights, stream)
    run = ranks.train(spec(str(tmp_path)), str(tmp_path / "run"))
    lines = run.metrics()
    assert ranks.relative(ranks.losses(run), losses) < 2e-4
    # norms are sums of squares of many small numbers: a little more room than the loss
    assert ranks.relative([m["grad_norm"] for m in lines], norms) < 1e-3
    assert ranks.relative([m["lr"] for m in lines], [rate(s) for s in range(STEPS)]) < 1e-12
    assert losses[0] > losses[-1]


def test_three_dimensions_follow_pytorch_too(tmp_path):
    weights, stream = prepare(str(tmp_path))
    losses, _ = train_torch(weights, stream)
    run = ranks.train(spec(str(tmp_path), tp=2, pp=2), str(tmp_path / "run"), tp=2, pp=2, dp=2)
    assert ranks.relative(ranks.losses(run), losses) < 2e-4
