"""Train the models of check-gpu with PyTorch as fast as it goes, and time its products and attention.

    torch_beside.py [--device cuda|cpu] [--eager] [--steps N] ROW...

    MODEL:LENGTH:SEQUENCES               training: tokens/s of the median step
    attention:TOKENS:HEADS:KV_HEADS:DIM  one sequence, causal: TFLOP/s of scaled_dot_product_attention, both ways
    product:SIDE                         TFLOP/s of a square product

One JSON object a line as soon as it is known; a row that fails has "error". In bf16 with f32 weights, blocks and head
compiled (a block once for all layers), scaled dot-product attention, fused AdamW, clipping over lists of tensors. What
a PyTorch lacks it goes without, and says so in "how"."""
import argparse
import functools
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LR, BETAS, EPS, DECAY, CLIP, NORM_EPS = 6e-4, (0.9, 0.95), 1e-8, 0.1, 1.0, 1e-5
WARM = 4            # steps that do not count; compiling happens in them
HEAD_TOKENS = 8192  # logits of so many tokens at a time

# family, layers, hidden, heads, kv_heads, ffn, vocab: as Muster's presets; the embedding is the head
MODELS = {
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50257),
    "gpt2-350m": ("gpt2", 24, 1024, 16, 16, 4096, 50257),
    "llama-1b": ("llama", 16, 2048, 32, 8, 8192, 128256),
    "tiny": ("gpt2", 2, 32, 2, 2, 64, 97),
    "llama-tiny": ("llama", 2, 32, 4, 2, 64, 97),
}


def attend(q, k, v):
    """[batch, heads, length, dim], causal; keys and values may have fewer heads."""
    if hasattr(F, "scaled_dot_product_attention"):
        more = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **more)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    mask = torch.full(scores.shape[-2:], float("-inf"), device=q.device, dtype=scores.dtype).triu_(1)
    return torch.softmax(scores + mask, -1) @ v


def rms_norm(x, weight):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, x.shape[-1:], weight, NORM_EPS)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPS) * weight


class Norm(nn.Module):
    def __init__(self, family, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden)) if family == "gpt2" else None

    def forward(self, x):
        if self.bias is None:
            return rms_norm(x, self.weight)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, NORM_EPS)


class Block(nn.Module):
    def __init__(self, family, hidden, heads, kv_heads, ffn):
        super().__init__()
        bias = family == "gpt2"
        self.family, self.heads, self.kv_heads, self.dim = family, heads, kv_heads, hidden // heads
        self.norm1, self.norm2 = Norm(family, hidden), Norm(family, hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.dim, bias=bias)
        self.proj = nn.Linear(hidden, hidden, bias=bias)
        self.up = nn.Linear(hidden, ffn if bias else 2 * ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def rotate(self, x, angles):
        cos, sin = angles
        low, high = x.chunk(2, -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(x.dtype)

    def forward(self, x, angles):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([self.heads * self.dim] + 2 * [self.kv_heads * self.dim], -1)
        q, k, v = (y.view(batch, length, -1, self.dim).transpose(1, 2) for y in (q, k, v))
        if self.family == "llama":
            q, k = self.rotate(q, angles), self.rotate(k, angles)
        x = x + self.proj(attend(q, k, v).transpose(1, 2).reshape(batch, length, hidden))
        y = self.up(self.norm2(x))
        if self.family == "gpt2":
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def head_loss(x, weight, targets):
    return F.cross_entropy(F.linear(x, weight).float(), targets, reduction="sum")


class Model(nn.Module):
    def __init__(self, family, layers, hidden, heads, kv_heads, ffn, vocab, length, compiled):
        super().__init__()
        keep = compiled if compiled else lambda f: f
        self.wte = nn.Embedding(-(-vocab // 128) * 128, hidden)  # to whole tiles of tensor cores
        self.wpe = nn.Embedding(length, hidden) if family == "gpt2" else None
        self.blocks = nn.ModuleList(keep(Block(family, hidden, heads, kv_heads, ffn)) for _ in range(layers))
        self.norm, self.head_loss = Norm(family, hidden), keep(head_loss)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        dim = hidden // heads
        angles = torch.outer(torch.arange(length), 500000.0 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe.weight
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        x = self.norm(x).flatten(0, 1)
        parts = zip(x.split(HEAD_TOKENS), targets.flatten().split(HEAD_TOKENS))
        return sum(self.head_loss(y, self.wte.weight, t) for y, t in parts) / targets.numel()


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def train(args, name, length, sequences):
    shape, how = MODELS[name], []
    compiled = None if args.eager or not hasattr(torch, "compile") else functools.partial(torch.compile, dynamic=False)
    if compiled:
        torch.compiler.reset()
    else:
        how.append("nothing compiled")
    if not hasattr(F, "scaled_dot_product_attention"):
        how.append("attention by products")
    model = Model(*shape, length, compiled).to(args.device)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in params if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS, **({"fused": True} if args.device == "cuda" else {}))
    batch = torch.randint(shape[-1], (sequences, length + 1), device=args.device)
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    took = []
    for _ in range(WARM + args.steps):
        wait(args.device)
        began = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        wait(args.device)
        took.append(time.monotonic() - began)
    rate = sequences * length / statistics.median(took[WARM:])
    return {"value": rate, "unit": "tokens/s", "loss": float(loss.detach()), "start_s": round(sum(took[:WARM]), 1),
            "how": ", ".join(how) or "blocks and head compiled"}


def seconds(device, call, at_least=0.2):
    """Of one call: the best of three samples."""
    best = float("inf")
    call()
    for _ in range(3):
        n = 0
        wait(device)
        began = time.monotonic()
        while n == 0 or time.monotonic() - began < at_least:
            for _ in range(8 if device == "cuda" else 1):
                call()
                n += 1
            wait(device)
        best = min(best, (time.monotonic() - began) / n)
    return best


def attention(args, tokens, heads, kv_heads, dim):
    def one(h):
        return torch.randn(1, h, tokens, dim, device=args.device, dtype=torch.bfloat16, requires_grad=True)

    q, k, v = one(heads), one(kv_heads), one(kv_heads)
    out = attend(q, k, v)
    grad = torch.randn_like(out)
    flops = 2.0 * tokens * tokens * dim * heads  # of the half below the diagonal
    there = seconds(args.device, lambda: attend(q, k, v))
    back = seconds(args.device, lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    return {"forward": flops / there * 1e-12, "backward": 2.5 * flops / back * 1e-12, "unit": "TFLOP/s"}


def product(args, side):
    a, b = (torch.randn(side, side, device=args.device, dtype=torch.bfloat16) for _ in range(2))
    return {"value": 2.0 * side ** 3 / seconds(args.device, lambda: a @ b) * 1e-12, "unit": "TFLOP/s"}


def measure(args, row):
    name, *numbers = row.split(":")
    return {"attention": attention, "product": product}.get(name, lambda a, *n: train(a, name, *n))(
        args, *map(int, numbers))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--eager", action="store_true", help="nothing compiled")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("rows", nargs="+")
    args = parser.parse_args()
    torch.manual_seed(1)
    failed = 0
    for row in args.rows:
        try:
            said = measure(args, row)
        except (RuntimeError, KeyError, TypeError, ValueError, OSError) as e:  # of this shape; the next may do
            said, failed = {"error": " ".join(f"{type(e).__name__}: {e}".split())[:300]}, 1
        print(json.dumps({"torch": torch.__version__, "row": row, **said}), flush=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
