# SPDX-License-Identifier: BSD-3-Clause
"""Three small scientific recipes on made data: Burgers' equation with an FNO or a U-Net, columns with an MLP.

  make    burgers: FILE.h5 in PDEBench's layout; columns: DIR/train_input.h5 and DIR/train_target.h5 as ClimSim's
  train   prints relative L2 after one and ten steps of a rollout (fno, unet) or R2 (columns), beside simple baselines
  step    median time of one training step (fno, unet), batch 16, one thread

  python pde.py make burgers --out burgers/train.h5 --seed 1 --count 200 (and test.h5: --seed 2 --count 40)
  python pde.py train fno --data burgers/train.h5 --test burgers/test.h5 --seed 1
  python pde.py make columns --out columns/train/train_input.h5 --seed 1 --count 100000 (and columns/test: --seed 2 --count 20000)
  python pde.py train columns --data columns/train/train_input.h5 --test columns/test/train_input.h5 --seed 1
  python pde.py step unet

`--out` and `--data` of columns name the file of inputs; that of targets has "target" in place of "input". Weights are those
after the last step: nothing is chosen by the test part. `cpu_s` and `wall_s` are those of the training loop alone.
"""
import os
import sys
import time
from functools import partial

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import common

RECIPES = {"fno": (8, 16, 5e-3), "unet": (6, 16, 3e-3), "columns": (8, 256, 3e-3)}  # Epochs, batch, highest learning rate.


def advect(v, slope):
    return slope * np.fft.rfft(np.fft.irfft(v) ** 2)


