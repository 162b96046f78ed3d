#!/usr/bin/env python3
"""Makes the tiny DeepSeek V3 checkpoints of this folder and the V3.2 ones of ../deepseek_v32;
../tiny_model.py says what they hold.

    python3 make_golden.py [CASE...]      all cases when none is named
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tiny_model

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 40.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16,
}
BASE = {
    "vocab_size": tiny_model.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "rope_parameters": YARN,
}
FP8_BLOCK = (128, 128)
# Widths that are multiples of a block of scales, or below one.
FP8 = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 8,
}
INDEXER = {"index_n_heads": 16, "index_head_dim": 16, "index_topk": 12}
MIN_INDEX_GAP = 1e-4
MASKED = -1e30  # scores of tokens to come are below


@dataclass
class Case:
    family: str  # prefix of the transformers classes
    config: dict = field(default_factory=dict)
    fp8: bool = False
    legacy_config: bool = False  # as published: rope_theta and rope_scaling at the top
    draft_layer: bool = False  # with the tensors of a layer that predicts a further token


CASES = {
    "deepseek_v3": Case("DeepseekV3", legacy_config=True, draft_layer=True),
    # No YaRN, no low rank of the queries, one group.
    "deepseek_v3_plain": Case(
        "DeepseekV3",
        {
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 2,
            "num_hidden_layers": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "deepseek_v3_fp8": Case("DeepseekV3", FP8, fp8=True),
    "deepseek_v32": Case("DeepseekV32", INDEXER),
    "deepseek_v32_fp8": Case("DeepseekV32", {**FP8, **INDEXER, "index_n_heads": 8}, fp8=True),
}


def random_value(name: str, shape: torch.Size, noise: tiny_model.Noise) -> torch.Tensor:
    if name.endswith("e_score_correction_bias"):
        return noise.normal(*shape, sigma=0.1)
    if name.endswith("k_norm.bias"):
        return noise.normal(*shape, sigma=0.3)
    if len(shape) == 1:
        return noise.normal(*shape, sigma=0.2, mean=1.0)
    if "embed_tokens" in name:
        return noise.normal(*shape)
    strong = name.endswith(("mlp.gate.weight", "q_b_proj.weight", "q_proj.weight", "experts.down_proj"))
    gain = 3.0 if name.startswith("lm_head") else 2.0 if strong else 1.0
    return noise.matrix(*shape, gain=gain)


def is_quantized(name: str) -> bool:
    return name.endswith(("_proj.weight", "proj_with_mqa.weight", "indexer.wq_b.weight", "indexer.wk.weight"))


class Store:
    """Collects the checkpoint's tensors; gives back the values that they stand for."""

    def __init__(self, fp8: bool):
        self.fp8 = fp8
        self.tensors = {}

    def put(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if self.fp8 and is_quantized(name) and "weights_proj" not in name:
            codes, scales = tiny_model.quantize_f8(value, FP8_BLOCK)
            self.tensors[name] = codes
            self.tensors[name + "_scale_inv"] = scales
            return tiny_model.dequantize_f8(codes, scales, FP8_BLOCK)
        keep = name.endswith("e_score_correction_bias")
        self.tensors[name] = value if keep else value.bfloat16()
        return value


def put_experts(store: Store, name: str, value: torch.Tensor) -> torch.Tensor:
    """A fused tensor of experts, under the published names: one by one, gate and up apart."""
    prefix, fused = name.rsplit(".", 1)
    experts = []
    for index, expert in enumerate(value):
        parts = ("gate_proj", "up_proj") if fused == "gate_up_proj" else ("down_proj",)
        pieces = zip(parts, expert.chunk(len(parts)))
        experts.append(torch.cat([store.put(f"{prefix}.{index}.{part}.weight", x) for part, x in pieces]))
    return torch.stack(experts)


def build(case: Case, seed: int):
    config = getattr(transformers, case.family + "Config")(**{**BASE, **case.config})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = getattr(transformers, case.family + "ForCausalLM")(config).float().eval()
    noise, store = tiny_model.Noise(seed), Store(case.fp8)
    named = list(model.named_parameters())
    named += [(name, value) for name, value in model.named_buffers() if name.endswith("correction_bias")]
    with torch.no_grad():
        for name, parameter in named:
            value = random_value(name, parameter.shape, noise)
            fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
            parameter.copy_(put_experts(store, name, value) if fused else store.put(name, value))
    if case.draft_layer:
        prefix = f"model.layers.{config.num_hidden_layers}."
        for name in ("enorm.weight", "hnorm.weight"):
            store.put(prefix + name, noise.normal(64, mean=1.0, sigma=0.1))
        store.put(prefix + "eh_proj.weight", noise.matrix(64, 128))
    changes = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}
    if case.draft_layer:
        changes["num_nextn_predict_layers"] = 1
    if case.fp8:
        changes["quantization_config"] = {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": list(FP8_BLOCK),
        }
    if case.legacy_config:
        rope = dict(YARN)
        rope["type"] = rope.pop("rope_type")
        changes |= {"rope_parameters": None, "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    written = tiny_model.config_json(model, case.family + "ForCausalLM", **changes)
    written["q_lora_rank"] = config.q_lora_rank  # null says that there is none
    return model, store.tensors, written


def reload(case: Case, folder: Path):
    options = {}
    if case.fp8:
        options["quantization_config"] = transformers.FineGrainedFP8Config(
            dequantize=True, weight_block_size=FP8_BLOCK, modules_to_not_convert=["lm_head", "weights_proj"]
        )
    return getattr(transformers, case.family + "ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    )


def index_gaps(model, input_ids: torch.Tensor) -> str | None:
    """Refuses a seed where the last token taken and the first one left score nearly alike."""
    if not hasattr(model.config, "index_topk"):
        return None
    top_k, worst = model.config.index_topk, [float("inf")]
    original = torch.Tensor.topk

    def watched(self, k, *args, **kwargs):
        if k == top_k and self.dim() == 3 and self.shape[-1] > k:
            values = original(self, k + 1, dim=-1).values
            gap = (values[..., k - 1] - values[..., k])[values[..., k] > MASKED]
            worst[0] = min(worst[0], gap.min().item())
        return original(self, k, *args, **kwargs)

    torch.Tensor.topk = watched
    try:
        with torch.no_grad():
            model(input_ids[None], use_cache=False)
    finally:
        torch.Tensor.topk = original
    return None if worst[0] > MIN_INDEX_GAP else f"index gap {worst[0]:.1e}"


def make(name: str) -> None:
    case = CASES[name]
    here = Path(__file__).resolve().parent
    folder = (here if case.family == "DeepseekV3" else here.parent / "deepseek_v32") / name
    tiny_model.make(name, folder, lambda seed: build(case, seed), lambda made: reload(case, made), accept=index_gaps)


if __name__ == "__main__":
    tiny_model.make_cases("DeepSeek V3", CASES, make)
