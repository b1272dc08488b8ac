# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's side of tools/bench/optimizers: the work of optimizers.cpp.

usage: optimizers_peer.py CLASS [ARGUMENT=VALUE...]

Reads lines with the name of a form (foreach, fused or single) and answers each with the processor time of a step in
that form in ms and the mean square of the parameters after it. OPTIMIZERS_TENSORS is that of optimizers.cpp. All forms
share parameters and state.
"""
import os
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(1337)
parameters = []
for rows in (2000, 490, 10):
    for _ in range(int(os.environ.get("OPTIMIZERS_TENSORS", "50"))):
        parameter = torch.randn(rows, 1000, requires_grad=True)
        parameter.grad = torch.randn(rows, 1000)
        parameters.append(parameter)

arguments = {name: eval(value) for name, value in (text.split("=") for text in sys.argv[2:])}
optimizer = getattr(torch.optim, sys.argv[1])(parameters, **arguments)


def mean_square():
    total = sum(part.double().square_().sum().item() for p in parameters for part in p.detach().split(100))
    return total / sum(p.numel() for p in parameters)


def step(form):
    group = optimizer.param_groups[0]
    if form != "single" and form not in group:
        raise RuntimeError("no such form")
    for name in ("foreach", "fused"):
        if name in group:
            group[name] = name == form
    begin = time.process_time()
    optimizer.step()
    return 1e3 * (time.process_time() - begin)


for line in sys.stdin:
    form, *check = line.split()
    try:
        print(f"{step(form):.2f} {mean_square() if check else 0:.9g}", flush=True)
    except RuntimeError as error:
        print("none", str(error).split("\n")[0], flush=True)
