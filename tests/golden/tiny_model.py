"""What the generators of tiny checkpoints share: random weights, quantisers, the run that makes the
expected logits, and the files.

Needs `pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0`; the tests that read the
result need none of it. A case becomes a folder with config.json, model.safetensors and
expected.safetensors, which holds
    input_ids      I32 [T]          the prompt
    logits         F32 [T, vocab]   at every prompt position
    greedy         I32 [8]          the greedy continuation
    greedy_logits  F32 [8, vocab]   the logits that chose each of them; row 0 is logits[T - 1]
The forward pass is fp32 with eager attention over weights that the file holds exactly.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

VOCAB = 256
PROMPT_TOKENS = 40
GREEDY_TOKENS = 8
MIN_MARGIN = 0.05
MAX_CACHE_ERROR = 1e-5
MAX_FILE_BYTES = 1 << 20
F8_MAX = 448.0
F4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


class Noise:
    """Seeded tensors, exact in bf16."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, sigma: float = 1.0, mean: float = 0.0) -> torch.Tensor:
        values = mean + sigma * torch.randn(shape, generator=self.generator)
        return values.bfloat16().float()

    def matrix(self, *shape: int, gain: float = 1.0) -> torch.Tensor:
        """Standard deviation gain / sqrt(K), K the last extent."""
        return self.normal(*shape, sigma=gain * shape[-1] ** -0.5)


def quantize_f8(weight: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, K] to e4m3 codes and the fp32 scale of every block: weight = code * scale."""
    rows, cols = block
    n, k = weight.shape
    scales = torch.empty((n + rows - 1) // rows, (k + cols - 1) // cols)
    codes = torch.empty(n, k, dtype=torch.float8_e4m3fn)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            where = slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols)
            scales[i, j] = weight[where].abs().max() / F8_MAX
            codes[where] = (weight[where] / scales[i, j]).to(torch.float8_e4m3fn)
    return codes, scales


def dequantize_f8(codes: torch.Tensor, scales: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    n, k = codes.shape
    wide = scales.repeat_interleave(block[0], 0)[:n].repeat_interleave(block[1], 1)[:, :k]
    return codes.float() * wide


def quantize_f4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., K] to packed e2m1 [..., K / 32, 16] (even column in the low half) and the exponents of
    [..., K / 32] scales, biased by 127."""
    groups = weight.unflatten(-1, (-1, 32))
    highest = groups.abs().amax(-1).clamp_min(2.0**-100)
    exponents = torch.ceil(torch.log2(highest / 6.0))
    scaled = groups / torch.exp2(exponents)[..., None]
    index = (scaled.abs()[..., None] - F4_VALUES).abs().argmin(-1) + 8 * (scaled < 0)
    packed = (index[..., ::2] | index[..., 1::2] << 4).to(torch.uint8)
    return packed, (exponents + 127).to(torch.uint8)


def dequantize_f4(packed: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    index = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    values = F4_VALUES[index & 7] * torch.where(index >= 8, -1.0, 1.0)
    return (values * torch.exp2(exponents.float() - 127)[..., None]).flatten(-2)


@torch.no_grad()
def run(model, input_ids: torch.Tensor, min_distinct: int) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good: an answer of fewer than `min_distinct` tokens,
    a close choice, or a cache that changes the logits."""
    logits = model(input_ids[None], use_cache=False).logits[0]
    ids = input_ids
    out = model(input_ids[None], use_cache=True)
    step_logits, tokens, worst = out.logits[0, -1], [], 0.0
    rows = []
    for _ in range(GREEDY_TOKENS):
        uncached = model(ids[None], use_cache=False).logits[0, -1]
        worst = max(worst, (uncached - step_logits).abs().max().item())
        top = uncached.topk(2)
        if top.values[0] - top.values[1] < MIN_MARGIN:
            return f"margin {top.values[0] - top.values[1]:.3f}"
        rows.append(uncached)
        tokens.append(int(top.indices[0]))
        ids = torch.cat([ids, top.indices[:1]])
        out = model(top.indices[None, :1], past_key_values=out.past_key_values, use_cache=True)
        step_logits = out.logits[0, -1]
    if len(set(tokens)) < min_distinct:
        return f"repeats {tokens}"
    if worst > MAX_CACHE_ERROR * max(1.0, logits.abs().max().item()):
        return f"cached and uncached differ by {worst:.1e}"
    return {
        "input_ids": input_ids.to(torch.int32),
        "logits": logits.contiguous(),
        "greedy": torch.tensor(tokens, dtype=torch.int32),
        "greedy_logits": torch.stack(rows),
    }


def config_json(model, architecture: str, **changes) -> dict:
    """The config as a checkpoint carries it; a change to None drops the field."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = {key: value for key, value in config.items() if value is not None and not key.startswith("_")}
    for key in ("dtype", "transformers_version", "id2label", "label2id", "output_attentions"):
        kept.pop(key, None)
    kept |= {"architectures": [architecture], "dtype": "bfloat16", **changes}
    return {key: value for key, value in kept.items() if value is not None}


def save_one(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(
    name: str,
    folder: Path,
    build: Callable[[int], tuple[torch.nn.Module, dict[str, torch.Tensor], dict]],
    reload: Callable[[Path], torch.nn.Module],
    prompt_tokens: int = PROMPT_TOKENS,
    accept: Callable[[torch.nn.Module, torch.Tensor], str | None] = lambda model, ids: None,
    save: Callable[[dict[str, torch.Tensor], Path], None] = save_one,
    min_distinct: int = 3,
) -> None:
    """Takes the first seed that passes. `build` gives the model, the checkpoint's tensors and its
    config; `reload` reads the folder back with the official loader; `accept` may refuse a seed; `save`
    writes the tensors into the folder."""
    for seed in range(100):
        generator = torch.Generator().manual_seed(1000 + seed)
        input_ids = torch.randint(3, VOCAB, (prompt_tokens,), generator=generator)
        model, tensors, config = build(seed)
        refusal = accept(model, input_ids)
        expected = run(model, input_ids, min_distinct) if refusal is None else refusal
        if not isinstance(expected, str):
            break
        print(f"{name}: seed {seed}: {expected}")
    else:
        sys.exit(f"{name}: no seed passes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    save({key: value.contiguous() for key, value in sorted(tensors.items())}, folder)
    save_file(expected, folder / "expected.safetensors")

    for path in folder.iterdir():
        path.chmod(0o644)

    with torch.no_grad():
        again = reload(folder)(input_ids[None], use_cache=False).logits[0]
    difference = (again - expected["logits"]).abs().max().item()
    sizes = [path.stat().st_size for path in folder.iterdir()]
    if difference > 1e-5 or max(sizes) > MAX_FILE_BYTES:
        sys.exit(f"{name}: reload differs by {difference}, largest file {max(sizes)} bytes")
    print(f"{name}: seed {seed}, {sum(sizes)} bytes, reload {difference:.1e}, greedy {expected['greedy'].tolist()}")


def make_cases(what: str, cases: dict, make_case: Callable[[str], None]) -> None:
    """A generator's command line: the named cases, or all."""
    parser = argparse.ArgumentParser(description=f"Make the tiny {what} checkpoints and their logits.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(cases))
    names = parser.parse_args().cases or list(cases)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in names:
        if name not in cases:
            sys.exit(f"no case '{name}'; there are {', '.join(cases)}")
        make_case(name)
