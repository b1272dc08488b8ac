# SPDX-License-Identifier: BSD-3-Clause
"""The newcomer's job: train a small network on MNIST and print its test accuracy.

--loader dataset   a Dataset that normalizes one sample at a time, behind a DataLoader (the tutorials' way)
--loader tensor    the whole set as one tensor, batches by indexing (the fastest plain PyTorch way)
"""
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import common
import idx


class Samples(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = self.images[i].float().div(255).sub(0.1307).div(0.3081)
        return x[None], self.labels[i]


def build(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    p = common.parser(__doc__)
    p.add_argument("data", help="folder of MNIST IDX files")
    p.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    p.add_argument("--loader", choices=["dataset", "tensor"], default="dataset")
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    p.add_argument("--impl", choices=["default", "foreach", "fused"], default="default")
    p.add_argument("--batch", type=int, default=64, help="global batch")
    p.add_argument("--epochs", type=int, default=5)
    args = p.parse_args()

    ranks = common.Ranks(args)
    startup = common.StartUp(ranks)
    share = args.batch // ranks.world
    train, test = idx.load(args.data, "train"), idx.load(args.data, "t10k")
    net = build(args.model).to(ranks.device)
    model = torch.compile(net) if args.compile else net
    if ranks.world > 1:
        model = DDP(model, device_ids=ranks.device_ids)
    impl = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.impl]
    if args.optimizer == "adam":
        opt = torch.optim.Adam(net.parameters(), lr=1e-3, **impl)
    else:
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, **impl)

    def normal(images):
        return images.float().div_(255).sub_(0.1307).div_(0.3081)[:, None]

    if args.loader == "dataset":
        data = Samples(*train)
        sampler = DistributedSampler(data, ranks.world, ranks.rank, shuffle=True, seed=args.seed, drop_last=True)
        loader = DataLoader(data, share, sampler=sampler, num_workers=args.workers, drop_last=True,
                            persistent_workers=args.workers > 0)

        def batches(epoch):
            sampler.set_epoch(epoch)
            yield from loader
    else:
        x_all, y_all = normal(train[0]), train[1]
        order = torch.Generator().manual_seed(args.seed)

        def batches(epoch):
            perm = torch.randperm(len(y_all), generator=order)
            for i in range(0, len(perm) - args.batch + 1, args.batch):
                at = perm[i + ranks.rank * share:i + (ranks.rank + 1) * share]
                yield x_all[at], y_all[at]

    load, seconds, times = common.Contention(ranks), [], []
    for epoch in range(args.epochs):
        t_epoch = t = time.perf_counter()
        for x, y in batches(epoch):
            with common.autocast(ranks, args):
                loss = F.cross_entropy(model(x.to(ranks.device)), y.to(ranks.device))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            ranks.sync()
            startup.first_step_done()
            now = time.perf_counter()
            times.append((now - t) * 1e3)
            t = now
        seconds.append(time.perf_counter() - t_epoch)
    net.eval()
    with torch.no_grad():
        mine = torch.arange(ranks.rank, len(test[1]), ranks.world)
        right = (net(normal(test[0][mine]).to(ranks.device)).argmax(1).cpu() == test[1][mine]).sum()
    accuracy = ranks.reduce([float(right)], "sum")[0] / len(test[1])
    seconds = ranks.reduce(seconds)
    load = load.stop()
    wall = round(time.time() - startup.launch, 2) if startup.launch else None
    n = len(train[1])
    common.report(ranks, args, "mnist_" + args.model, startup, ranks.reduce(times), None, load, loader=args.loader,
                  workers=args.workers, optimizer=args.optimizer, impl=args.impl, batch=args.batch,
                  epochs=args.epochs, epoch_s=[round(s, 3) for s in seconds], wall_s=wall,
                  samples_per_second=round(n / sorted(seconds)[len(seconds) // 2], 1),
                  accuracy=round(accuracy, 4), loss=round(float(loss.detach()), 4))


if __name__ == "__main__":
    main()
