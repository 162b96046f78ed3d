#!/usr/bin/env python3
"""Makes tiny DeepSeek checkpoints with draft blocks, and what the blocks must guess.

Needs `pip install numpy==2.4.6 torch==2.15.0 transformers==5.24.0 safetensors==0.8.0`; the tests that
read the result need none of it.

    python3 make_golden.py [CASE...]      all cases when none is named

V3's guesses are those of transformers' own MTP layer, which takes its own output for further ones. No
official implementation of the other draft blocks runs here, so their guesses come from draft_reference.py
beside this file, in float64 over the trunk's streams: those of transformers (V4), or of the reference of
deepseek_v41/ (V4.1). A case becomes a folder with config.json, model.safetensors in the vendor's layout,
a tokenizer, and expected.safetensors, which holds
    input_ids       I32 [T]             the prompt
    logits          F32 [T, vocab]      of the trunk, at every prompt position
    positions       I32 [P]             of the last committed token: the anchor is the prompt's next
    guesses         I32 [P, K]          the greedy guesses
    draft_logits    F32 [P, K, vocab]   of each guess after the greedy ones before
    confidences     F32 [P, K]          DSpark alone
    generated       I32 [G]             V3 alone: what generate(use_mtp=True) brings behind the prompt
A seed is taken only if every greedy guess wins by more than 0.02, and no index score of V4.1 lies within
1e-4 of the boundary of a selection.
"""

import argparse
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from draft_reference import DraftReference
from safetensors.torch import save_file
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

GOLDEN = Path(__file__).resolve().parent.parent
sys.path.append(str(GOLDEN))
from byte_tokenizer import write_tokenizer

PROMPT_TOKENS = 60
POSITIONS = [0, 1, 3, 14, 15, 16, 17, 30, 31, 32, 47, 58]
MTP_GUESSES = 4
GENERATED_TOKENS = 24
STAGES = 3
MIN_MARGIN = 0.02
MIN_INDEX_GAP = 1e-4
MAX_FILE_BYTES = 1 << 20
FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


class Made(NamedTuple):
    logits: torch.Tensor  # of the trunk
    guess: Callable  # of a position: (draft logits, guesses[, confidences])
    gap: float = float("inf")  # smallest, of index scores to the boundary of a selection
    extra: dict[str, torch.Tensor] | None = None  # more to expect


