"""Train GPT-2 with PyTorch as fast as its operators allow; seconds of each step, one a line.

    torch_steps.py LAYERS HIDDEN HEADS VOCAB LENGTH SEQUENCES STEPS f32|bf16

What is tuned: attention by hand (scores with the mask as one product, softmax in place, its gradient by PyTorch's own
operator), all heads of a batch as one product, tanh-GELU in one operator, AdamW and clipping over lists of tensors. The
caller sets the threads and keeps malloc from returning memory."""
import math
import sys
import time

import torch
import torch.nn.functional as F

LR, BETAS, EPS, DECAY, CLIP = 6e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


class Attention(torch.autograd.Function):
    """softmax(q k' / sqrt(d) + mask) v over [batch * heads, length, d]."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale)
        torch.softmax(p, -1, out=p)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return torch.bmm(p, v)

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        dv = torch.bmm(p.transpose(1, 2), grad)
        ds = torch._softmax_backward_data(torch.bmm(grad, v.transpose(1, 2)), p, -1, p.dtype)
        dq = torch.bmm(ds, k).mul_(ctx.scale)
        dk = torch.bmm(ds.transpose(1, 2), q).mul_(ctx.scale)
        return dq, dk, dv, None


class Model:
    def __init__(self, layers, hidden, heads, vocab, length):
        def matrix(*shape):
            return torch.randn(*shape).mul_(0.02).requires_grad_()

        def vector(n, value):
            return torch.full((n,), float(value), requires_grad=True)

        self.heads = heads
        self.wte, self.wpe = matrix(vocab, hidden), matrix(length, hidden)
        self.blocks = [{
            "norm1": (vector(hidden, 1), vector(hidden, 0)), "norm2": (vector(hidden, 1), vector(hidden, 0)),
            "qkv": (matrix(3 * hidden, hidden), vector(3 * hidden, 0)),
            "proj": (matrix(hidden, hidden), vector(hidden, 0)),
            "fc": (matrix(4 * hidden, hidden), vector(4 * hidden, 0)),
            "out": (matrix(hidden, 4 * hidden), vector(hidden, 0)),
        } for _ in range(layers)]
        self.norm = (vector(hidden, 1), vector(hidden, 0))
        self.mask = torch.full((length, length), float("-inf")).triu_(1)

    def parameters(self):
        return [self.wte, self.wpe, *self.norm] + [t for b in self.blocks for pair in b.values() for t in pair]

    def attend(self, x, b):
        batch, length, hidden = x.shape
        qkv = F.linear(x, *b["qkv"]).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).reshape(3, batch * self.heads, length, -1).unbind(0)
        y = Attention.apply(q, k, v, self.mask.to(q.dtype).expand(batch * self.heads, length, length))
        y = y.view(batch, self.heads, length, -1).transpose(1, 2).reshape(batch, length, hidden)
        return F.linear(y, *b["proj"])

    def loss(self, tokens, targets):
        x = F.embedding(tokens, self.wte) + self.wpe
        for b in self.blocks:
            x = x + self.attend(F.layer_norm(x, x.shape[-1:], *b["norm1"]), b)
            y = F.layer_norm(x, x.shape[-1:], *b["norm2"])
            x = x + F.linear(F.gelu(F.linear(y, *b["fc"]), approximate="tanh"), *b["out"])
        logits = F.linear(F.layer_norm(x, x.shape[-1:], *self.norm), self.wte)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def main():
    layers, hidden, heads, vocab, length, sequences, steps = map(int, sys.argv[1:8])
    model = Model(layers, hidden, heads, vocab, length)
    parameters = model.parameters()
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS, foreach=True)
    batch = torch.randint(vocab, (sequences, length + 1))
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    for _ in range(steps):
        began = time.monotonic()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=sys.argv[8] == "bf16"):
            loss = model.loss(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grads = [p.grad for p in parameters]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, float(torch.clamp(CLIP / (norm + 1e-6), max=1.0)))
        optimizer.step()
        print(time.monotonic() - began, flush=True)


main()
