# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of tools/bench/photos: the training of tools/configs/photos.ini with DistributedDataParallel.

usage: torchrun --nproc-per-node N photos_peer.py FOLDER FORM WORKERS [EPOCHS]

FORM is pillow (ImageFolder and the transforms of Pillow images) or tensor (decode_image and transforms v2 of uint8
tensors). Rank 0 prints the validation accuracy after the last epoch.
"""
import os
import sys

import torch
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH = 48
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def of_pillow():
    from torchvision import transforms as t

    ends = [t.ToTensor(), t.Normalize(MEAN, STD)]
    train = t.Compose([t.RandomResizedCrop(32, scale=(0.4, 1.0)), t.RandomHorizontalFlip(), *ends])
    return train, t.Compose([t.Resize(36), t.CenterCrop(32), *ends])


def of_tensors():
    from torchvision.transforms import v2

    ends = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    crop = v2.RandomResizedCrop(32, scale=(0.4, 1.0), antialias=True)
    train = v2.Compose([crop, v2.RandomHorizontalFlip(), *ends])
    return train, v2.Compose([v2.Resize(36, antialias=True), v2.CenterCrop(32), *ends])


def load_tensor(path):
    return torchvision.io.decode_image(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)


def network(classes):
    layers, before = [], 3
    for channels in (16, 32, 64):
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, classes))


def main():
    folder, form, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    epochs = int(sys.argv[4]) if len(sys.argv) > 4 else 40
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    options = {} if form == "pillow" else {"loader": load_tensor}
    transforms = of_pillow() if form == "pillow" else of_tensors()
    train, val = (
        torchvision.datasets.ImageFolder(os.path.join(folder, part), transform, **options)
        for part, transform in zip(("train", "val"), transforms)
    )
    sampler = DistributedSampler(train, ranks, rank, shuffle=True, seed=1, drop_last=True)
    common = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(train, GLOBAL_BATCH // ranks, sampler=sampler, drop_last=True, **common)
    val_loader = DataLoader(torch.utils.data.Subset(val, range(rank, len(val), ranks)), 64, **common)

    net = network(len(train.classes))
    model = DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * len(loader))
    loss_of = nn.CrossEntropyLoss()

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        net.train()
        for images, labels in loader:
            loss = loss_of(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        net.eval()
        right = torch.zeros(1)
        with torch.no_grad():
            for images, labels in val_loader:
                right += (net(images).argmax(1) == labels).sum()
        torch.distributed.all_reduce(right)
    if rank == 0:
        print(f"accuracy {float(right) / len(val):.4f}", flush=True)
    os._exit(0)  # destructors of a process group can wait for each other forever


if __name__ == "__main__":
    main()
