#!/usr/bin/env python3
"""Makes the tiny dense checkpoints of this folder; ../tiny_model.py says what they hold. Some have
two shards and an index.

    python3 make_golden.py [CASE...]      all cases when none is named

Weights are random and exact in bf16, the forward pass is fp32 with eager attention, so an fp32
implementation agrees to about 1e-5 and 1e-4 absolute is a safe threshold.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tiny_model

BASE = {
    "vocab_size": tiny_model.VOCAB,
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


def config_of(model, case: Case) -> dict:
    config = tiny_model.config_json(model, case.family + "ForCausalLM")
    if not case.legacy_config:
        return config
    rope = config.pop("rope_parameters")
    config.pop("layer_types", None)
    return config | {
        "torch_dtype": config.pop("dtype"),
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": None if rope == {"rope_type": "default"} else rope,
    }


def build(case: Case, seed: int):
    model = build_model(case, seed)
    tensors = {
        name: value.bfloat16()
        for name, value in model.state_dict().items()
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    return model, tensors, config_of(model, case)


def reload(case: Case, folder: Path):
    return getattr(transformers, case.family + "ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )


def save(shards: int, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    if shards == 1:
        return tiny_model.save_one(tensors, folder)
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(value.numel() * value.element_size() for value in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def make(name: str) -> None:
    case = CASES[name]
    tiny_model.make(
        name,
        Path(__file__).resolve().parent / name,
        lambda seed: build(case, seed),
        lambda folder: reload(case, folder),
        save=lambda tensors, folder: save(case.shards, tensors, folder),
        min_distinct=1,
    )


if __name__ == "__main__":
    tiny_model.make_cases("dense", CASES, make)
