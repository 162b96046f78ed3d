#!/usr/bin/env python3
"""Makes the tiny Qwen2-MoE and Qwen3-MoE checkpoints of this folder; ../tiny_model.py says what they
hold.

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
    "intermediate_size": 160,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
FP8_BLOCK = (128, 128)


@dataclass
class Case:
    family: str  # prefix of the transformers classes
    config: dict = field(default_factory=dict)
    fp8: bool = False


CASES = {
    # Layer 1 is dense.
    "qwen3_moe": Case("Qwen3Moe", {"head_dim": 32, "norm_topk_prob": True, "mlp_only_layers": [1]}),
    # Two blocks of scales side by side. (transformers cuts ragged blocks another way than the vendor,
    # so every width is a multiple of one or below it.)
    "qwen3_moe_fp8": Case(
        "Qwen3Moe",
        {
            "head_dim": 32,
            "norm_topk_prob": True,
            "hidden_size": 256,
            "intermediate_size": 128,
            "moe_intermediate_size": 128,
            "mlp_only_layers": [0],
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 2,
        },
        fp8=True,
    ),
    "qwen2_moe": Case("Qwen2Moe", {"shared_expert_intermediate_size": 96}),
    # Every second layer is sparse, and the weights of the chosen experts add up to one.
    "qwen2_moe_step_2": Case(
        "Qwen2Moe",
        {
            "shared_expert_intermediate_size": 48,
            "decoder_sparse_step": 2,
            "num_hidden_layers": 4,
            "norm_topk_prob": True,
        },
    ),
}


def random_state(model, noise: tiny_model.Noise) -> dict[str, torch.Tensor]:
    """Random values under the names that the published checkpoints use: experts one by one."""
    state = {}
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        if name.endswith("experts.gate_up_proj"):
            prefix = name.removesuffix("gate_up_proj")
            for expert in range(shape[0]):
                for part in ("gate_proj", "up_proj"):
                    state[f"{prefix}{expert}.{part}.weight"] = noise.matrix(shape[1] // 2, shape[2])
        elif name.endswith("experts.down_proj"):
            prefix = name.removesuffix("down_proj")
            for expert in range(shape[0]):
                state[f"{prefix}{expert}.down_proj.weight"] = noise.matrix(*shape[1:], gain=2.0)
        elif name.endswith("bias"):
            state[name] = noise.normal(*shape, sigma=0.2)
        elif len(shape) == 1:
            state[name] = noise.normal(*shape, sigma=0.2, mean=1.0)
        elif "embed_tokens" in name:
            state[name] = noise.normal(*shape)
        elif name.endswith("mlp.gate.weight"):
            state[name] = noise.matrix(*shape, gain=2.0)
        else:
            state[name] = noise.matrix(*shape, gain=3.0 if name.startswith("lm_head") else 1.0)
    return state


def fill(model, state: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("experts.gate_up_proj"):
                prefix = name.removesuffix("gate_up_proj")
                for expert in range(parameter.shape[0]):
                    parts = [state[f"{prefix}{expert}.{part}.weight"] for part in ("gate_proj", "up_proj")]
                    parameter[expert] = torch.cat(parts)
            elif name.endswith("experts.down_proj"):
                prefix = name.removesuffix("down_proj")
                for expert in range(parameter.shape[0]):
                    parameter[expert] = state[f"{prefix}{expert}.down_proj.weight"]
            else:
                parameter.copy_(state[name])


def is_quantized(name: str) -> bool:
    return name.endswith("_proj.weight")


def build(case: Case, seed: int):
    config = getattr(transformers, case.family + "Config")(**{**BASE, **case.config})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = getattr(transformers, case.family + "ForCausalLM")(config).float().eval()
    state = random_state(model, tiny_model.Noise(seed))
    tensors, changes = {}, {}
    for name, value in state.items():
        if not case.fp8 or not is_quantized(name):
            tensors[name] = value.bfloat16()
            continue
        codes, scales = tiny_model.quantize_f8(value, FP8_BLOCK)
        tensors[name] = codes
        tensors[name + "_scale_inv"] = scales
        state[name] = tiny_model.dequantize_f8(codes, scales, FP8_BLOCK)
    fill(model, state)
    if case.fp8:
        changes["quantization_config"] = {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": ["lm_head", "model.layers.1.mlp.gate"],
            "quant_method": "fp8",
            "weight_block_size": list(FP8_BLOCK),
        }
    return model, tensors, tiny_model.config_json(model, case.family + "ForCausalLM", **changes)


def reload(case: Case, folder: Path):
    options = {}
    if case.fp8:
        options["quantization_config"] = transformers.FineGrainedFP8Config(
            dequantize=True, weight_block_size=FP8_BLOCK, modules_to_not_convert=["lm_head"]
        )
    return getattr(transformers, case.family + "ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    )


def make(name: str) -> None:
    case = CASES[name]
    folder = Path(__file__).resolve().parent / name
    tiny_model.make(name, folder, lambda seed: build(case, seed), lambda made: reload(case, made))


if __name__ == "__main__":
    tiny_model.make_cases("Qwen MoE", CASES, make)
