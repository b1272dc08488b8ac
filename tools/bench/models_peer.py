# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of tools/bench/models: one model, whose training steps or forwards are timed on request.

usage: models_peer.py PIPES MODEL SIDE BATCH CLASSES PRECISION WAY [--device=cuda]

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are those of torch.distributed. WAY is eager, channels_last, compile or
compile_channels_last. PIPES.in.R and PIPES.out.R are pipes of rank R; see models.cpp, which has the same values.
"""
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WARM_UP_STEPS = 2
COMPILED_WARM_UP_STEPS = 4
clock = time.process_time if os.environ.get("MODELS_CLOCK") == "processor" else time.perf_counter


class Twice(nn.Module):
    """Two times convolution, normalization and ReLU."""

    def __init__(self, before, after):
        super().__init__()
        layers = []
        for inside in (before, after):
            layers += [nn.Conv2d(inside, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), Twice(before, after))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.up = nn.ConvTranspose2d(before, before // 2, 2, stride=2)
        self.conv = Twice(before, after)

    def forward(self, low, skip):
        return self.conv(torch.cat([skip, self.up(low)], 1))


class OneByOne(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 1)

    def forward(self, x):
        return self.conv(x)


class Unet(nn.Module):
    def __init__(self, classes, width=64, depth=4):
        super().__init__()
        self.depth = depth
        self.inc = Twice(3, width)
        for i in range(1, depth + 1):
            self.add_module(f"down{i}", Down(width << (i - 1), width << i))
            self.add_module(f"up{i}", Up(width << (depth + 1 - i), width << (depth - i)))
        self.outc = OneByOne(width, classes)

    def forward(self, x):
        levels = [self.inc(x)]
        for i in range(1, self.depth + 1):
            levels.append(getattr(self, f"down{i}")(levels[-1]))
        x = levels.pop()
        for i in range(1, self.depth + 1):
            x = getattr(self, f"up{i}")(x, levels.pop())
        return self.outc(x)


def network(name, classes):
    if name == "unet":
        return Unet(classes)
    if name in ("resnet18", "resnet50"):
        import torchvision

        net = getattr(torchvision.models, name)(num_classes=classes)
        if name == "resnet18":  # for images of 32 x 32 pixels
            net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            net.maxpool = nn.Identity()
        return net
    import timm

    return timm.create_model(name, num_classes=classes)


def scattered(name, shape):
    """Numbers in [-1, 1) that a formula scatters."""
    start = 0x811C9DC5
    for byte in name.encode():
        start = ((start ^ byte) * 0x01000193) & 0xFFFFFFFF
    mask = 0xFFFFFFFF
    x = (torch.arange(1, math.prod(shape) + 1) + start) & mask
    x = (x * 0x9E3779B1) & mask
    x = ((x ^ (x >> 15)) * 0x85EBCA6B) & mask
    x = x ^ (x >> 13)
    return (x.float() * 2.0**-31 - 1.0).view(shape)


@torch.no_grad()
def initialize(net):
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.dim() > 1:
            scale = 0.02 if parameter.dim() == 3 else math.sqrt(3 / (parameter.numel() // parameter.size(0)))
            parameter.copy_(scattered(name, parameter.shape) * scale)


class Contender:
    def __init__(self, name, side, batch, classes, precision, way, device):
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device = device
        if self.ranks > 1:
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        self.precision = precision
        net = network(name, classes)
        initialize(net)
        net = net.to(device)
        shape = [batch, side, side] if name == "unet" else [batch]
        self.images = scattered(f"images{self.rank}", [batch, 3, side, side]).to(device)
        self.targets = (torch.arange(math.prod(shape)) * 7 % classes).view(shape).to(device)
        if "channels_last" in way:
            net = net.to(memory_format=torch.channels_last)
            self.images = self.images.contiguous(memory_format=torch.channels_last)
        self.net = net
        self.model = net
        if self.ranks > 1:
            self.model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
        self.is_compiled = "compile" in way
        self.forward_model = net
        if self.is_compiled:
            self.model, self.forward_model = torch.compile(self.model), torch.compile(net)
        if name in ("resnet18", "resnet50", "unet"):
            self.optimizer = torch.optim.SGD(
                net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)
        else:
            self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    def casts(self):
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16")

    def step(self):
        with self.casts():
            loss = F.cross_entropy(self.model(self.images), self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def forward(self):
        with torch.inference_mode(), self.casts():
            output = self.forward_model(self.images)
        return output.cpu()

    def times(self, what, count):
        self.net.train(what == "step")
        function = self.step if what == "step" else self.forward
        result = []
        for _ in range(count):
            if self.ranks > 1:
                dist.barrier()
            begin = clock()
            function()
            result.append(1e3 * (clock() - begin))
        self.net.train()
        return result

    def warm_up(self):
        """Returns the loss of the first step."""
        steps = COMPILED_WARM_UP_STEPS if self.is_compiled else WARM_UP_STEPS
        losses = [self.step() for _ in range(steps)]
        self.times("forward", steps)
        return losses[0]


def main():
    is_cuda = "--device=cuda" in sys.argv
    pipes, name, side, batch, classes, precision, way = [a for a in sys.argv[1:] if not a.startswith("--")]
    contender = Contender(name, int(side), int(batch), int(classes), precision, way, "cuda" if is_cuda else "cpu")
    with open(f"{pipes}.in.{contender.rank}") as requests, open(f"{pipes}.out.{contender.rank}", "w") as answers:
        print("ready", contender.warm_up(), file=answers, flush=True)
        for line in iter(requests.readline, ""):
            if line == "quit\n":
                break
            what, count = line.split()
            print("done", *(f"{t:.3f}" for t in contender.times(what, int(count))), file=answers, flush=True)
    os._exit(0)  # destructors of a process group can wait for each other forever


main()
