# SPDX-License-Identifier: BSD-3-Clause
"""Train a small GPT on characters, or time a larger one on synthetic tokens.

The model follows the GPT-2 paper: pre-norm blocks, causal attention, GELU, tied embeddings, no biases.
Presets:
  cpu_char  block 64, batch 12, 4 layers, 4 heads, 128 wide, no dropout, 2000 steps
            (nanoGPT's README reports a validation loss of 1.88 for this)
  baby      block 256, batch 64, 6 layers, 6 heads, 384 wide, dropout 0.2, 5000 steps (README: 1.4697, best)
  gpt2      124M parameters, block 1024, synthetic tokens, timing only
The batch is global: every rank draws the same indices and takes its slice, so any number of ranks does the same work.
"""
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import common

PRESETS = {
    "cpu_char": dict(block=64, batch=12, layers=4, heads=4, width=128, dropout=0.0, steps=2000, lr=1e-3, beta2=0.99),
    "baby": dict(block=256, batch=64, layers=6, heads=6, width=384, dropout=0.2, steps=5000, lr=1e-3, beta2=0.99),
    "gpt2": dict(block=1024, batch=16, layers=12, heads=12, width=768, dropout=0.0, steps=0, lr=6e-4, beta2=0.95),
}


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(c, 2))
        drop = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        a = self.out(a.transpose(1, 2).reshape(b, t, c))
        x = x + F.dropout(a, drop)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), drop)


class GPT(nn.Module):
    def __init__(self, vocab, block, layers, heads, width, dropout):
        super().__init__()
        self.dropout = dropout
        self.token = nn.Embedding(vocab, width)
        self.place = nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, x, y):
        h = self.token(x) + self.place.weight[: x.shape[1]]
        h = F.dropout(h, self.dropout if self.training else 0.0)
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm(h), self.token.weight)   # tied
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), y.reshape(-1))


def read_tokens(path, device):
    """Characters as indices, 90 percent to train and 10 to validate."""
    text = open(path, encoding="utf-8").read()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[c] for c in text], dtype=torch.long)
    cut = int(0.9 * len(ids))
    return ids[:cut].to(device), ids[cut:].to(device), len(index)


def main():
    p = common.parser(__doc__, warmup=10, iters=30)
    p.add_argument("--preset", choices=PRESETS, default="cpu_char")
    p.add_argument("--data", help="text file; without it: synthetic tokens, timing only")
    p.add_argument("--steps", type=int, default=None, help="training steps (preset's); 0: timing only")
    p.add_argument("--batch", type=int, default=None, help="global batch (preset's)")
    p.add_argument("--eval-batches", type=int, default=20)
    p.add_argument("--impl", choices=["default", "foreach", "fused"], default="default", help="AdamW implementation")
    p.add_argument("--gradient-as-bucket-view", action="store_true")
    p.add_argument("--static-graph", action="store_true")
    args = p.parse_args()
    c = dict(PRESETS[args.preset])
    if args.steps is not None:
        c["steps"] = args.steps
    if args.batch is not None:
        c["batch"] = args.batch

    ranks = common.Ranks(args)
    startup = common.StartUp(ranks)
    assert c["batch"] % ranks.world == 0, "the global batch must divide among the ranks"
    share = c["batch"] // ranks.world
    if args.data:
        train, val, vocab = read_tokens(args.data, ranks.device)
    else:
        vocab = 50304
        train = val = torch.randint(vocab, (1 << 20,), device=ranks.device)
        c["steps"] = 0

    net = GPT(vocab, c["block"], c["layers"], c["heads"], c["width"], c["dropout"]).to(ranks.device)
    n_params = sum(q.numel() for q in net.parameters())
    model = torch.compile(net) if args.compile else net
    if ranks.world > 1:
        model = DDP(model, device_ids=ranks.device_ids, gradient_as_bucket_view=args.gradient_as_bucket_view,
                    static_graph=args.static_graph)
    impl = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.impl]
    groups = [{"params": [q for q in net.parameters() if q.dim() > 1], "weight_decay": 0.1},
              {"params": [q for q in net.parameters() if q.dim() < 2], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=c["lr"], betas=(0.9, c["beta2"]), **impl)
    order = torch.Generator().manual_seed(args.seed)   # the same on every rank
    torch.manual_seed(args.seed + ranks.rank)          # dropout differs
    offsets = torch.arange(c["block"], device=ranks.device)

    def batch(ids):
        at = torch.randint(len(ids) - c["block"], (c["batch"],), generator=order)
        at = at[ranks.rank * share:(ranks.rank + 1) * share].to(ranks.device)
        where = at[:, None] + offsets
        return ids[where], ids[where + 1]

    def rate(i):
        """100 warm-up steps, then a cosine to a tenth of the rate."""
        if i < 100:
            return c["lr"] * (i + 1) / 101
        low, done = c["lr"] / 10, (i - 100) / max(1, c["steps"] - 100)
        return low + 0.5 * (1 + math.cos(math.pi * min(1.0, done))) * (c["lr"] - low)

    count = 0

    def step():
        nonlocal count
        for g in opt.param_groups:
            g["lr"] = rate(count)
        count += 1
        with common.autocast(ranks, args):
            loss = model(*batch(train))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.detach()

    extra = dict(preset=args.preset, params=n_params, batch=c["batch"], block=c["block"], impl=args.impl,
                 gradient_as_bucket_view=args.gradient_as_bucket_view)
    if c["steps"] == 0:
        times, free, load, loss = common.timed_steps(ranks, args, step, startup)
    else:
        times, load, t_run = [], common.Contention(ranks), time.perf_counter()
        for _ in range(c["steps"]):
            t = time.perf_counter()
            loss = step()
            ranks.sync()
            startup.first_step_done()
            times.append((time.perf_counter() - t) * 1e3)
        free = (time.perf_counter() - t_run) * 1e3 / c["steps"]
        loss, load = float(loss), load.stop()
        extra["train_seconds"] = round(free * c["steps"] / 1e3, 2)
        times = ranks.reduce(times[min(args.warmup, len(times) - 1):])
        net.eval()
        with torch.no_grad():
            total = 0.0
            for _ in range(args.eval_batches):
                with common.autocast(ranks, args):
                    total += float(net(*batch(val)))
        extra["val_loss"] = round(ranks.reduce([total], "sum")[0] / ranks.world / args.eval_batches, 4)
        extra["steps"] = c["steps"]
        if startup.launch:
            extra["wall_s"] = round(time.time() - startup.launch, 2)
    extra["tokens_per_second"] = round(c["batch"] * c["block"] / statistics.median(times) * 1e3)
    common.report(ranks, args, "ddp_gpt", startup, times, free, load, loss=round(loss, 4), **extra)


if __name__ == "__main__":
    main()
