#!/usr/bin/env python3
"""One line of JSON: PyTorch's speed on a training step of a GPT-2 as `strata bench step` times it.

Random tokens, pre-norm blocks with biases, tanh GELU, a tied head over the vocabulary padded to 128, fused AdamW with weight
decay 0.1, clipping at a norm of 1. bf16 is autocast over fp32 weights, PyTorch's mixed precision on a CPU.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

SHAPES = {"gpt2-124m": dict(layers=12, hidden=768, heads=12, vocab=50257, longest=1024)}


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, longest):
        super().__init__()
        self.table = nn.Embedding((vocab + 127) // 128 * 128, hidden)
        self.positions = nn.Embedding(longest, hidden)
        self.layers = nn.Sequential(*(Layer(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        for p in (self.table.weight, self.positions.weight):
            nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.layers(x)), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2-124m", choices=SHAPES)
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    shape = SHAPES[a.model]
    model = Model(**shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens, targets = (torch.randint(0, shape["vocab"], (a.batch, a.seq)) for _ in range(2))
    seconds = []
    for step in range(2 + a.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    median = sorted(seconds)[len(seconds) // 2]
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "model": a.model, "batch": a.batch, "seq": a.seq,
                      "dtype": a.dtype, "threads": a.threads, "tokens_per_s": a.batch * a.seq / median,
                      "ms_per_step": median * 1e3, "loss": loss.item()}))


if __name__ == "__main__":
    main()
