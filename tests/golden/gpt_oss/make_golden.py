#!/usr/bin/env python3
"""Makes the tiny GPT-OSS checkpoints of this folder; ../tiny_model.py says what they hold.

python3 make_golden.py [CASE...]      all cases when none is named
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tiny_model

BASE = {
    "vocab_size": tiny_model.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "max_position_embeddings": 512,
    "swiglu_limit": 2.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 16,
        "truncate": False,
    },
}


@dataclass
class Case:
    config: dict = field(default_factory=dict)
    mxfp4: bool = True
    # Written as published: rope_theta and rope_scaling at the top, no layer_types.
    legacy_config: bool = False


CASES = {
    "gpt_oss": Case(legacy_config=True),
    # As transformers saves it without MXFP4: experts in bf16, [E, K, N].
    "gpt_oss_bf16": Case({"num_hidden_layers": 3, "intermediate_size": 48, "swiglu_limit": 7.0}, mxfp4=False),
}


def random_value(name: str, shape: torch.Size, noise: tiny_model.Noise) -> torch.Tensor:
    if name.endswith("gate_up_proj"):
        return noise.matrix(shape[0], shape[2], shape[1], gain=2.0).transpose(1, 2)
    if name.endswith("down_proj"):
        return noise.matrix(shape[0], shape[2], shape[1], gain=2.0).transpose(1, 2)
    if name.endswith("sinks"):
        return noise.normal(*shape, sigma=1.5)
    if name.endswith("bias"):
        return noise.normal(*shape, sigma=0.3)
    if len(shape) == 1 or name.endswith("proj_bias"):
        mean = 0.0 if name.endswith("proj_bias") else 1.0
        return noise.normal(*shape, sigma=0.2, mean=mean)
    if "embed_tokens" in name:
        return noise.normal(*shape)
    gain = 3.0 if name.startswith("lm_head") else 2.0 if name.endswith("router.weight") else 1.0
    return noise.matrix(*shape, gain=gain)


def build(case: Case, seed: int):
    config = transformers.GptOssConfig(**{**BASE, **case.config})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.GptOssForCausalLM(config).float().eval()
    noise = tiny_model.Noise(seed)
    tensors = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = random_value(name, parameter.shape, noise)
            if case.mxfp4 and name.endswith(("gate_up_proj", "down_proj")):
                packed, exponents = tiny_model.quantize_f4(value.transpose(1, 2).contiguous())
                tensors[name + "_blocks"] = packed
                tensors[name + "_scales"] = exponents
                value = tiny_model.dequantize_f4(packed, exponents).transpose(1, 2)
            else:
                tensors[name] = value.bfloat16()
            parameter.copy_(value)
    changes = {}
    if case.mxfp4:
        skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
        changes["quantization_config"] = {"modules_to_not_convert": skipped, "quant_method": "mxfp4"}
    if case.legacy_config:
        rope = dict(BASE["rope_parameters"])
        changes |= {"rope_parameters": None, "layer_types": None, "rope_theta": rope.pop("rope_theta")}
        changes |= {"rope_scaling": rope, "experts_per_token": BASE["num_experts_per_tok"]}
    return model, tensors, tiny_model.config_json(model, "GptOssForCausalLM", **changes)


def reload(case: Case, folder: Path):
    options = {"quantization_config": transformers.Mxfp4Config(dequantize=True)} if case.mxfp4 else {}
    return transformers.GptOssForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    )


def make(name: str) -> None:
    case = CASES[name]
    folder = Path(__file__).resolve().parent / name
    tiny_model.make(name, folder, lambda seed: build(case, seed), lambda made: reload(case, made))


if __name__ == "__main__":
    tiny_model.make_cases("GPT-OSS", CASES, make)
