#!/usr/bin/env python3
"""Writes the tiny checkpoints of mixtures as GGUF files, as llama.cpp's converter does.

Needs `pip install gguf==0.19.0 numpy torch safetensors`. Tensor names come from the gguf package's own
tables; experts are stacked, MXFP4 blocks hold elements j and j + 16 in a byte with their scale in front.

    python3 make_gguf.py

Values are those of ../qwen_moe and ../gpt_oss, so their expected logits are the files' too; but a GPT-OSS
file does not hold the clamp of its experts, which is 7 for llama.cpp.
"""

import json
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

GOLDEN = Path(__file__).resolve().parents[1]
CASES = {
    "qwen3_moe": ("qwen_moe/qwen3_moe", gguf.MODEL_ARCH.QWEN3MOE),
    "qwen2_moe": ("qwen_moe/qwen2_moe", gguf.MODEL_ARCH.QWEN2MOE),
    "gpt_oss": ("gpt_oss/gpt_oss", gguf.MODEL_ARCH.GPT_OSS),
}
EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight")


def stack_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of one expert each become one of all."""
    stacks: dict[str, list[torch.Tensor]] = {}
    rest = {}
    for name in sorted(tensors, key=lambda n: [int(p) if p.isdigit() else p for p in n.split(".")]):
        found = EXPERT.fullmatch(name)
        if found:
            stacks.setdefault(f"{found[1]}.{found[3]}.weight", []).append(tensors[name])
        else:
            rest[name] = tensors[name]
    return rest | {name: torch.stack(parts) for name, parts in stacks.items()}


def split_gate_and_up(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """GPT-OSS: rows of gate and up take turns."""
    result = {}
    for name, tensor in tensors.items():
        head, found, tail = name.partition(".gate_up_proj")
        if found:
            result[f"{head}.gate_proj{tail}"] = tensor[:, ::2]
            result[f"{head}.up_proj{tail}"] = tensor[:, 1::2]
        else:
            result[name] = tensor
    return result


def mxfp4_blocks(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[E, N, K/32, 16] with neighbours in a byte and [E, N, K/32] → [E, N, K/32 × 17]."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], 32)
    packed = codes[..., :16] | codes[..., 16:] << 4
    return np.concatenate([scales[..., None], packed], -1).reshape(*blocks.shape[:2], -1)


def write_config(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    rope = config.get("rope_parameters", config)
    writer.add_rope_freq_base(rope["rope_theta"])
    if "rope_scaling" in config:
        scaling = config["rope_scaling"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_count(config.get("num_experts", config.get("num_local_experts")))
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config.get("moe_intermediate_size", config["intermediate_size"]))
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def convert(name: str) -> None:
    folder, architecture = CASES[name]
    config = json.loads((GOLDEN / folder / "config.json").read_text(encoding="utf-8"))
    tensors = split_gate_and_up(stack_experts(load_file(GOLDEN / folder / "model.safetensors")))
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    # Of the one dense layer in qwen3_moe.
    dense_names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    path = Path(__file__).resolve().parent / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    write_config(writer, config)

    def name_of(hf_name: str) -> str:
        # Biases of GPT-OSS' experts are called "<matrix>_bias", sinks have no suffix.
        base, suffix = re.fullmatch(r"(.*?)(?:[._](weight|bias|blocks))?", hf_name).groups()
        found = names.get_name(base) or dense_names.get_name(base)
        assert found, hf_name
        return f"{found}.{'bias' if suffix == 'bias' else 'weight'}"

    for hf_name, tensor in tensors.items():
        if hf_name.endswith("_scales"):
            continue
        if hf_name.endswith("_blocks"):
            scales = tensors[hf_name.removesuffix("blocks") + "scales"]
            data = mxfp4_blocks(tensor.numpy(), scales.numpy())
            writer.add_tensor(name_of(hf_name), data, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        elif tensor.squeeze().ndim == 1:  # a single row becomes a vector
            writer.add_tensor(name_of(hf_name), tensor.squeeze().float().numpy())
        else:
            raw = tensor.contiguous().view(torch.uint8).numpy()
            writer.add_tensor(name_of(hf_name), raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    for case in CASES:
        convert(case)
