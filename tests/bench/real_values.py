"""How codecs do on real numbers: gradients and activations of a GPT that Muster trained, as build/bench/compress rows.

Trains on text of this repository, takes the weights from the checkpoint, and has PyTorch work out, on parts of that
text, what would travel: the gradient of all weights (dp), the sums after each half of a block and their gradients (tp).

usage: real_values.py [--steps 300] [--quick]
"""
import argparse
import glob
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from tests import specs  # noqa: E402
from tests.integration import hf, ranks  # noqa: E402

LAYERS, HIDDEN, HEADS, CONTEXT, BATCH = 4, 128, 4, 128, 32


def write_text(path):
    """The documentation, cut at blank lines."""
    with open(path, "w", encoding="utf-8") as out:
        for name in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))):
            with open(name, encoding="utf-8") as f:
                out.write("\n%\n".join(f.read().split("\n\n")) + "\n%\n")
    return path


def train(folder, text, steps):
    """Weights by their names after so many steps."""
    spec = specs.train(text, steps=steps, every_steps=0, virtual_workers=1)
    spec["train"]["model"].update({"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "context": CONTEXT})
    spec["train"]["batch"] = {"sequences": 8, "micro": 8}
    spec["train"]["optimizer"] = {"lr": 1e-3, "warmup": min(20, steps)}
    run = ranks.train(spec, os.path.join(folder, "run"), seconds=1200)
    weights = hf.read_folder(hf.export(run, os.path.join(folder, "weights")))
    return {k.replace("transformer.", ""): torch.tensor(v, requires_grad=True) for k, v in weights.items()}


def gpt2(w, tokens, sums):
    """Logits; the sums after each half of a block, as tensor parallelism would send them, are appended."""
    n, t = tokens.shape

    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def travels(x, name):
        sums.append(x @ w[name + ".weight"])
        sums[-1].retain_grad()
        return sums[-1] + w[name + ".bias"]

    x = w["wte.weight"][tokens] + w["wpe.weight"][:t]
    mask = torch.full((t, t), -math.inf).triu(1)
    for i in range(LAYERS):
        h = "h.%d." % i
        q, k, v = (z.view(n, t, HEADS, -1).transpose(1, 2)
                   for z in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(HIDDEN, dim=2))
        p = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS) + mask, dim=3)
        x = x + travels((p @ v).transpose(1, 2).reshape(n, t, HIDDEN), h + "attn.c_proj")
        y = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + travels(y, h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def values(w, text):
    """What would travel, by name."""
    with open(text, "rb") as f:
        stream = np.frombuffer(f.read(), np.uint8)
    at = [i * (len(stream) - CONTEXT - 1) // BATCH for i in range(BATCH)]
    tokens = torch.tensor(np.stack([stream[a:a + CONTEXT + 1] for a in at]).astype(np.int64))
    sums = []
    logits = gpt2(w, tokens[:, :-1], sums)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    return float(loss), {
        "gradients": np.concatenate([w[k].grad.numpy().ravel() for k in sorted(w)]),
        "activations": np.concatenate([s.detach().numpy().ravel() for s in sums]),
        "activation_gradients": np.concatenate([s.grad.numpy().ravel() for s in sums]),
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        text = write_text(os.path.join(folder, "text"))
        loss, dumped = values(train(folder, text, 3 if a.quick else a.steps), text)
        print("loss of the trained weights: %.3f" % loss, file=sys.stderr)
        for name, x in dumped.items():
            path = os.path.join(folder, name + ".f32")
            x.astype(np.float32).tofile(path)
            subprocess.run([os.path.join(ranks.BUILD, "bench", "compress"), "--values", path], check=True)


if __name__ == "__main__":
    main()
