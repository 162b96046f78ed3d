#!/usr/bin/env python3
"""The kernels of PyTorch and DeepGEMM at the cases of `hayate bench ops`, on one GPU.

    tools/gpu/peer_kernels.py CASES.json OUT.json

CASES.json is what `hayate bench ops --json` printed. Products run through torch.mm (cuBLASLt, bf16),
torch._scaled_mm with a scale per row (cuBLASLt, fp8) and DeepGEMM's fp8_gemm_nt (128 x 128 blocks,
where the module can be imported); prefill attention through cuDNN's SDPA on the equivalent dense
shape. As in our bench, calls are replayed from a graph over operands that no cache holds, and fp8
activations are quantised beforehand. OUT.json maps a case's name to the peer's microseconds.
"""

import json
import re
import statistics
import sys

import torch

DEVICE = "cuda"
ROTATED = 256 << 20
GRAPH_SECONDS = 0.004
ROUNDS = 5
MATMUL = re.compile(r"matmul/(BF16|F8_E4M3-block|F8_E4M3-row)/\S+\[(\d+),(\d+)\]/T(\d+)$")
PREFILL = re.compile(r"attention/prefill/BF16/(\d+)x(\d+)x(\d+)/B(\d+)-T(\d+)-of-(\d+)$")

try:
    import deep_gemm
    from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
except ImportError:
    deep_gemm = None


def elapsed_s(queue) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    queue()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def time_us(calls) -> float:
    """`calls`: one function for each copy of the operands."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    number = int(min(max(GRAPH_SECONDS / elapsed_s(calls[0]), 4), 64))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        for i in range(number):
            calls[i % len(calls)]()
    elapsed_s(graph.replay)
    replays = 1 + int(0.02 / elapsed_s(graph.replay))

    def replay():
        for _ in range(replays):
            graph.replay()

    return statistics.median(elapsed_s(replay) for _ in range(ROUNDS)) / (number * replays) * 1e6


def copies_of(size: int) -> int:
    return min(max(ROTATED // size + 1, 1), 64)


def matmul_us(kind: str, n: int, k: int, tokens: int) -> float | None:
    copies = copies_of(n * k * (2 if kind == "BF16" else 1))
    x = torch.randn(tokens, k, device=DEVICE, dtype=torch.bfloat16)
    weights = [torch.randn(n, k, device=DEVICE, dtype=torch.bfloat16) * 0.05 for _ in range(copies)]
    if kind == "BF16":
        return time_us([lambda w=w: torch.mm(x, w.t()) for w in weights])
    if kind == "F8_E4M3-row":
        codes = x.to(torch.float8_e4m3fn)
        row_scales = torch.ones(tokens, 1, device=DEVICE)
        col_scales = torch.ones(1, n, device=DEVICE)
        stored = [w.to(torch.float8_e4m3fn) for w in weights]
        del weights
        return time_us(
            [
                lambda w=w: torch._scaled_mm(
                    codes, w.t(), scale_a=row_scales, scale_b=col_scales, out_dtype=torch.bfloat16, use_fast_accum=True
                )
                for w in stored
            ]
        )
    if deep_gemm is None:
        return None
    stored = [per_block_cast_to_fp8(w, use_ue8m0=False) for w in weights]
    del weights
    quantised = per_token_cast_to_fp8(x, use_ue8m0=False)
    out = torch.empty(tokens, n, device=DEVICE, dtype=torch.bfloat16)
    return time_us([lambda w=w: deep_gemm.fp8_gemm_nt(quantised, w, out) for w in stored])


def prefill_us(heads: int, kv_heads: int, dim: int, batch: int, tokens: int, length: int) -> float | None:
    if tokens != length:  # cuDNN's causal mask has no prefix
        return None
    def random(count: int) -> torch.Tensor:
        return torch.randn(batch, count, length, dim, device=DEVICE, dtype=torch.bfloat16)

    operands = [(random(heads), random(kv_heads), random(kv_heads)) for _ in range(3)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        attend = torch.nn.functional.scaled_dot_product_attention
        return time_us([lambda o=o: attend(*o, is_causal=True, enable_gqa=True) for o in operands])


def peer_us(name: str) -> float | None:
    if match := MATMUL.match(name):
        return matmul_us(match[1], *(int(group) for group in match.groups()[1:]))
    if match := PREFILL.match(name):
        return prefill_us(*(int(group) for group in match.groups()))
    return None


def main() -> None:
    cases, out = sys.argv[1:]
    with open(cases) as file:
        operators = json.load(file)["operators"]
    results = {}
    for case in operators:
        try:
            micros = peer_us(case["name"])
        except RuntimeError as error:
            print(f"{case['name']}: {str(error)[:200]}", file=sys.stderr)
            micros = None
        torch.cuda.empty_cache()
        if micros is not None:
            results[case["name"]] = micros
            print(f"{case['name']:<56} {case['us']:>10.2f} {micros:>10.2f} {micros / case['us']:>6.2f}")
    with open(out, "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
