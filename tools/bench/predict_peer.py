# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of tools/bench/predict: a tight loop that writes the five most probable classes of each image.

usage: torchrun --nproc-per-node N predict_peer.py WEIGHTS LIST FORM OUT

The model is torchvision's resnet18 with 10 classes, in evaluation mode without gradients. LIST has the path of an image
in each line, relative to its folder. FORM is eager or channels_last. Ranks take contiguous shares.
"""
import json
import os
import sys

import torch
import torchvision
from PIL import Image
from torchvision import transforms as t

BATCH = 32


class Listed(torch.utils.data.Dataset):
    def __init__(self, path):
        folder = os.path.dirname(path)
        with open(path, encoding="utf-8") as lines:
            self.paths = [os.path.join(folder, line.strip()) for line in lines]
        normalize = t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        self.transform = t.Compose([t.Resize(256), t.CenterCrop(224), t.ToTensor(), normalize])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB"))


def main():
    weights, path, form, out = sys.argv[1:]
    torch.set_num_threads(1)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    model = torchvision.models.resnet18(num_classes=10)
    model.load_state_dict(torch.load(weights, weights_only=True))
    model.eval()
    if form == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    images = Listed(path)
    begin, end = len(images) * rank // ranks, len(images) * (rank + 1) // ranks
    share = torch.utils.data.Subset(images, range(begin, end))
    index = begin
    with torch.inference_mode(), open(f"{out}.{rank}", "w", encoding="utf-8") as lines:
        for batch in torch.utils.data.DataLoader(share, BATCH):
            if form == "channels_last":
                batch = batch.contiguous(memory_format=torch.channels_last)
            probabilities, classes = model(batch).softmax(1).topk(5)
            for row, numbers in zip(probabilities.tolist(), classes.tolist()):
                top = [{"index": c, "probability": round(p, 6)} for p, c in zip(row, numbers)]
                lines.write(json.dumps({"index": index, "top": top}) + "\n")
                index += 1


if __name__ == "__main__":
    main()
