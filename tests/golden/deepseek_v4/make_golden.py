#!/usr/bin/env python3
"""Makes the tiny DeepSeek V4 checkpoints of this folder; ../tiny_model.py says what they hold.

    python3 make_golden.py [CASE...]      all cases when none is named

model.safetensors is in the vendor's own layout: FP8 matrices with a power-of-two scale per 128 x 128
tile, packed FP4 experts, int64 token tables.

transformers loads the same files, widens the matrices and computes in fp32 with eager attention. It
simulates no quantisation of activations, cache rows or index keys. A seed is taken only if the
cached and the uncached run agree to 1e-5, every greedy choice wins by more than 0.05, and no index
score lies within 1e-4 of the boundary of the selection.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.deepseek_v4 import modeling_deepseek_v4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tiny_model
from byte_tokenizer import write_tokenizer

PROMPT_TOKENS = 300
MIN_INDEX_GAP = 1e-4
FP8_TILE = 128

BASE = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "vocab_size": tiny_model.VOCAB,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 32,
    "o_lora_rank": 16,
    "o_groups": 2,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_hash_layers": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 2.0,
    "sliding_window": 16,
    "compress_rope_theta": 160000,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
    },
    "max_position_embeddings": 1024,
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 8,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 1,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "expert_dtype": "fp4",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "scale_fmt": "ue8m0",
        "weight_block_size": [FP8_TILE, FP8_TILE],
    },
}


def transformers_ratios(ratios: list[int]) -> dict:
    """What transformers wants in place of ratios other than 0, 4 and 128."""
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention"}
    return {
        "layer_types": [kinds.get(ratio, "heavily_compressed_attention") for ratio in ratios],
        "compress_rates": {
            "compressed_sparse_attention": 4,
            "heavily_compressed_attention": max(ratios),
        },
    }


# Trunk ratios, then one 0 for the draft block.
CASES = {
    "flash": {"num_hidden_layers": 6, "compress_ratios": [0, 128, 4, 128, 4, 4, 0]},
    # No layer of windows alone, experts in FP8 as the *-Base checkpoints have them.
    "pro": {
        "num_hidden_layers": 5,
        "compress_ratios": [128, 128, 4, 128, 4, 0],
        "num_hash_layers": 3,
        "routed_scaling_factor": 2.5,
        "index_topk": 16,
        "expert_dtype": "fp8",
    },
    # Blocks of 32 stand for 128, so that short prompts cross borders of every kind; with a
    # tokenizer, to be served.
    "ratio_32": {
        "vocab_size": 320,
        "num_hidden_layers": 6,
        "compress_ratios": [0, 32, 4, 32, 4, 4, 0],
        **transformers_ratios([0, 32, 4, 32, 4, 4]),
    },
    # Heads wide enough for packed cache rows.
    "wide": {
        "num_hidden_layers": 3,
        "num_hash_layers": 1,
        "n_routed_experts": 4,
        "head_dim": 128,
        "qk_rope_head_dim": 64,
        "index_head_dim": 128,
        "compress_ratios": [0, 32, 4, 0],
        **transformers_ratios([0, 32, 4]),
    },
}


class Maker:
    """Random tensors in the vendor's layout."""

    def __init__(self, config: dict, seed: int):
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, torch.Tensor] = {}

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def bf16(self, name: str, n: int, k: int, gain: float = 1.0) -> None:
        self.tensors[name] = (self.normal(n, k) * (gain * k**-0.5)).bfloat16()

    def norm(self, name: str, n: int) -> None:
        self.tensors[name] = (1.0 + 0.1 * self.normal(n)).bfloat16()

    def fp8(self, name: str, n: int, k: int) -> None:
        rows, cols = -(-n // FP8_TILE), -(-k // FP8_TILE)
        value = self.normal(n, k) * k**-0.5
        scale = torch.empty(rows, cols)
        codes = torch.empty(n, k, dtype=torch.float8_e4m3fn)
        for i in range(rows):
            for j in range(cols):
                tile = (slice(i * FP8_TILE, (i + 1) * FP8_TILE), slice(j * FP8_TILE, (j + 1) * FP8_TILE))
                scale[i, j] = 2.0 ** torch.ceil(torch.log2(value[tile].abs().max() / 448))
                codes[tile] = (value[tile] / scale[i, j]).to(torch.float8_e4m3fn)
        self.tensors[f"{name}.weight"] = codes
        self.tensors[f"{name}.scale"] = scale.to(torch.float8_e8m0fnu)

    def fp4(self, name: str, n: int, k: int) -> None:
        """Random codes and exponents: nibble order and the place of a scale show in the logits."""
        codes = torch.randint(0, 256, (n, k // 2), generator=self.generator).to(torch.uint8)
        exponent = torch.randint(-1, 2, (n, k // 32), generator=self.generator)
        # A random E2M1 code has the standard deviation 2.9.
        scale = 2.0 ** (exponent + round(float(torch.log2(torch.tensor(k**-0.5 / 2.9)))))
        self.tensors[f"{name}.weight"] = codes.view(torch.int8)
        self.tensors[f"{name}.scale"] = scale.to(torch.float8_e8m0fnu)

    def hyper_connection(self, prefix: str, outputs: int, scales: int) -> None:
        width = self.config["hc_mult"] * self.config["hidden_size"]
        self.tensors[f"{prefix}_fn"] = self.normal(outputs, width) * width**-0.5
        self.tensors[f"{prefix}_base"] = self.normal(outputs)
        self.tensors[f"{prefix}_scale"] = 1.0 + 0.1 * self.normal(scales)

    def compressor(self, prefix: str, ratio: int, width: int, head: int) -> None:
        self.tensors[f"{prefix}.ape"] = 0.5 * self.normal(ratio, width)
        self.bf16(f"{prefix}.wkv.weight", width, self.config["hidden_size"])
        self.bf16(f"{prefix}.wgate.weight", width, self.config["hidden_size"])
        self.norm(f"{prefix}.norm.weight", head)

    def attention(self, prefix: str, ratio: int) -> None:
        c = self.config
        hidden, heads, d, rank = c["hidden_size"], c["num_attention_heads"], c["head_dim"], c["q_lora_rank"]
        self.tensors[f"{prefix}.attn_sink"] = self.normal(heads)
        self.fp8(f"{prefix}.wq_a", rank, hidden)
        self.norm(f"{prefix}.q_norm.weight", rank)
        self.fp8(f"{prefix}.wq_b", heads * d, rank)
        self.fp8(f"{prefix}.wkv", d, hidden)
        self.norm(f"{prefix}.kv_norm.weight", d)
        self.fp8(f"{prefix}.wo_a", c["o_groups"] * c["o_lora_rank"], heads * d // c["o_groups"])
        self.fp8(f"{prefix}.wo_b", hidden, c["o_groups"] * c["o_lora_rank"])
        if ratio == 4:
            index = c["index_head_dim"]
            self.compressor(f"{prefix}.compressor", ratio, 2 * d, d)
            self.fp8(f"{prefix}.indexer.wq_b", c["index_n_heads"] * index, rank)
            self.bf16(f"{prefix}.indexer.weights_proj.weight", c["index_n_heads"], hidden)
            self.compressor(f"{prefix}.indexer.compressor", ratio, 2 * index, index)
        elif ratio > 0:
            self.compressor(f"{prefix}.compressor", ratio, d, d)

    def experts(self, prefix: str, layer: int) -> None:
        c = self.config
        hidden, inner, count = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
        self.bf16(f"{prefix}.gate.weight", count, hidden)
        if layer < c["num_hash_layers"]:
            rows = [torch.randperm(count, generator=self.generator) for _ in range(c["vocab_size"])]
            self.tensors[f"{prefix}.gate.tid2eid"] = torch.stack(rows)[:, : c["num_experts_per_tok"]].contiguous()
        else:
            self.tensors[f"{prefix}.gate.bias"] = 0.1 * self.normal(count)
        routed = self.fp4 if c["expert_dtype"] == "fp4" else self.fp8
        for expert in range(count):
            routed(f"{prefix}.experts.{expert}.w1", inner, hidden)
            routed(f"{prefix}.experts.{expert}.w2", hidden, inner)
            routed(f"{prefix}.experts.{expert}.w3", inner, hidden)
        self.fp8(f"{prefix}.shared_experts.w1", inner, hidden)
        self.fp8(f"{prefix}.shared_experts.w2", hidden, inner)
        self.fp8(f"{prefix}.shared_experts.w3", inner, hidden)

    def make(self) -> dict[str, torch.Tensor]:
        c = self.config
        hidden = c["hidden_size"]
        self.tensors["embed.weight"] = self.normal(c["vocab_size"], hidden).bfloat16()
        self.norm("norm.weight", hidden)
        self.bf16("head.weight", c["vocab_size"], hidden, gain=3.0)
        self.hyper_connection("hc_head", c["hc_mult"], 1)
        for layer in range(c["num_hidden_layers"]):
            prefix = f"layers.{layer}"
            self.norm(f"{prefix}.attn_norm.weight", hidden)
            self.norm(f"{prefix}.ffn_norm.weight", hidden)
            self.hyper_connection(f"{prefix}.hc_attn", 24, 3)
            self.hyper_connection(f"{prefix}.hc_ffn", 24, 3)
            self.attention(f"{prefix}.attn", c["compress_ratios"][layer])
            self.experts(f"{prefix}.ffn", layer)
        return dict(sorted(self.tensors.items()))


def load(folder: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


class IndexGap:
    """The smallest distance of an index score from the boundary of its selection."""

    def __init__(self):
        self.smallest = float("inf")
        self.original = modeling_deepseek_v4.DeepseekV4IndexerScorer.forward

    def __enter__(self):
        gap = self

        def forward(scorer, q, keys, hidden):
            scores = gap.original(scorer, q, keys, hidden)
            count = q.shape[1]
            for t in range(count):
                visible = (scores.shape[2] * 4 - count + t + 1) // 4 if count == 1 else (t + 1) // 4
                visible = min(visible, scores.shape[2])
                if count > 1 and visible > gap.top_k:
                    best = scores[0, t, :visible].topk(gap.top_k + 1).values
                    gap.smallest = min(gap.smallest, float(best[-2] - best[-1]))
            return scores

        modeling_deepseek_v4.DeepseekV4IndexerScorer.forward = forward
        return self

    def __exit__(self, *_):
        modeling_deepseek_v4.DeepseekV4IndexerScorer.forward = self.original


@torch.no_grad()
def expect(model, input_ids: torch.Tensor) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good."""
    with IndexGap() as gap:
        gap.top_k = model.config.index_topk
        model(input_ids[None], use_cache=False)
    if gap.smallest < MIN_INDEX_GAP:
        return f"index scores within {gap.smallest:.1e}"
    return tiny_model.run(model, input_ids, min_distinct=1)


def make(name: str) -> None:
    folder, config = Path(__file__).resolve().parent / name, {**BASE, **CASES[name]}
    for seed in range(100):
        generator = torch.Generator().manual_seed(1000 + seed)
        input_ids = torch.randint(3, tiny_model.VOCAB, (PROMPT_TOKENS,), generator=generator)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        tiny_model.save_one(Maker(config, seed).make(), folder)
        if config["vocab_size"] > tiny_model.VOCAB:
            write_tokenizer(folder)
        expected = expect(load(folder), input_ids)
        if not isinstance(expected, str):
            break
        print(f"{name}: seed {seed}: {expected}")
    else:
        sys.exit(f"{name}: no seed passes")
    save_file(expected, folder / "expected.safetensors")
    sizes = [path.stat().st_size for path in folder.iterdir()]
    if max(sizes) > tiny_model.MAX_FILE_BYTES:
        sys.exit(f"{name}: largest file {max(sizes)} bytes")
    print(f"{name}: seed {seed}, {sum(sizes)} bytes, greedy {expected['greedy'].tolist()}")


if __name__ == "__main__":
    tiny_model.make_cases("V4", CASES, make)
