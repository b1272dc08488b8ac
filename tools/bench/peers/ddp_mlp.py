# SPDX-License-Identifier: BSD-3-Clause
"""Step time of a 6 x (Linear(1024, 1024) + ReLU) network, the smallest honest DDP workload.

--sync says how the gradients meet:
  none       no communication: the compute floor
  ddp        DistributedDataParallel with the options below
  flat       one all_reduce of all gradients after backward
  per_param  one blocking all_reduce per parameter after backward (the hand-written loop of many examples)
  zero1      DDP and ZeroRedundancyOptimizer (optimizer state divided among the ranks)
  horovod    horovod.torch.DistributedOptimizer (where Horovod is installed; start with mpirun)
"""
import statistics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import common


def build_optimizer(params, args, ranks):
    impl = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.impl]
    cls = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[args.optimizer]
    opts = dict(lr=0.01, **impl)
    if args.sync == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(params, optimizer_class=cls, **opts)
    return cls(params, **opts)


def main():
    p = common.parser(__doc__)
    p.add_argument("--batch", type=int, default=8, help="samples per rank")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--sync", choices=["none", "ddp", "flat", "per_param", "zero1", "horovod"], default="ddp")
    p.add_argument("--gradient-as-bucket-view", action="store_true")
    p.add_argument("--bucket-cap-mb", type=float, default=None)
    p.add_argument("--static-graph", action="store_true")
    p.add_argument("--hook", choices=["none", "fp16", "bf16"], default="none", help="gradient compression hook")
    p.add_argument("--keep-grads", action="store_true", help="zero_grad(set_to_none=False)")
    p.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    p.add_argument("--impl", choices=["default", "foreach", "fused"], default="default")
    args = p.parse_args()

    if args.sync == "horovod":
        import horovod.torch as hvd
        hvd.init()
    ranks = common.Ranks(args)
    startup = common.StartUp(ranks)
    net = nn.Sequential(*[m for _ in range(args.layers) for m in (nn.Linear(args.width, args.width), nn.ReLU())])
    net.to(ranks.device)
    model = torch.compile(net) if args.compile else net
    if args.sync in ("ddp", "zero1") and ranks.world > 1:
        opts = {} if args.bucket_cap_mb is None else {"bucket_cap_mb": args.bucket_cap_mb}
        model = DDP(model, device_ids=ranks.device_ids, gradient_as_bucket_view=args.gradient_as_bucket_view,
                    static_graph=args.static_graph, **opts)
        if args.hook != "none":
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
            model.register_comm_hook(None, {"fp16": hooks.fp16_compress_hook, "bf16": hooks.bf16_compress_hook}[args.hook])
    params = list(net.parameters())
    opt = build_optimizer(params, args, ranks)
    if args.sync == "horovod":
        opt = hvd.DistributedOptimizer(opt, named_parameters=net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    torch.manual_seed(args.seed + ranks.rank)
    x = torch.randn(args.batch, args.width, device=ranks.device)

    def step():
        net.zero_grad(set_to_none=not args.keep_grads)   # Horovod's optimizer has no such option
        with common.autocast(ranks, args):
            loss = model(x).float().square().mean()
        loss.backward()
        if ranks.world > 1 and args.sync == "flat":
            flat = torch.cat([q.grad.view(-1) for q in params])
            dist.all_reduce(flat)
            flat /= ranks.world
            for q, g in zip(params, flat.split([q.numel() for q in params])):
                q.grad.copy_(g.view_as(q))
        elif ranks.world > 1 and args.sync == "per_param":
            for q in params:
                dist.all_reduce(q.grad)
                q.grad /= ranks.world
        opt.step()
        return loss.detach()

    times, free, load, loss = common.timed_steps(ranks, args, step, startup)
    common.report(ranks, args, "ddp_mlp", startup, times, free, load, batch=args.batch, sync=args.sync,
                  options={k: getattr(args, k) for k in ("gradient_as_bucket_view", "bucket_cap_mb", "static_graph",
                                                         "hook", "keep_grads", "optimizer", "impl")},
                  samples_per_second=round(args.batch * ranks.world / statistics.median(times) * 1e3, 1), loss=loss)


if __name__ == "__main__":
    main()
