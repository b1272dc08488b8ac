# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of tools/bench/weights: from a file of weights to the first step with DistributedDataParallel.

usage: torchrun --nproc-per-node N weights_peer.py FILE DEPTH

FILE is a .safetensors or .pth file of timm's vit_large_patch16_224 with DEPTH blocks, images of 32 x 32 pixels and 10
classes. PEER_LAUNCH_TIME is the time of the launch. Rank 0 prints the seconds until the end of its first step and the
largest VmHWM of a rank in MB, before the first step and after it.
"""
import os
import sys
import time

import timm
import torch
from torch.nn.parallel import DistributedDataParallel


def peak_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return float(line.split()[1]) / 1024


def largest(value):
    tensor = torch.tensor([value])
    torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
    return float(tensor)


def main():
    path, depth = sys.argv[1], int(sys.argv[2])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = timm.create_model("vit_large_patch16_224", img_size=32, depth=depth, num_classes=10)
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        weights = load_file(path)
    else:
        weights = torch.load(path, weights_only=True)
    model.load_state_dict(weights)
    del weights
    loaded = peak_mb()
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    generator = torch.Generator().manual_seed(rank)
    images = torch.randn(1, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (1,), generator=generator)
    torch.nn.functional.cross_entropy(wrapped(images), labels).backward()
    optimizer.step()
    seconds = time.time() - float(os.environ["PEER_LAUNCH_TIME"])
    loaded, peak = largest(loaded), largest(peak_mb())
    if rank == 0:
        print(f"first step {seconds:.3f} s, loaded {loaded:.0f} MB, peak {peak:.0f} MB", flush=True)
    os._exit(0)  # destructors of a process group can wait for each other forever


if __name__ == "__main__":
    main()
