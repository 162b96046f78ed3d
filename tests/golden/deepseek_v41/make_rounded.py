#!/usr/bin/env python3
"""Measures how far rounding to bf16 moves the logits of the checkpoint `tiny`: rounded.safetensors.

    python3 make_rounded.py

The published formulas in float64 (reference.py), but every value that passes between two operations
of a sublayer keeps 8 bits of mantissa, as do rows of the cache; the residual streams, the
coefficients of the hyper-connections, scores and the router's products are not rounded. Up or down
is drawn with the odds that keep the mean, so that any number of independent runs can be made.
Where a matrix of E4M3 has a single scale, as those of one tile have in a model this small, its
product is taken in E4M3, and a token's activations are rounded to that, under the scale of their
largest.

`prompts` [P, T]; `averages` [P, R] of |difference| to the logits that are not rounded, of R runs.
Such a model answers to rounding by taking other experts and entries: one run says little, the mean
of all is what correct arithmetic in bf16 comes to.
"""

import json
from pathlib import Path

import numpy as np
import reference
import torch
from reference import Reference
from safetensors import safe_open
from safetensors.torch import save_file

FOLDER = Path(__file__).resolve().parent / "tiny"
PROMPTS, PROMPT_TOKENS, RUNS = 12, 96, 3
TILE, LARGEST_E4M3 = 32, 448.0
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Rounding:
    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)

    def __call__(self, x):
        _, exponent = np.frexp(x)
        step = np.exp2(exponent.astype(float) - 8)  # of bf16 at this size
        return np.floor(x / step + self.random.random(x.shape)) * step


class Fp8Product:
    """Stands for a matrix in x @ matrix.T."""

    __array_ufunc__ = None  # numpy leaves the product to us

    def __init__(self, matrix: np.ndarray):
        self.matrix = matrix

    @property
    def T(self):
        return self

    def __rmatmul__(self, x):
        scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-30) / LARGEST_E4M3
        _, exponent = np.frexp(x / scale)
        step = np.exp2(np.maximum(exponent, -5).astype(float) - 4)  # subnormal below 2^-6
        return (np.round(x / scale / step) * step * scale) @ self.matrix.T


class RoundedReference(Reference):
    def __init__(self, config: dict, weights: dict, rounded: Rounding):
        super().__init__(config, weights)
        self.rounded = rounded

    def rotate(self, x, positions, compressed, sign=1.0):
        """Queries, window rows, index keys, entries and outputs of heads."""
        return self.rounded(super().rotate(self.rounded(x), positions, compressed, sign))

    def engram(self, h, layer: int, ids):
        return h + self.rounded(super().engram(h, layer, ids) - h)

    def attention(self, x, layer: int):
        return self.rounded(super().attention(x, layer))

    def expert(self, x, prefix: str, weight=1.0):
        w, limit, r = self.w, self.c["swiglu_limit"], self.rounded
        gate = np.minimum(r(x @ w[f"{prefix}.w1.weight"].T), limit)
        up = np.clip(r(x @ w[f"{prefix}.w3.weight"].T), -limit, limit)
        return r(r(weight * gate * reference.sigmoid(gate) * up) @ w[f"{prefix}.w2.weight"].T)

    def experts(self, x, layer: int):
        return self.rounded(super().experts(x, layer))


def rounded_logits(config: dict, weights: dict, ids: list[int], rounded: Rounding):
    """What norms give is rounded too: inputs of sublayers, latents, the head's input."""
    exact = reference.rms_norm
    reference.rms_norm = lambda *arguments: rounded(exact(*arguments))
    try:
        return RoundedReference(config, weights, rounded).logits(ids)
    finally:
        reference.rms_norm = exact


def widened(name: str, tensors: dict) -> np.ndarray:
    """A tensor as float64 (ids as they are): scales applied, FP4 unpacked."""
    tensor, scale = tensors[name], tensors.get(name.removesuffix(".weight") + ".scale")
    if tensor.dtype == torch.int32:
        return tensor.numpy()
    if tensor.dtype == torch.int8:
        codes = tensor.numpy().view(np.uint8)
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
        values = np.where(codes & 8, -1.0, 1.0) * MAGNITUDES[codes & 7]
    else:
        values = tensor.double().numpy()
    if scale is None:
        return values
    (rows, cols), factors = values.shape, scale.double().numpy()
    factors = np.repeat(factors, -(-rows // factors.shape[0]), 0)[:rows]
    return values * np.repeat(factors, -(-cols // factors.shape[1]), 1)[:, :cols]


def load(path: Path) -> dict:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def main() -> None:
    config = json.loads((FOLDER / "config.json").read_text())["text_config"]
    tensors, expected = load(FOLDER / "model.safetensors"), load(FOLDER / "expected.safetensors")
    weights = {name: widened(name, tensors) for name in tensors if not name.endswith(".scale")}
    plain = Reference(config, weights).logits(expected["input_ids"].tolist())
    if (difference := np.abs(plain - expected["logits"].double().numpy()).max()) > 1e-5:
        raise SystemExit(f"the reference itself differs by {difference}")
    products = dict(weights)
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float8_e4m3fn and max(tensor.shape) <= TILE:
            products[name] = Fp8Product(weights[name])
    prompts = np.random.default_rng(1).integers(3, 256, (PROMPTS, PROMPT_TOKENS))
    averages = np.empty((PROMPTS, RUNS))
    for p, ids in enumerate(prompts.tolist()):
        plain = Reference(config, weights).logits(ids)
        for run in range(RUNS):
            moved = rounded_logits(config, products, ids, Rounding(RUNS * p + run))
            averages[p, run] = np.abs(moved - plain).mean()
    made = {
        "prompts": torch.tensor(prompts, dtype=torch.int32),
        "averages": torch.tensor(averages, dtype=torch.float32),
    }
    save_file(made, FOLDER / "rounded.safetensors")
    print(f"mean {averages.mean():.3f}, of single runs {averages.min():.3f} to {averages.max():.3f}")


if __name__ == "__main__":
    main()
