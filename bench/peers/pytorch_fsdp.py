#!/usr/bin/env python3
"""One line of JSON from rank 0: seconds a step of PyTorch's FSDP2 on a small GPT, over gloo, on CPUs.

Each rank is a process that an MPI launcher started; pytorch_fsdp.sh does so on a cluster. MODE zero3 shards over all ranks,
hsdp within a node and replicates over nodes. Weights are gathered and gradients reduced in every micro-batch, in fp32. Random
tokens, pre-norm blocks with biases, tanh GELU, a head of its own, AdamW. The first step, which also connects ranks, does not count.
"""
import argparse
import json
import os
import statistics
import time

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F


def launched(*names):
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit(f"pytorch_fsdp.py: none of {', '.join(names)} is set: start it under mpirun")


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return self.out(F.scaled_dot_product_attention(*split, is_causal=True).transpose(-2, -3).flatten(-2))


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.ffn = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU("tanh"), nn.Linear(4 * hidden, hidden))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("zero3", "hsdp"))
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2, help="that ranks are spread over, in order")
    a = parser.parse_args()
    rank = launched("OMPI_COMM_WORLD_RANK", "PMI_RANK")
    ranks = launched("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    if ranks % a.nodes:
        raise SystemExit(f"pytorch_fsdp.py: {ranks} ranks do not divide over {a.nodes} nodes")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), ranks, rank == 0, use_libuv=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    # FSDP2 wants the two dimensions named: replicas, then shards.
    mesh = (init_device_mesh("cpu", (ranks,)) if a.mode == "zero3" else
            init_device_mesh("cpu", (a.nodes, ranks // a.nodes), mesh_dim_names=("replicas", "shards")))

    model = nn.Sequential(nn.Embedding(a.vocab, a.hidden), *(Layer(a.hidden, a.heads) for _ in range(a.layers)),
                          nn.LayerNorm(a.hidden), nn.Linear(a.hidden, a.vocab, bias=False))
    parameters = sum(p.numel() for p in model.parameters())
    for layer in model[1:1 + a.layers]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)

    torch.manual_seed(rank)
    seconds = []
    for _ in range(1 + a.steps):
        distributed.barrier()
        begin = time.perf_counter()
        for _ in range(a.micro_batches):
            tokens = torch.randint(0, a.vocab, (1, a.seq + 1))
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()) / a.micro_batches
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        distributed.barrier()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps({"peer": f"PyTorch {torch.__version__}", "mode": a.mode, "parameters": parameters, "ranks": ranks,
                          "hidden": a.hidden, "layers": a.layers, "seq": a.seq, "micro_batches": a.micro_batches,
                          "s_per_step": round(statistics.median(seconds[1:]), 3),
                          "steps": [round(s, 3) for s in seconds[1:]]}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
