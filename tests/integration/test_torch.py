"""Training against PyTorch: the same weights, the same tokens, the same losses, step after step."""
import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

from tests.integration import ranks, torch_loop

LAYERS, HIDDEN, HEADS, FFN, CONTEXT, VOCAB = 3, 48, 4, 192, 24, 101


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


def spec(folder, **parallel):
    model = {"family": "gpt2", "layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "ffn": FFN, "context": CONTEXT,
             "vocab": VOCAB}
    return torch_loop.spec(folder, model, "model.safetensors", **parallel)


def prepare(folder):
    weights = fresh_weights(11)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    return weights, torch_loop.write_stream(folder, VOCAB)


def test_losses_and_norms_are_pytorchs(tmp_path):
    weights, stream = prepare(str(tmp_path))
    losses, norms, _ = torch_loop.train(gpt2, weights, stream)
    run = ranks.train(spec(str(tmp_path)), str(tmp_path / "run"))
    lines = run.metrics()
    assert ranks.relative(ranks.losses(run), losses) < 2e-4
    # norms are sums of squares of many small numbers: a little more room than the loss
    assert ranks.relative([m["grad_norm"] for m in lines], norms) < 1e-3
    assert ranks.relative([m["lr"] for m in lines], [torch_loop.rate(s) for s in range(torch_loop.STEPS)]) < 1e-12
    assert losses[0] > losses[-1]


def test_three_dimensions_and_bf16_follow_pytorch_too(tmp_path):
    weights, stream = prepare(str(tmp_path))
    losses, norms, _ = torch_loop.train(gpt2, weights, stream)
    run = ranks.train(spec(str(tmp_path), tp=2, pp=2), str(tmp_path / "run"), tp=2, pp=2, dp=2)
    assert ranks.relative(ranks.losses(run), losses) < 2e-4
    run = ranks.train(spec(str(tmp_path), precision="bf16", recompute="full"), str(tmp_path / "bf16"), dp=2)
    assert ranks.relative(ranks.losses(run), losses) < 1e-2
    assert ranks.relative([m["grad_norm"] for m in run.metrics()], norms) < 2e-2
