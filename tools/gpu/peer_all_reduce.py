#!/usr/bin/env python3
"""NCCL and torch symmetric memory at the sizes of `hayate bench all-reduce`, on all GPUs.

    tools/gpu/peer_all_reduce.py OURS.json OUT.json

OURS.json is what `hayate bench all-reduce --json` printed. NVLink multicast stays off, as it does with
us. OUT.json lists, for each size, microseconds of NCCL and of the better of symmetric memory's
one-shot and two-shot sums.
"""

import json
import os
import statistics
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import torch.multiprocessing as mp

CALLS = 50
ROUNDS = 15


def time_us(call) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                call()
    micros = []
    for _ in range(ROUNDS):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        micros.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(micros)


def run(rank: int, world: int, sizes: list[int], out: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "NCCL_NVLS_ENABLE": "0"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name
    results = []
    for size in sizes:
        data = torch.zeros(size // 2, device="cuda", dtype=torch.bfloat16)
        shared = symmetric.empty(size // 2, device="cuda", dtype=torch.bfloat16)
        symmetric.rendezvous(shared, group)
        operators = (torch.ops.symm_mem.one_shot_all_reduce, torch.ops.symm_mem.two_shot_all_reduce_)
        peers = [time_us(lambda op=op, s=shared: op(s, "sum", group)) for op in operators]
        results.append({"bytes": size, "nccl_us": time_us(lambda d=data: dist.all_reduce(d)), "symmetric_us": min(peers)})
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"ranks": world, "all_reduce": results}, file, indent=1)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    ours, out = sys.argv[1:]
    with open(ours) as file:
        measured = json.load(file)
    sizes = [result["bytes"] for result in measured["all_reduce"]]
    mp.spawn(run, args=(measured["ranks"], sizes, out), nprocs=measured["ranks"])
    with open(out) as file:
        peers = json.load(file)["all_reduce"]
    for us, peer in zip(measured["all_reduce"], peers, strict=True):
        print(
            f"{us['bytes'] // 1024:>6} KB  {us['us']:>8.2f} us   NCCL {peer['nccl_us']:>8.2f} ({peer['nccl_us'] / us['us']:.2f}x)"
            f"   symmetric memory {peer['symmetric_us']:>8.2f} ({peer['symmetric_us'] / us['us']:.2f}x)"
        )


if __name__ == "__main__":
    main()
