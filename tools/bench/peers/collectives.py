# SPDX-License-Identifier: BSD-3-Clause
"""Time of a collective over float32 tensors of 4 KiB to 256 MiB.

algbw = bytes / time; busbw = algbw * factor, the factor of nccl-tests: 2(n-1)/n for all_reduce,
(n-1)/n for all_gather and reduce_scatter, 1 for broadcast.
"""
import statistics
import time

import torch
import torch.distributed as dist

import common


def main():
    p = common.parser(__doc__)
    p.add_argument("--op", choices=["all_reduce", "broadcast", "all_gather", "reduce_scatter"], default="all_reduce")
    p.add_argument("--max-mb", type=int, default=256)
    p.add_argument("--budget", type=float, default=1.5, help="seconds per size, at least 5 runs")
    args = p.parse_args()
    ranks = common.Ranks(args, always_init=True)
    n, dev = ranks.world, ranks.device
    factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0}.get(args.op, (n - 1) / n)
    rows, load, size = [], common.Contention(ranks), 4096
    sizes = []
    while size <= args.max_mb << 20:
        sizes.append(size)
        size *= 4
    if sizes[-1] < args.max_mb << 20:
        sizes.append(args.max_mb << 20)
    for extra in (25 << 20,):            # DDP's default bucket
        if extra <= args.max_mb << 20:
            sizes.append(extra)
    for size in sorted(set(sizes)):
        x = torch.ones(size // 4, device=dev)
        part = torch.ones(size // 4 // n, device=dev)

        def call():
            if args.op == "all_reduce":
                dist.all_reduce(x)
            elif args.op == "broadcast":
                dist.broadcast(x, 0)
            elif args.op == "all_gather":
                dist.all_gather_into_tensor(x[: part.numel() * n], part)
            else:
                dist.reduce_scatter_tensor(part, x[: part.numel() * n])

        def once():
            ranks.barrier()
            ranks.sync()
            t = time.perf_counter()
            call()
            ranks.sync()
            return time.perf_counter() - t

        probe = max(ranks.reduce([min(once() for _ in range(3))])[0], 1e-5)
        runs = int(min(200, max(5, args.budget / probe)))
        times = ranks.reduce([once() for _ in range(runs)])
        s = statistics.median(times)
        rows.append({"bytes": size, "median_ms": round(s * 1e3, 4), "min_ms": round(min(times) * 1e3, 4),
                     "max_ms": round(max(times) * 1e3, 4), "runs": runs,
                     "algbw_gbs": round(size / s / 1e9, 3), "busbw_gbs": round(size / s / 1e9 * factor, 3)})
        del x, part
    common.report(ranks, args, "collectives", None, None, None, load.stop(), op=args.op, rows=rows)


if __name__ == "__main__":
    main()