def burgers(count, seed, viscosity=0.004, frames=21, between=0.05, points=256, fine=1024, dt=1e-3):
    """u_t + u u_x = viscosity u_xx on [0, 1), periodic: [count, frames, points].
    Initial states: sine and cosine of wave numbers 1 to 4 with normal amplitudes, scaled to a root mean square of 1 each.
    Fourier modes in double, the upper third of them zero in products; exact diffusion, Runge-Kutta of order 4 for the rest.
    """
    rng = np.random.default_rng(seed)
    amplitude = rng.standard_normal((count, 4, 2))
    phase = 2 * np.pi * np.arange(1, 5)[:, None] * np.arange(fine) / fine
    u = amplitude[:, :, 0] @ np.cos(phase) + amplitude[:, :, 1] @ np.sin(phase)
    v = np.fft.rfft(u / np.sqrt((u ** 2).mean(1, keepdims=True)))
    k = np.arange(fine // 2 + 1)
    slope = -0.5 * 2j * np.pi * k * (k <= fine // 3)
    half = np.exp(-viscosity * (2 * np.pi * k) ** 2 * dt / 2)
    tensor = np.empty((count, frames, points), np.float32)
    for frame in range(frames):
        for _ in range(round(between / dt) if frame else 0):
            a = advect(v, slope)
            b = advect(half * (v + dt / 2 * a), slope)
            c = advect(half * v + dt / 2 * b, slope)
            d = advect(half * (half * v + dt * c), slope)
            v = half * (half * (v + dt / 6 * a) + dt / 3 * (b + c)) + dt / 6 * d
        tensor[:, frame] = np.fft.irfft(v, fine)[:, ::fine // points]
    return tensor, np.arange(points) / points, between * np.arange(frames)


def inputs(rng, count):
    """Smooth profiles of two quantities on 30 levels (six cosines, those of many waves weak; correlated), and four numbers."""
    k = np.arange(6)[:, None]
    waves = np.cos(np.pi * k * np.arange(30) / 29) / (1 + k)
    waves /= np.sqrt((waves ** 2).sum(0).mean())
    t, q = rng.standard_normal((count, 6)) @ waves, rng.standard_normal((count, 6)) @ waves
    return np.concatenate([t, 0.5 * t + q, rng.standard_normal((count, 4))], 1)


def rule(x):
    """Heating and moistening of columns, on seven levels and their mean: without noise, and not normalised."""
    t, q, (sun, flux, wind, lid) = x[:, :30], x[:, 30:60], x[:, 60:].T[:, :, None]
    rain = np.maximum(q - np.tanh(t), 0)                                # What is above saturation rains out.
    above = np.cumsum(np.logaddexp(0, q)[:, ::-1], 1)[:, ::-1] / 30     # Water above and at each level dims the sun.
    light = np.maximum(sun, 0) * np.exp(-2 * above)
    mixing = np.tanh(flux + wind * t[:, :1]) * np.exp(-3 * np.arange(30) / 29 / (1 + np.exp(-lid)))
    heating = rain + 2 * light + mixing - 0.3 * np.tanh(t)
    moistening = mixing * np.tanh(wind) - rain / (1 + np.exp(-2 * lid))
    return np.concatenate([v for y in (heating, moistening) for v in (y[:, 2::4], y.mean(1, keepdims=True))], 1)


def columns(count, seed, noise=0.1):
    """64 inputs, 16 targets; the noise is 0.1 of their deviation, whose measure is the same for every seed."""
    reference, rng = rule(inputs(np.random.default_rng(0), 10000)), np.random.default_rng(seed)
    x = inputs(rng, count)
    y = (rule(x) - reference.mean(0)) / reference.std(0)
    return x, y + noise * rng.standard_normal(y.shape)


def target_file(path):
    if "input" not in os.path.basename(path):
        sys.exit(f"{path}: the file of inputs must have 'input' in its name, as train_input.h5")
    return os.path.join(os.path.dirname(path), os.path.basename(path).replace("input", "target"))


def make(args):
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    if args.which == "burgers":
        files = {args.out: zip(("tensor", "x-coordinate", "t-coordinate"), burgers(args.count or 200, args.seed))}
    else:
        x, y = columns(args.count or 100000, args.seed)
        files = {args.out: [("data", x)], target_file(args.out): [("data", y)]}
    for path, arrays in files.items():
        with h5py.File(path, "w") as f:
            for name, values in arrays:
                f[name] = values.astype(np.float32)


def read(path, name):
    with h5py.File(path, "r") as f:
        return torch.from_numpy(f[name][()])


class Point(nn.Conv1d):
    """A convolution of size 1 as a matrix product, which is faster on a CPU."""
    def forward(self, x):
        w = self.weight[:, :, 0].expand(len(x), -1, -1)
        return torch.bmm(w, x) if self.bias is None else torch.baddbmm(self.bias[:, None], w, x)


def points(inputs, hidden, outputs):
    return nn.Sequential(Point(inputs, hidden, 1), nn.GELU(), Point(hidden, outputs, 1))


class Spectral(nn.Module):
    """A complex matrix for each of the frequencies 0 to modes / 2, stored as pairs: AdamW's fused form takes no complex ones."""
    def __init__(self, width, modes):
        super().__init__()
        self.kept, std = modes // 2 + 1, width ** -0.5
        weight = std * torch.randn(width, width, self.kept, dtype=torch.cfloat)
        self.weight = nn.Parameter(torch.view_as_real(weight).clone())
        self.bias = nn.Parameter(std * torch.randn(width, 1))

    def forward(self, x):
        f = torch.fft.rfft(x, norm="forward")[..., :self.kept]
        f = torch.einsum("bif,iof->bof", f, torch.view_as_complex(self.weight))
        return torch.fft.irfft(f, x.shape[-1], norm="forward") + self.bias


class Fno(nn.Module):
    """The FNO of neuraloperator 2.0.0 in one dimension; `modes` counts as there: modes // 2 + 1 frequencies are kept."""
    def __init__(self, width=32, modes=32, depth=4, channels=1):
        super().__init__()
        self.lifting = points(channels + 1, 2 * width, width)
        self.convs = nn.ModuleList(Spectral(width, modes) for _ in range(depth))
        self.skips = nn.ModuleList(Point(width, width, 1, bias=False) for _ in range(depth))
        self.mlps = nn.ModuleList(points(width, round(width / 2), width) for _ in range(depth))
        self.gates = nn.ParameterList(torch.ones(1, width, 1) for _ in range(depth))
        self.projection = points(width, 2 * width, 1)

    def forward(self, x):
        n = x.shape[-1]
        grid = torch.arange(n, dtype=x.dtype) / n
        x = self.lifting(torch.cat([x, grid.expand(len(x), 1, n)], 1))
        for i, (conv, skip, mlp, gate) in enumerate(zip(self.convs, self.skips, self.mlps, self.gates)):
            act = F.gelu if i + 1 < len(self.convs) else nn.Identity()
            x = act(mlp(act(conv(x) + skip(x))) + gate * x)
        return self.projection(x)


def pair(inputs, outputs):
    conv = partial(nn.Conv1d, out_channels=outputs, kernel_size=3, padding=1, padding_mode="circular")
    return nn.Sequential(conv(inputs), nn.ReLU(), conv(outputs), nn.ReLU())


class Unet(nn.Module):
    """The plain U-Net, circular. Without norms: those of a sample would hide how large its state is."""
    def __init__(self, width=16, depth=3, channels=1):
        super().__init__()
        w = [width << i for i in range(depth + 1)]
        self.inc = pair(channels, width)
        self.downs = nn.ModuleList(pair(w[i], w[i + 1]) for i in range(depth))
        self.ups = nn.ModuleList(nn.ConvTranspose1d(w[i + 1], w[i], 2, 2) for i in reversed(range(depth)))
        self.convs = nn.ModuleList(pair(w[i + 1], w[i]) for i in reversed(range(depth)))
        self.outc = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        levels = [self.inc(x)]
        for down in self.downs:
            levels.append(down(F.max_pool1d(levels[-1], 2)))
        y = levels.pop()
        for up, conv in zip(self.ups, self.convs):
            y = conv(torch.cat([levels.pop(), up(y)], 1))
        return self.outc(y)


def mlp():
    return nn.Sequential(*(m for i in (64, 256, 256) for m in (nn.Linear(i, 256), nn.ReLU())), nn.Linear(256, 16))


def relative_l2(p, t):
    return ((p - t).norm(dim=-1) / (t.norm(dim=-1) + 1e-8)).mean()


def update(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()


def fit(args, net, x, y, loss_of):
    """AdamW with a one-cycle schedule over all steps; returns the recipe, steps and seconds."""
    epochs, batch, lr = (getattr(args, k) or v for k, v in zip(("epochs", "batch", "lr"), RECIPES[args.which]))
    steps = len(x) // batch
    opt = torch.optim.AdamW(net.parameters(), lr, weight_decay=0.01, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, lr, epochs * steps)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(epochs):
        for at in torch.randperm(len(x))[:steps * batch].view(steps, batch):
            loss = update(opt, loss_of(net(x[at]), y[at]))
            sched.step()
    used = dict(cpu_s=round(time.process_time() - cpu, 1), wall_s=round(time.perf_counter() - wall, 1))
    return dict(epochs=epochs, batch=batch, lr=lr, steps=epochs * steps, last_loss=round(loss.item(), 5), **used)


def propagate(train, steps, u):
    """The best linear map of one step that commutes with shifts (a factor for each frequency), applied `steps` times."""
    f = torch.fft.rfft(train.double())
    x, y = f[:, :-1], f[:, 1:]
    factor = (x.conj() * y).sum((0, 1)) / x.abs().square().sum((0, 1))
    return torch.fft.irfft(torch.fft.rfft(u.double()) * factor ** steps, u.shape[-1])


def train_burgers(args, net, model):
    train, test = read(args.data, "tensor"), read(args.test, "tensor")
    mean, std, n = train.mean(), train.std(), train.shape[-1]
    z = (train - mean) / std
    result = fit(args, model, z[:, :-1].reshape(-1, 1, n), z[:, 1:].reshape(-1, 1, n), relative_l2)
    net.eval()
    u, errors = (test - mean) / std, []
    with torch.no_grad():
        for k in range(1, 11):  # Every stored state that has k states after it is a start.
            u = net(u[:, :test.shape[1] - k].reshape(-1, 1, n)).view(len(test), -1, n)
            errors.append(relative_l2(u * std + mean, test[:, k:]))
    for k in (1, 10):
        start, truth = test[:, :-k], test[:, k:]
        result[f"relative_l2@{k}"] = round(errors[k - 1].item(), 5)
        result[f"persistence@{k}"] = round(relative_l2(start, truth).item(), 4)
        result[f"linear@{k}"] = round(relative_l2(propagate(train, k, start), truth).item(), 4)
    return result


def r2(p, t):
    return round((1 - (p - t).square().sum(0) / (t - t.mean(0)).square().sum(0)).mean().item(), 4)


def train_columns(args, net, model):
    (x, y), (xt, yt) = [(read(p, "data"), read(target_file(p), "data")) for p in (args.data, args.test)]
    (mx, sx), (my, sy) = [(v.mean(0), v.std(0)) for v in (x, y)]
    z = (x - mx) / sx
    result = fit(args, model, z, (y - my) / sy, F.mse_loss)
    net.eval()
    with torch.no_grad():
        result["r2"] = r2(net((xt - mx) / sx) * sy + my, yt)
    one = lambda v: np.concatenate([v.double().numpy(), np.ones((len(v), 1))], 1)
    result["linear_r2"] = r2(torch.from_numpy(one(xt) @ np.linalg.lstsq(one(x), y.double().numpy(), rcond=None)[0]), yt)
    return result


def step(args, ranks, net, model):
    opt = torch.optim.AdamW(net.parameters(), 1e-3, fused=True)
    x, y = torch.randn(2, args.batch or 16, 1, 256)
    return common.timed_steps(ranks, args, lambda: update(opt, relative_l2(model(x), y)), common.StartUp(ranks))[:3]


def main():
    p = common.parser(__doc__, warmup=20, iters=200)
    p.set_defaults(threads=1, seed=1)
    p.add_argument("what", choices=["make", "train", "step"])
    p.add_argument("which", choices=["burgers", "fno", "unet", "columns"])
    for name, text in (("out", "make: file to write"), ("data", "train: file to train on"), ("test", "train: file to test on")):
        p.add_argument("--" + name, help=text)
    p.add_argument("--count", type=int, default=0, help="make: trajectories or rows; 0: 200 or 100000")
    p.add_argument("--modes", type=int, default=32, help="fno: modes // 2 + 1 frequencies are kept")
    for name, kind in (("epochs", int), ("batch", int), ("lr", float)):
        p.add_argument("--" + name, type=kind, default=0, help="0: as the recipe says")
    args = p.parse_args()
    ok = {"make": ["burgers", "columns"], "train": list(RECIPES), "step": ["fno", "unet"]}[args.what]
    if args.which not in ok or args.backend != "gloo" or args.dtype != "fp32":
        p.error(f"{args.what} takes one of {', '.join(ok)}, on the CPU in float32")
    if not {"make": args.out, "train": args.data and args.test, "step": True}[args.what]:
        p.error("make needs --out, train needs --data and --test")
    if args.what == "make":
        return make(args)
    ranks = common.Ranks(args)  # Sets the seed.
    models = {"fno": partial(Fno, modes=args.modes), "unet": Unet, "columns": mlp}
    net = models[args.which]()
    model = torch.compile(net) if args.compile else net
    about = dict(seed=args.seed, parameters=sum(w.numel() for w in net.parameters()))
    if args.what == "step":
        common.report(ranks, args, f"pde_step_{args.which}", None, *step(args, ranks, net, model), batch=args.batch or 16, **about)
    else:
        load = common.Contention(ranks)
        result = (train_columns if args.which == "columns" else train_burgers)(args, net, model)
        common.report(ranks, args, f"pde_train_{args.which}", contention=load.stop(), **about, **result)


if __name__ == "__main__":
    main()
