# SPDX-License-Identifier: BSD-3-Clause
"""Train an MLP with DDP, save every 50 steps, continue from there after a restart by torchrun, and say when."""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", required=True, help="file of the checkpoint")
    parser.add_argument("--progress", required=True, help="file that takes a line for every 10th and each first step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
                              torch.nn.Linear(1024, 10))
    first = 0
    if os.path.exists(args.state):
        saved = torch.load(args.state, weights_only=True)
        net.load_state_dict(saved["model"])
        first = saved["step"]
    model = DDP(net)
    opt = torch.optim.AdamW(net.parameters(), lr=0.001)
    if first > 0:
        opt.load_state_dict(saved["optimizer"])
    with open(args.progress, "a", buffering=1) as log:
        log.write(f"rank {rank} pid {os.getpid()}\n")
        for step in range(first, 1000000):
            x, y = torch.rand(24, 784), torch.randint(0, 10, (24,))
            opt.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
            if rank != 0:
                continue
            if step == first and first > 0:
                log.write(f"resumed {first} {time.time()}\n")
            if (step + 1) % 10 == 0:
                log.write(f"step {step + 1}\n")
            if (step + 1) % 50 == 0:
                torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "step": step + 1},
                           args.state + ".new")
                os.replace(args.state + ".new", args.state)


if __name__ == "__main__":
    main()