def load_module(family: str):
    spec = importlib.util.spec_from_file_location(family, GOLDEN / family / "make_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


v3, v4, v41 = (load_module(family) for family in ("deepseek_v3", "deepseek_v4", "deepseek_v41"))

DSPARK = {"dspark_block_size": 5, "dspark_markov_rank": 32, "dspark_noise_token_id": 319}
V4_BASE = {"vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 6, "index_head_dim": 32}
V41_DRAFTS = {**DSPARK, "dspark_target_layer_ids": [7, 8, 9], "dspark_n_routed_experts": 4}
V41_DRAFTS["dspark_num_experts_per_tok"] = 2

CASES = {
    "v3_mtp": {"vocab_size": 320, "num_hidden_layers": 3},
    "v4_mtp": {**V4_BASE, "compress_ratios": [0, 32, 4, 32, 4, 4, 0]},
    "v4_dspark": {
        **V4_BASE,
        **DSPARK,
        "dspark_target_layer_ids": [3, 4, 5],
        "compress_ratios": [0, 32, 4, 32, 4, 4, 0, 0, 0],
    },
    # No layer of windows alone in the trunk; not the last layers' streams.
    "v4_pro_dspark": {
        **V4_BASE,
        **DSPARK,
        "num_hidden_layers": 5,
        "dspark_target_layer_ids": [0, 2, 3],
        "compress_ratios": [32, 32, 4, 32, 4, 0, 0, 0],
    },
    "v41_dspark": {},
}


def add_block_v4(maker, prefix: str) -> None:
    hidden = maker.config["hidden_size"]
    maker.norm(f"{prefix}.attn_norm.weight", hidden)
    maker.norm(f"{prefix}.ffn_norm.weight", hidden)
    maker.hyper_connection(f"{prefix}.hc_attn", 24, 3)
    maker.hyper_connection(f"{prefix}.hc_ffn", 24, 3)
    maker.attention(f"{prefix}.attn", 0)
    maker.experts(f"{prefix}.ffn", maker.config["num_hash_layers"])


def add_mtp(maker) -> None:
    hidden = maker.config["hidden_size"]
    add_block_v4(maker, "mtp.0")
    for name in ("e_proj", "h_proj"):
        maker.fp8(f"mtp.0.{name}", hidden, hidden)
    for name in ("enorm", "hnorm", "norm"):
        maker.norm(f"mtp.0.{name}.weight", hidden)
    maker.hyper_connection("mtp.0.hc_head", 4, 1)


def add_dspark(maker, config: dict, tables: tuple[str, str]) -> None:
    """What surrounds the stages; the tables' names differ between the families."""
    hidden, rank, last = config["hidden_size"], config["dspark_markov_rank"], f"mtp.{STAGES - 1}"
    maker.fp8("mtp.0.main_proj", hidden, len(config["dspark_target_layer_ids"]) * hidden)
    maker.norm("mtp.0.main_norm.weight", hidden)
    maker.norm(f"{last}.norm.weight", hidden)
    for name in tables:
        maker.bf16(f"{last}.markov_head.{name}.weight", config["vocab_size"], rank, gain=0.5 * rank**0.5)
    maker.bf16(f"{last}.confidence_head.proj.weight", 1, hidden + rank, gain=2.0)


def values_v4(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The tensors' values, dequantised."""
    values = {}
    for name, tensor in tensors.items():
        if name.endswith(".scale"):
            continue
        scale = tensors.get(name.removesuffix(".weight") + ".scale")
        if scale is None:
            values[name] = tensor.double().numpy() if tensor.dtype != torch.int64 else tensor.numpy()
            continue
        wide = scale.double()
        if tensor.dtype == torch.int8:
            codes = tensor.view(torch.uint8).long()
            number = torch.tensor(FP4, dtype=torch.float64)[torch.stack([codes & 15, codes >> 4], -1).flatten(1)]
            values[name] = (number * wide.repeat_interleave(32, 1)).numpy()
        else:
            n, k = tensor.shape
            wide = wide.repeat_interleave(v4.FP8_TILE, 0)[:n].repeat_interleave(v4.FP8_TILE, 1)[:, :k]
            values[name] = (tensor.double() * wide).numpy()
    return values


def make_v4(case: dict, seed: int, folder: Path, input_ids: list[int]):
    config = {**v4.BASE, **case, **v4.transformers_ratios(case["compress_ratios"][: case["num_hidden_layers"]])}
    maker = v4.Maker(config, seed)
    maker.make()
    dspark = "dspark_block_size" in config
    if dspark:
        for stage in range(STAGES):
            add_block_v4(maker, f"mtp.{stage}")
        add_dspark(maker, config, ("markov_w1", "markov_w2"))
        maker.hyper_connection(f"mtp.{STAGES - 1}.hc_head", 4, 1)
    else:
        add_mtp(maker)
    write(folder, config, maker.tensors)
    model, streams = v4.load(folder), []
    for layer in model.model.layers:
        layer.register_forward_hook(
            lambda _, __, out: streams.append((out[0] if isinstance(out, tuple) else out)[0].double().numpy())
        )
    with torch.no_grad():
        logits = model(torch.tensor(input_ids)[None], use_cache=False).logits[0]
    reference = DraftReference(config, values_v4(maker.tensors), v4=True)
    if dspark:
        taps = np.stack([streams[i].mean(1) for i in config["dspark_target_layer_ids"]], 1)
        guess = lambda p: reference.dspark_guesses(taps, input_ids[p + 1], p)
    else:
        guess = lambda p: reference.mtp_guesses(streams[-1], input_ids, p, MTP_GUESSES)
    return Made(logits, guess)


class TappedReference(DraftReference):
    """Remembers the means of the streams at the layers' inputs."""

    def coefficients(self, h, prefix):
        if prefix.startswith("layers.") and prefix.endswith(".hc_attn"):
            self.taps[int(prefix.split(".")[1])] = h.mean(1)
        return super().coefficients(h, prefix)


def make_v41(case: dict, seed: int, folder: Path, input_ids: list[int]):
    text = {**v41.TEXT_CONFIG, **V41_DRAFTS}
    v41.TEXT_CONFIG.update(V41_DRAFTS)
    maker = v41.Maker(seed)
    maker.make()
    num_experts = text["n_routed_experts"]
    v41.TEXT_CONFIG["n_routed_experts"] = text["dspark_n_routed_experts"]
    for stage in range(STAGES):
        prefix = f"mtp.{stage}"
        maker.norm(f"{prefix}.attn_norm.weight", text["hidden_size"])
        maker.norm(f"{prefix}.ffn_norm.weight", text["hidden_size"])
        maker.hyper_connection(f"{prefix}.hc_attn")
        maker.hyper_connection(f"{prefix}.hc_ffn")
        maker.attention(f"{prefix}.attn", -1)
        maker.experts(f"{prefix}.ffn")
    v41.TEXT_CONFIG["n_routed_experts"] = num_experts
    add_dspark(maker, text, ("embed", "head"))
    write(folder, {**v41.CONFIG, "text_config": text}, maker.tensors)
    reference = TappedReference(text, maker.values, v4=False)
    reference.taps = {}
    logits = reference.logits(input_ids)
    taps = np.stack([reference.taps[i] for i in text["dspark_target_layer_ids"]], 1)
    guess = lambda p: reference.dspark_guesses(taps, input_ids[p + 1], p)
    return Made(torch.tensor(logits), guess, reference.smallest_gap)


def make_v3(case: dict, seed: int, folder: Path, input_ids: list[int]):
    """The draft layer is built as a layer more of the trunk."""
    layers, prefix = case["num_hidden_layers"], f"model.layers.{case['num_hidden_layers']}"
    _, tensors, config = v3.build(v3.Case("DeepseekV3", {**case, "num_hidden_layers": layers + 1}), seed)
    noise, hidden = v3.tiny_model.Noise(5000 + seed), config["hidden_size"]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{prefix}.{name}.weight"] = noise.normal(hidden, mean=1.0, sigma=0.2).bfloat16()
    tensors[f"{prefix}.eh_proj.weight"] = noise.matrix(hidden, 2 * hidden).bfloat16()
    write(folder, {**config, "num_hidden_layers": layers, "num_nextn_predict_layers": 1}, tensors)
    official = v4.transformers.DeepseekV3ForCausalLM
    official._keys_to_ignore_on_load_unexpected = [prefix.replace(".", r"\.") + ".*"]
    model = v3.reload(v3.Case("DeepseekV3"), folder)
    draft = MtpModel.from_pretrained(model).float().eval()
    with torch.no_grad():
        out = model(torch.tensor(input_ids)[None], use_cache=False, output_hidden_states=True)

    @torch.no_grad()
    def guess(position: int):
        cache = MtpCache(config=model.config.get_mtp_config())
        state, ids, first = out.hidden_states[-1][:, : position + 1], input_ids[1 : position + 2], 1
        logits, guesses = [], []
        while len(guesses) < MTP_GUESSES:
            places = torch.arange(first, first + len(ids))[None]
            state = draft.forward_layer(0, state, places, cache, input_ids=torch.tensor(ids)[None])[:, -1:]
            logits.append(model.lm_head(state)[0, 0].numpy())
            guesses.append(int(logits[-1].argmax()))
            first, ids = first + len(ids), guesses[-1:]
        return np.array(logits), guesses

    generated = model.generate(
        torch.tensor(input_ids)[None],
        max_new_tokens=GENERATED_TOKENS,
        do_sample=False,
        use_mtp=True,
        eos_token_id=None,
        pad_token_id=0,
    )[0, PROMPT_TOKENS:]
    return Made(out.logits[0], guess, extra={"generated": generated.to(torch.int32)})


def write(folder: Path, config: dict, tensors: dict[str, torch.Tensor]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(dict(sorted(tensors.items())), folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)


def expect(case: dict, seed: int, folder: Path) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good."""
    input_ids = np.random.default_rng(1000 + seed).integers(3, 256, PROMPT_TOKENS).tolist()
    makers = {"v3": make_v3, "v4": make_v4, "v41": make_v41}
    made = makers[folder.name.split("_")[0]](case, seed, folder, input_ids)
    if made.gap < MIN_INDEX_GAP:
        return f"index scores within {made.gap:.1e}"
    results = [made.guess(p) for p in POSITIONS]
    draft_logits = np.stack([result[0] for result in results])
    top = np.sort(draft_logits, -1)[..., -2:]
    if (top[..., 1] - top[..., 0]).min() < MIN_MARGIN:
        return f"margin {(top[..., 1] - top[..., 0]).min():.3f}"
    expected = {
        "input_ids": torch.tensor(input_ids, dtype=torch.int32),
        "logits": made.logits.float().contiguous(),
        "positions": torch.tensor(POSITIONS, dtype=torch.int32),
        "guesses": torch.tensor([result[1] for result in results], dtype=torch.int32),
        "draft_logits": torch.tensor(draft_logits).float(),
        **(made.extra or {}),
    }
    if len(results[0]) > 2:
        expected["confidences"] = torch.tensor([result[2] for result in results]).float()
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tiny checkpoints with draft blocks.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    torch.set_num_threads(1)
    v4.transformers.logging.set_verbosity_error()
    for name in parser.parse_args().cases or list(CASES):
        folder = Path(__file__).resolve().parent / name
        for seed in range(100):
            expected = expect(CASES[name], seed, folder)
            if not isinstance(expected, str):
                break
            print(f"{name}: seed {seed}: {expected}")
        else:
            sys.exit(f"{name}: no seed passes")
        save_file(expected, folder / "expected.safetensors")
        sizes = [path.stat().st_size for path in folder.iterdir()]
        if max(sizes) > MAX_FILE_BYTES:
            sys.exit(f"{name}: largest file {max(sizes)} bytes")
        print(
            f"{name}: seed {seed}, {sum(sizes)} bytes, largest {max(sizes)}, guesses {expected['guesses'][0].tolist()}"
        )


if __name__ == "__main__":
    main()
