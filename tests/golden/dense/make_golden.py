#!/usr/bin/env python3
"""Makes the tiny dense checkpoints of this folder and their expected logits.

Needs `pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0`; the tests that read the
result need none of it.

    python3 make_golden.py [CASE...]      all cases when none is named

Each case becomes a folder with config.json, model.safetensors (or two shards and an index) and
expected.safetensors, which holds
    input_ids      I32 [T]          the prompt
    logits         F32 [T, vocab]   at every prompt position
    greedy         I32 [8]          the greedy continuation
    greedy_logits  F32 [8, vocab]   the logits that chose each of them; row 0 is logits[T - 1]

Weights are random and exact in bf16, the forward pass is fp32 with eager attention, so an fp32
implementation agrees to about 1e-5 and 1e-4 absolute is a safe threshold. A seed is taken only if
the cached and the uncached run agree to 1e-5 and every greedy choice wins by more than 0.05.
"""

import argparse
import json
import shutil
import sys
from dataclasses import dataclass, field
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

BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}


@dataclass
class Case:
    family: str  # prefix of the transformers classes
    config: dict = field(default_factory=dict)
    shards: int = 1
    # Written in the layout of transformers 4: rope_theta and rope_scaling at the top level.
    legacy_config: bool = False


def rope(theta: float, **scaling) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **scaling}}


CASES = {
    "llama": Case("Llama", rope(10000.0)),
    # The proportions of SmolLM2: three query heads to each of three KV heads, tied, odd FFN width.
    "llama_tied_9_3": Case(
        "Llama",
        {
            "hidden_size": 144,
            "intermediate_size": 200,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
            **rope(100000.0),
        },
        legacy_config=True,
    ),
    # MHA, a head size that is neither hidden / heads nor a power of two, another epsilon.
    "llama_head_dim_24": Case(
        "Llama",
        {"num_key_value_heads": 4, "head_dim": 24, "rms_norm_eps": 1e-5, **rope(10000.0)},
    ),
    "llama_bias": Case("Llama", {"attention_bias": True, "mlp_bias": True, **rope(10000.0)}),
    "llama_rope_llama3": Case(
        "Llama",
        rope(
            500000.0,
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    "llama_rope_llama3_legacy": Case(
        "Llama",
        rope(
            10000.0,
            rope_type="llama3",
            factor=32.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        legacy_config=True,
    ),
    "llama_rope_linear": Case("Llama", rope(10000.0, rope_type="linear", factor=4.0)),
    "llama_rope_yarn": Case(
        "Llama",
        rope(
            10000.0,
            rope_type="yarn",
            factor=16.0,
            original_max_position_embeddings=32,
            beta_fast=32.0,
            beta_slow=1.0,
        ),
    ),
    "mistral_window_8": Case("Mistral", {"sliding_window": 8, **rope(10000.0)}),
    "qwen2": Case("Qwen2", {**rope(1000000.0)}),
    # Layers from max_window_layers on attend to the window alone.
    "qwen2_window_16": Case(
        "Qwen2",
        {
            "num_hidden_layers": 4,
            "use_sliding_window": True,
            "sliding_window": 16,
            "max_window_layers": 2,
            **rope(10000.0),
        },
    ),
    "qwen3": Case("Qwen3", {"head_dim": 32, **rope(1000000.0)}, shards=2),
    "qwen3_tied": Case(
        "Qwen3",
        {
            "head_dim": 16,
            "num_attention_heads": 6,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            **rope(1000000.0),
        },
        legacy_config=True,
    ),
}


def build_model(case: Case, seed: int):
    config = getattr(transformers, case.family + "Config")(**{**BASE, **case.config})
    config._attn_implementation = "eager"
    model = getattr(transformers, case.family + "ForCausalLM")(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("bias"):
                value = 0.2 * noise
            elif parameter.dim() == 1:  # norm weights
                value = 1.0 + 0.2 * noise
            elif "embed_tokens" in name:
                # A tied head sees its own token first; small rows let the layers decide instead.
                value = noise * (0.2 if config.tie_word_embeddings else 1.0)
            else:
                value = noise * parameter.shape[1] ** -0.5
            if name.startswith("lm_head"):
                value = value * 3.0
            parameter.copy_(value.bfloat16().float())
    model.tie_weights()
    return model


@torch.no_grad()
def run(model, input_ids: torch.Tensor) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good."""
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
    if worst > MAX_CACHE_ERROR * max(1.0, logits.abs().max().item()):
        return f"cached and uncached differ by {worst:.1e}"
    return {
        "input_ids": input_ids.to(torch.int32),
        "logits": logits.contiguous(),
        "greedy": torch.tensor(tokens, dtype=torch.int32),
        "greedy_logits": torch.stack(rows),
    }


def write_config(model, case: Case, path: Path) -> None:
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = {key: value for key, value in config.items() if value is not None and not key.startswith("_")}
    for key in ("dtype", "transformers_version", "id2label", "label2id", "output_attentions"):
        kept.pop(key, None)
    kept["architectures"] = [case.family + "ForCausalLM"]
    if case.legacy_config:
        parameters = kept.pop("rope_parameters")
        kept["rope_theta"] = parameters.pop("rope_theta")
        kept["rope_scaling"] = None if parameters == {"rope_type": "default"} else parameters
        kept["torch_dtype"] = "bfloat16"
        kept.pop("layer_types", None)
    else:
        kept["dtype"] = "bfloat16"
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_weights(model, case: Case, folder: Path) -> None:
    tensors = {
        name: value.bfloat16().contiguous()
        for name, value in sorted(model.state_dict().items())
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    if case.shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(case.shards):
        file = f"model-{shard + 1:05d}-of-{case.shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard :: case.shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(value.numel() * value.element_size() for value in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def make(name: str, case: Case, folder: Path) -> None:
    for seed in range(100):
        generator = torch.Generator().manual_seed(1000 + seed)
        input_ids = torch.randint(3, VOCAB, (PROMPT_TOKENS,), generator=generator)
        model = build_model(case, seed)
        expected = run(model, input_ids)
        if not isinstance(expected, str):
            break
        print(f"{name}: seed {seed}: {expected}")
    else:
        sys.exit(f"{name}: no seed passes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_config(model, case, folder / "config.json")
    write_weights(model, case, folder)
    save_file(expected, folder / "expected.safetensors")

    reloaded = getattr(transformers, case.family + "ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        again = reloaded(input_ids[None], use_cache=False).logits[0]
    difference = (again - expected["logits"]).abs().max().item()
    sizes = [path.stat().st_size for path in folder.iterdir()]
    if difference > 1e-6 or max(sizes) > MAX_FILE_BYTES:
        sys.exit(f"{name}: reload differs by {difference}, largest file {max(sizes)} bytes")
    print(f"{name}: seed {seed}, {sum(sizes)} bytes, greedy {expected['greedy'].tolist()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny dense checkpoints and their logits.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    names = parser.parse_args().cases or list(CASES)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in names:
        if name not in CASES:
            sys.exit(f"no case '{name}'; there are {', '.join(CASES)}")
        make(name, CASES[name], Path(__file__).resolve().parent / name)


if __name__ == "__main__":
    main()
