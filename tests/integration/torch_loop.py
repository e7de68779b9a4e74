"""The training loop of the PyTorch tests: the same batches, rates and clipping as their spec asks of Muster."""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

BATCH, LENGTH, STEPS = 8, 16, 14
LR, WARMUP, DECAY, CLIP, BETAS, EPS, MIN_RATIO = 3e-3, 3, 0.1, 0.5, (0.9, 0.95), 1e-8, 0.1


def rate(s):
    if s < WARMUP:
        return LR * (s + 1) / WARMUP
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP))))


def write_stream(folder, vocab):
    """Tokens of a short stream that repeats, so that the batches come round again and the loss can fall."""
    stream = np.random.default_rng(12).integers(0, vocab, 60 * LENGTH + 1).astype(np.uint16)
    stream.tofile(os.path.join(folder, "tokens.bin"))
    return stream


def train(logits_of, weights, stream):
    """logits_of(w, tokens) trained on `stream`: its losses, its gradient norms, its weights at the end."""
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
        logits = logits_of(w, x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(w.values(), CLIP)))
        for group in optimizer.param_groups:
            group["lr"] = rate(s)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms, {k: v.detach().numpy() for k, v in w.items()}


def spec(folder, model, init, precision="f32", **parallel):
    """The spec of the same training: `model` from `init`, a path inside `folder`, on its tokens.bin."""
    return {
        "name": "torch", "devices": {"min": 4, "max": 8},
        "train": {
            "model": model, "init": {"from": os.path.join(folder, init)},
            "data": {"path": os.path.join(folder, "tokens.bin"), "format": "tokens", "order": "sequential"},
            "batch": {"sequences": BATCH, "micro": 2, "length": LENGTH}, "steps": STEPS, "precision": precision,
            "optimizer": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "clip": CLIP,
                          "schedule": "cosine", "warmup": WARMUP, "min_lr_ratio": MIN_RATIO}},
        "parallel": dict({"virtual_workers": 2}, **parallel), "checkpoint": {"every_steps": 0},
    }
