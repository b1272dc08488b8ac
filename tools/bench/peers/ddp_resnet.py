# SPDX-License-Identifier: BSD-3-Clause
"""Step time of ResNet-18 on 32x32 images (CIFAR stem) or ResNet-50 at 224x224."""
import statistics

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import common
import idx


def conv(i, o, k, stride=1):
    return nn.Conv2d(i, o, k, stride, k // 2, bias=False)


class Unit(nn.Module):
    """A residual unit: two 3x3 convolutions, or 1x1, 3x3, 1x1 when bottleneck."""

    def __init__(self, inside, width, stride, bottleneck):
        super().__init__()
        out = width * 4 if bottleneck else width
        plan = [(width, 1, 1), (width, 3, stride), (out, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
        layers, at = [], inside
        for o, k, s in plan:
            layers += [conv(at, o, k, s), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
            at = o
        self.body = nn.Sequential(*layers[:-1])
        same = inside == out and stride == 1
        self.short = nn.Identity() if same else nn.Sequential(conv(inside, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


def resnet(depth, classes, small):
    counts, bottleneck = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}[depth]
    layers = [conv(3, 64, 3) if small else conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if not small:
        layers.append(nn.MaxPool2d(3, 2, 1))
    at = 64
    for stage, n in enumerate(counts):
        for i in range(n):
            width = 64 << stage
            layers.append(Unit(at, width, 2 if stage and i == 0 else 1, bottleneck))
            at = width * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(at, classes))


def main():
    p = common.parser(__doc__, warmup=3, iters=10)
    p.add_argument("--depth", type=int, choices=[18, 50], default=18)
    p.add_argument("--batch", type=int, default=None, help="per rank; default 32, for ResNet-50 256")
    p.add_argument("--mnist", help="folder of MNIST IDX files, padded to 32x32, instead of synthetic images")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--sync", choices=["none", "ddp"], default="ddp")
    p.add_argument("--gradient-as-bucket-view", action="store_true")
    p.add_argument("--static-graph", action="store_true")
    p.add_argument("--no-broadcast-buffers", action="store_true")
    args = p.parse_args()
    batch = args.batch or (32 if args.depth == 18 else 256)
    size, classes = (32, 10) if args.depth == 18 else (224, 1000)

    ranks = common.Ranks(args)
    startup = common.StartUp(ranks)
    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    net = resnet(args.depth, classes, small=size == 32).to(ranks.device, memory_format=layout)
    model = torch.compile(net) if args.compile else net
    if ranks.world > 1 and args.sync == "ddp":
        model = DDP(model, device_ids=ranks.device_ids, gradient_as_bucket_view=args.gradient_as_bucket_view,
                    static_graph=args.static_graph, broadcast_buffers=not args.no_broadcast_buffers)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    torch.manual_seed(args.seed + ranks.rank)
    if args.mnist:
        images, labels = idx.load(args.mnist, "train")
        images, labels = images[ranks.rank::ranks.world], labels[ranks.rank::ranks.world]
    else:
        images = labels = None
        x = torch.randn(batch, 3, size, size, device=ranks.device).contiguous(memory_format=layout)
        y = torch.randint(classes, (batch,), device=ranks.device)

    def next_batch():
        if images is None:
            return x, y
        at = torch.randint(len(images), (batch,))
        z = F.pad(images[at].float().div_(255).sub_(0.1307).div_(0.3081), (2, 2, 2, 2))
        z = z[:, None].expand(-1, 3, -1, -1).contiguous(memory_format=layout)
        return z.to(ranks.device), labels[at].to(ranks.device)

    def step():
        a, b = next_batch()
        with common.autocast(ranks, args):
            loss = F.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.detach()

    times, free, load, loss = common.timed_steps(ranks, args, step, startup)
    common.report(ranks, args, f"ddp_resnet{args.depth}", startup, times, free, load, batch=batch, sync=args.sync,
                  channels_last=args.channels_last, params=sum(q.numel() for q in net.parameters()),
                  data="mnist" if args.mnist else "synthetic",
                  samples_per_second=round(batch * ranks.world / statistics.median(times) * 1e3, 1), loss=round(loss, 4))


if __name__ == "__main__":
    main()
