# SPDX-License-Identifier: BSD-3-Clause
"""Read MNIST's IDX files (gzip)."""
import gzip
import pathlib

import numpy as np
import torch


def read_idx(path):
    raw = gzip.open(path, "rb").read()
    dims = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load(folder, split):
    """uint8 images (N, 28, 28) and int64 labels; split is 'train' or 't10k'."""
    folder = pathlib.Path(folder)
    images = read_idx(folder / f"{split}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{split}-labels-idx1-ubyte.gz")
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype("int64"))
