# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of the step times in tools/gpu_test: eager DDP and torch.compile on one GPU or under torchrun.

usage: captured_peer.py gpt|resnet18 fp32|bf16

Prints "peer MODEL PRECISION ranks=N eager_ms=X compiled_ms=Y": medians of 30 steps, after each of
which the CPU reads the loss.
The shapes are those of tests/gpu/captured_step_test.cpp.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

NAME, PRECISION = sys.argv[1:3]
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
LAYERS, HEADS, FEATURES, BLOCK, VOCABULARY = 6, 6, 384, 256, 65


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES, bias=False)
        self.qkv = nn.Linear(FEATURES, 3 * FEATURES, bias=False)
        self.project = nn.Linear(FEATURES, FEATURES, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.project(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES, bias=False)
        self.widen = nn.Linear(FEATURES, 4 * FEATURES, bias=False)
        self.narrow = nn.Linear(4 * FEATURES, FEATURES, bias=False)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, FEATURES)
        self.positions = nn.Embedding(BLOCK, FEATURES)
        self.blocks = nn.Sequential(*(module() for _ in range(LAYERS) for module in (Attention, Mlp)))
        self.norm = nn.LayerNorm(FEATURES, bias=False)
        self.head = nn.Linear(FEATURES, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.positions(places))
        return self.head(self.norm(x)).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.skip = nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet18():
    layers = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inside, outside, stride), Residual(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def batch_of(device):
    if NAME == "gpt":
        tokens = torch.randint(VOCABULARY, (64 // RANKS, BLOCK), device=device)
        return tokens, tokens.flatten()
    size = 128 // RANKS
    return torch.randn(size, 1, 28, 28, device=device), torch.randint(10, (size,), device=device)


def median_ms(is_compiled, device):
    torch.manual_seed(1)
    model = (Gpt() if NAME == "gpt" else resnet18()).to(device)
    if RANKS > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    run = torch.compile(model, mode="reduce-overhead") if is_compiled else model
    if NAME == "gpt":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    inputs, targets = batch_of(device)
    times = []
    for step in range(60):
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=PRECISION == "bf16"):
            loss = F.cross_entropy(run(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= 30:
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main():
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if RANKS > 1:
        dist.init_process_group("nccl")
    eager, compiled = median_ms(False, device), median_ms(True, device)
    if rank == 0:
        print(f"peer {NAME} {PRECISION} ranks={RANKS} eager_ms={eager:.3f} compiled_ms={compiled:.3f}", flush=True)
    if RANKS > 1:
        dist.destroy_process_group()


main()
