# SPDX-License-Identifier: BSD-3-Clause
"""Samples per second of PyTorch's data loading, without any training.

  mnist   IDX files in memory, normalized per sample, DataLoader with 0, 1, 2 workers; and whole-batch indexing
  jpeg    a folder of small JPEGs that this script makes: decode, random resized crop, flip, normalize
          (torchvision's ImageFolder with PIL, and torchvision.io.decode_image with the v2 transforms)
  tokens  an 8 MB file of 16-bit tokens, random windows as GPT training takes them
"""
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import common
import idx
from mnist_mlp import Samples


def make_jpegs(folder, count, size):
    """Smooth random pictures in ten class folders."""
    from PIL import Image
    folder = pathlib.Path(folder)
    if len(list(folder.glob("*/*.jpg"))) == count:
        return
    rng = np.random.default_rng(1)
    for i in range(count):
        at = folder / f"class{i % 10}" / f"{i:05d}.jpg"
        at.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (10, 10, 3), np.uint8)).resize((size, size), Image.BICUBIC)
        noise = rng.normal(0, 8, (size, size, 3))
        Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)).save(at, quality=85)


class Windows(Dataset):
    """Random windows of a token file, one per index."""

    def __init__(self, path, block):
        self.data, self.block = np.memmap(path, np.uint16, "r"), block

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        at = int(torch.randint(len(self.data) - self.block - 1, ()))
        w = torch.from_numpy(self.data[at:at + self.block + 1].astype(np.int64))
        return w[:-1], w[1:]


def rate(batches, samples_of, seconds):
    """Median over slices of about `seconds`/5 of samples per second, after one warm-up slice."""
    rates, done, it = [], 0, iter(batches)
    t = time.perf_counter()
    while len(rates) < 6:
        try:
            b = next(it)
        except StopIteration:
            it = iter(batches)
            continue
        done += samples_of(b)
        now = time.perf_counter()
        if now - t > seconds / 5:
            rates.append(done / (now - t))
            done, t = 0, now
    return statistics.median(rates[1:])


def main():
    p = common.parser(__doc__)
    p.add_argument("--mnist", help="folder of MNIST IDX files")
    p.add_argument("--folder", help="where to make JPEGs and tokens; default: a temporary folder")
    p.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--size", type=int, default=160)
    p.add_argument("--crop", type=int, default=128)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--block", type=int, default=256)
    p.add_argument("--seconds", type=float, default=3, help="per measurement")
    args = p.parse_args()
    ranks = common.Ranks(args)
    folder = args.folder or os.path.join(tempfile.gettempdir(), "peer_data")
    os.makedirs(folder, exist_ok=True)
    rows, load = [], common.Contention(ranks)

    def measure(what, batches, workers=None):
        r = rate(batches, lambda b: len(b[0]), args.seconds)
        rows.append({"what": what, "workers": workers, "samples_per_second": round(r, 1)})

    def loaders(what, data, **kw):
        for w in args.workers:
            loader = DataLoader(data, args.batch, shuffle=True, num_workers=w, drop_last=True,
                                persistent_workers=w > 0, **kw)
            measure(what, loader, w)

    if args.mnist:
        images, labels = idx.load(args.mnist, "train")
        loaders("mnist, per sample", Samples(images, labels))

        class Batched(Dataset):                     # the fastest DataLoader way: whole batches by index
            def __len__(self):
                return len(labels)

            def __getitems__(self, at):
                return images[at].float().div_(255).sub_(0.1307).div_(0.3081)[:, None], labels[at]

        loaders("mnist, __getitems__", Batched(), collate_fn=lambda b: b)

        def indexed():
            while True:
                perm = torch.randperm(len(labels))
                for i in range(0, len(perm) - args.batch + 1, args.batch):
                    at = perm[i:i + args.batch]
                    yield images[at].float().div_(255).sub_(0.1307).div_(0.3081)[:, None], labels[at]
        measure("mnist, no DataLoader", indexed())

    jpegs = os.path.join(folder, f"jpeg{args.size}")
    make_jpegs(jpegs, args.count, args.size)
    try:
        import torchvision
        from torchvision import transforms as v1
        from torchvision.transforms import v2
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        old = v1.Compose([v1.RandomResizedCrop(args.crop), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(mean, std)])
        new = v2.Compose([v2.RandomResizedCrop(args.crop, antialias=True), v2.RandomHorizontalFlip(),
                          v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
        loaders("jpeg, ImageFolder PIL", torchvision.datasets.ImageFolder(jpegs, old))
        read = torchvision.io.decode_image
        loaders("jpeg, decode_image v2", torchvision.datasets.ImageFolder(jpegs, new, loader=read))
    except ImportError:
        from PIL import Image

        class Pictures(Dataset):
            files = sorted(pathlib.Path(jpegs).glob("*/*.jpg"))

            def __len__(self):
                return len(self.files)

            def __getitem__(self, i):
                x = np.asarray(Image.open(self.files[i]).convert("RGB").resize((args.crop, args.crop)), np.float32)
                return torch.from_numpy(x).permute(2, 0, 1).div(255), i % 10
        loaders("jpeg, PIL", Pictures())

    path = os.path.join(folder, "tokens.bin")
    if not os.path.exists(path):
        np.random.default_rng(2).integers(0, 50257, 4 << 20, np.uint16).tofile(path)
    loaders(f"tokens x{args.block}, per sample", Windows(path, args.block))
    data = np.memmap(path, np.uint16, "r")

    def stacked():                                  # the common training loop's way
        while True:
            at = torch.randint(len(data) - args.block - 1, (args.batch,))
            yield (torch.stack([torch.from_numpy(data[i:i + args.block].astype(np.int64)) for i in at]),
                   torch.stack([torch.from_numpy(data[i + 1:i + 1 + args.block].astype(np.int64)) for i in at]))

    whole, offsets = torch.from_numpy(np.fromfile(path, np.uint16).astype(np.int64)), torch.arange(args.block)

    def gathered():
        while True:
            at = torch.randint(len(whole) - args.block - 1, (args.batch, 1)) + offsets
            yield whole[at], whole[at + 1]
    measure(f"tokens x{args.block}, stacked windows", stacked())
    measure(f"tokens x{args.block}, one gather", gathered())
    common.report(ranks, args, "dataloader", None, None, None, load.stop(), batch=args.batch, crop=args.crop, rows=rows)


if __name__ == "__main__":
    main()
