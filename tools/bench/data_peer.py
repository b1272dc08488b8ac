# SPDX-License-Identifier: BSD-3-Clause
"""torchvision's and timm's side of tools/bench/data.

usage: data_peer.py FOLDER RECIPE FORM WORKERS

FORM is pillow (decoding and transforms of Pillow images) or tensor (decode_jpeg and transforms v2 of uint8 tensors).
Answers each line of the input with the images per second of one pass over the images and the processor time of an image
in ms, over all processes.
"""
import os
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

torch.set_num_threads(1)
folder, recipe, form, workers = sys.argv[1:5]
workers = int(workers)
BATCH = 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def of_pillow():
    from torchvision import transforms as t

    ends = [t.ToTensor(), t.Normalize(MEAN, STD)]
    if recipe == "train":
        return t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), *ends])
    if recipe == "val":
        return t.Compose([t.Resize(256), t.CenterCrop(224), *ends])
    if recipe == "new":
        return t.Compose(
            [
                t.RandomResizedCrop(176),
                t.RandomHorizontalFlip(),
                t.TrivialAugmentWide(),
                t.PILToTensor(),
                t.ConvertImageDtype(torch.float),
                t.Normalize(MEAN, STD),
                t.RandomErasing(p=0.1),
            ]
        )
    from timm.data import create_transform

    return create_transform(
        224,
        is_training=True,
        auto_augment="rand-m7-mstd0.5-inc1",
        interpolation="bicubic",
        color_jitter=None,
        re_prob=0,
    )


def of_tensors():
    ends = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    if recipe == "train":
        return v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *ends])
    if recipe == "val":
        return v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), *ends])
    if recipe == "new":
        return v2.Compose(
            [
                v2.RandomResizedCrop(176, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.TrivialAugmentWide(),
                *ends,
                v2.RandomErasing(p=0.1),
            ]
        )
    bicubic = v2.InterpolationMode.BICUBIC
    return v2.Compose(
        [
            v2.RandomResizedCrop(224, interpolation=bicubic, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandAugment(magnitude=7, interpolation=v2.InterpolationMode.BILINEAR),  # the nearest that there is
            *ends,
        ]
    )


def load_tensor(path):
    data = torchvision.io.read_file(path)
    return torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB)


options = {} if form == "pillow" else {"loader": load_tensor}
transform = of_pillow() if form == "pillow" else of_tensors()
dataset = torchvision.datasets.ImageFolder(os.path.join(folder, "train"), transform, **options)

collate = None
if recipe in ("new", "timm"):
    classes = len(dataset.classes)
    mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=classes), v2.CutMix(alpha=1.0, num_classes=classes)])

    def collate(samples):
        return mix(*torch.utils.data.default_collate(samples))


loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=BATCH,
    shuffle=True,
    drop_last=True,
    num_workers=workers,
    persistent_workers=workers > 0,
    collate_fn=collate,
)


def processor_seconds():
    seconds = time.process_time()
    ticks = os.sysconf("SC_CLK_TCK")
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            seconds += (int(fields[11]) + int(fields[12])) / ticks
    return seconds


for _ in sys.stdin:
    begin, processor, images = time.perf_counter(), processor_seconds(), 0
    for batch in loader:
        images += len(batch[0])
    seconds = time.perf_counter() - begin
    print(f"{images / seconds:.1f} {1e3 * (processor_seconds() - processor) / images:.4f}", flush=True)
