#!/usr/bin/env python3
"""Makes the tiny DeepSeek V4.1 checkpoint of this folder and its expected logits.

Needs `pip install numpy==2.4.6 torch==2.15.0 safetensors==0.8.0` (torch writes FP8 files); the tests
that read the result need none of it.

    python3 make_golden.py

No official implementation of the whole model runs here, so the expected logits come from reference.py
beside this file: the published formulas in float64, a whole prompt at once, no cache. The folder tiny/
gets config.json and model.safetensors in the vendor's layout and expected.safetensors with
    input_ids      I32 [T]          the prompt
    logits         F32 [T, vocab]   at every prompt position
    greedy         I32 [8]          the greedy continuation
    greedy_logits  F32 [8, vocab]   the logits that chose each of them; row 0 is logits[T - 1]
and replay.safetensors with what follows a cached prefix whose windows are replayed
    first, settled  I32 [cases]     where the replay begins, and the length of the prefix
    logits          F32 [Σ (T − settled), vocab]
A seed is taken only if every greedy choice wins by more than 0.05 and no index score lies within 1e-4
of the boundary of a selection.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from reference import Reference
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).resolve().parent.parent))
from byte_tokenizer import write_tokenizer

VOCAB = 320
PROMPT_VOCAB = 256
PROMPT_TOKENS = 150
GREEDY_TOKENS = 8
# Where a replay begins, and the cached prefix that it belongs to.
REPLAYS = [(0, 16), (48, 64), (80, 96), (64, 128), (100, 116), (124, 140)]
MIN_MARGIN = 0.05
MIN_INDEX_GAP = 1e-4
MAX_FILE_BYTES = 1 << 20
TILE = 32

TEXT_CONFIG = {
    "model_type": "deepseek_v41_text",
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 10,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 32,
    "o_lora_rank": 16,
    "o_groups": 2,
    "moe_intermediate_size": 32,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 2.0,
    "rms_norm_eps": 1e-20,
    "sliding_window": 16,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
    },
    "max_position_embeddings": 1024,
    "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4, 5],
    "index_source_layer_ids": [2, 4, 5, 7, 9],
    "candidate_source_layer_id": 5,
    "candidate_block_size": 4,
    "candidate_topk_blocks": 3,
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 8,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": [1, 4],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 97,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "engram_num_embeddings": [630, 834],
    "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 200,
    "num_nextn_predict_layers": 3,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
}

CONFIG = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "text_config": TEXT_CONFIG,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [TILE, TILE],
        "scale_fmt": "ue8m0",
        "expert_dtype": "fp4",
    },
}

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


class Maker:
    """Random tensors as the file holds them, and their values for the reference."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, torch.Tensor] = {}
        self.values: dict[str, np.ndarray] = {}

    def put(self, name: str, value: np.ndarray, dtype: torch.dtype) -> None:
        tensor = torch.tensor(value).to(dtype)
        self.tensors[name] = tensor
        self.values[name] = tensor.double().numpy()

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape)

    def bf16(self, name: str, n: int, k: int, gain: float = 1.0) -> None:
        self.put(name, self.normal(n, k) * gain * k**-0.5, torch.bfloat16)

    def norm(self, name: str, n: int) -> None:
        self.put(name, 1.0 + 0.1 * self.normal(n), torch.bfloat16)

    def fp8(self, name: str, n: int, k: int) -> None:
        value = self.normal(n, k) * k**-0.5
        scale = np.empty((-(-n // TILE), -(-k // TILE)))
        for i, j in np.ndindex(*scale.shape):
            tile = value[i * TILE : (i + 1) * TILE, j * TILE : (j + 1) * TILE]
            scale[i, j] = 2.0 ** np.ceil(np.log2(np.abs(tile).max() / 448))
        wide = np.repeat(np.repeat(scale, TILE, 0), TILE, 1)[:n, :k]
        codes = torch.tensor(value / wide).to(torch.float8_e4m3fn)
        self.tensors[f"{name}.weight"] = codes
        self.tensors[f"{name}.scale"] = torch.tensor(scale).to(torch.float8_e8m0fnu)
        self.values[f"{name}.weight"] = codes.double().numpy() * wide

    def fp4(self, name: str, n: int, k: int) -> None:
        codes = self.random.integers(0, 256, (n, k // 2)).astype(np.uint8)
        exponent = self.random.integers(-1, 2, (n, k // 32)) + round(np.log2(k**-0.5 / 2.9))
        scale = 2.0 ** exponent.astype(float)
        self.tensors[f"{name}.weight"] = torch.tensor(codes).view(torch.int8)
        self.tensors[f"{name}.scale"] = torch.tensor(scale).to(torch.float8_e8m0fnu)
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(n, k)
        self.values[f"{name}.weight"] = FP4[nibbles] * np.repeat(scale, 32, 1)

    def hyper_connection(self, prefix: str) -> None:
        width = 4 * TEXT_CONFIG["hidden_size"]
        self.put(f"{prefix}_fn", self.normal(24, width) * width**-0.5, torch.float32)
        self.put(f"{prefix}_base", self.normal(24), torch.float32)
        self.put(f"{prefix}_scale", 1.0 + 0.1 * self.normal(3), torch.float32)

    def attention(self, prefix: str, layer: int) -> None:
        c = TEXT_CONFIG
        hidden, heads, d, rank = c["hidden_size"], c["num_attention_heads"], c["head_dim"], c["q_lora_rank"]
        self.put(f"{prefix}.attn_sink", self.normal(heads), torch.float32)
        self.fp8(f"{prefix}.wq_a", rank, hidden)
        self.norm(f"{prefix}.q_norm.weight", rank)
        self.fp8(f"{prefix}.wq_b", heads * d, rank)
        self.fp8(f"{prefix}.wkv", d, hidden)
        self.norm(f"{prefix}.kv_norm.weight", d)
        self.fp8(f"{prefix}.wo_a", c["o_groups"] * c["o_lora_rank"], heads * d // c["o_groups"])
        self.fp8(f"{prefix}.wo_b", hidden, c["o_groups"] * c["o_lora_rank"])
        index, index_heads = c["index_head_dim"], c["index_n_heads"]
        if layer in c["kv_source_layer_ids"]:
            self.bf16(f"{prefix}.compressor.wkv.weight", d, hidden)
            if c["compress_ratios"][layer] > 1:
                self.bf16(f"{prefix}.compressor.wgate.weight", d, hidden, gain=3.0)
            self.norm(f"{prefix}.compressor.norm.weight", d)
            self.bf16(f"{prefix}.indexer.wk.weight", index, d)
            self.norm(f"{prefix}.indexer.k_norm.weight", index)
        if layer in c["index_source_layer_ids"]:
            self.fp8(f"{prefix}.indexer.wq_b", index_heads * index, rank)
            self.bf16(f"{prefix}.indexer.weights_proj.weight", index_heads, hidden)

    def experts(self, prefix: str) -> None:
        c = TEXT_CONFIG
        hidden, inner = c["hidden_size"], c["moe_intermediate_size"]
        self.bf16(f"{prefix}.gate.weight", c["n_routed_experts"], hidden)
        self.put(f"{prefix}.gate.bias", 0.1 * self.normal(c["n_routed_experts"]), torch.float32)
        self.put(f"{prefix}.gate.bias_vl", self.normal(c["n_routed_experts"]), torch.float32)
        for expert in range(c["n_routed_experts"]):
            self.fp4(f"{prefix}.experts.{expert}.w1", inner, hidden)
            self.fp4(f"{prefix}.experts.{expert}.w2", hidden, inner)
            self.fp4(f"{prefix}.experts.{expert}.w3", inner, hidden)
        self.fp8(f"{prefix}.shared_experts.w1", inner, hidden)
        self.fp8(f"{prefix}.shared_experts.w2", hidden, inner)
        self.fp8(f"{prefix}.shared_experts.w3", inner, hidden)

    def engram(self, prefix: str, rows: int) -> None:
        c = TEXT_CONFIG
        hidden, width = c["hidden_size"], c["engram_head_dim"]
        features = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * width
        codes = torch.tensor(self.normal(rows, width)).to(torch.float8_e4m3fn)
        scale = 2.0 ** self.random.integers(-2, 2, (rows, width // 32)).astype(float)
        self.tensors[f"{prefix}.embed.weight"] = codes
        self.tensors[f"{prefix}.embed.scale"] = torch.tensor(scale).to(torch.float8_e8m0fnu)
        self.values[f"{prefix}.embed.weight"] = codes.double().numpy() * np.repeat(scale, 32, 1)
        self.fp8(f"{prefix}.wkv", 5 * hidden, features)
        self.put(f"{prefix}.q_weight", 1.0 + 0.1 * self.normal(4, hidden), torch.bfloat16)
        self.put(f"{prefix}.k_weight", 1.0 + 0.1 * self.normal(4, hidden), torch.bfloat16)

    def make(self) -> None:
        c = TEXT_CONFIG
        hidden = c["hidden_size"]
        self.put("embed.weight", self.normal(VOCAB, hidden), torch.bfloat16)
        self.norm("norm.weight", hidden)
        self.bf16("head.weight", VOCAB, hidden, gain=3.0)
        # The map of token ids that the released model derives from its tokenizer.
        token_map = np.arange(VOCAB) % c["engram_compressed_vocab_size"]
        self.tensors["engram.token_map"] = torch.tensor(token_map, dtype=torch.int32)
        self.values["engram.token_map"] = token_map
        for layer in range(c["num_hidden_layers"]):
            prefix = f"layers.{layer}"
            self.norm(f"{prefix}.attn_norm.weight", hidden)
            self.norm(f"{prefix}.ffn_norm.weight", hidden)
            self.hyper_connection(f"{prefix}.hc_attn")
            self.hyper_connection(f"{prefix}.hc_ffn")
            self.attention(f"{prefix}.attn", layer)
            self.experts(f"{prefix}.ffn")
            if layer in c["engram_layer_ids"]:
                rows = c["engram_num_embeddings"][c["engram_layer_ids"].index(layer)]
                self.engram(f"{prefix}.engram", rows)


def run(maker: Maker, input_ids: list[int]) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good."""
    reference = Reference(TEXT_CONFIG, maker.values)
    ids, rows, tokens, logits = list(input_ids), [], [], None
    for _ in range(GREEDY_TOKENS):
        every = reference.logits(ids)
        logits = every if logits is None else logits
        top = np.sort(every[-1])[-2:]
        if top[1] - top[0] < MIN_MARGIN:
            return f"margin {top[1] - top[0]:.3f}"
        rows.append(every[-1])
        tokens.append(int(every[-1].argmax()))
        ids.append(tokens[-1])
    if reference.smallest_gap < MIN_INDEX_GAP:
        return f"index scores within {reference.smallest_gap:.1e}"
    return {
        "input_ids": torch.tensor(input_ids, dtype=torch.int32),
        "logits": torch.tensor(logits).float(),
        "greedy": torch.tensor(tokens, dtype=torch.int32),
        "greedy_logits": torch.tensor(np.stack(rows)).float(),
    }


def run_replays(maker: Maker, input_ids: list[int]) -> dict[str, torch.Tensor]:
    reference = Reference(TEXT_CONFIG, maker.values)
    logits = [reference.replayed_logits(input_ids, *replay) for replay in REPLAYS]
    if reference.smallest_gap < MIN_INDEX_GAP:
        sys.exit(f"index scores of a replay within {reference.smallest_gap:.1e}")
    return {
        "first": torch.tensor([first for first, _ in REPLAYS], dtype=torch.int32),
        "settled": torch.tensor([settled for _, settled in REPLAYS], dtype=torch.int32),
        "logits": torch.tensor(np.concatenate(logits)).float(),
    }


def main() -> None:
    folder = Path(__file__).resolve().parent / "tiny"
    for seed in range(100):
        input_ids = np.random.default_rng(1000 + seed).integers(3, PROMPT_VOCAB, PROMPT_TOKENS).tolist()
        maker = Maker(seed)
        maker.make()
        expected = run(maker, input_ids)
        if not isinstance(expected, str):
            break
        print(f"seed {seed}: {expected}")
    else:
        sys.exit("no seed passes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    save_file(dict(sorted(maker.tensors.items())), folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    save_file(expected, folder / "expected.safetensors")
    save_file(run_replays(maker, input_ids), folder / "replay.safetensors")
    sizes = [path.stat().st_size for path in folder.iterdir()]
    if max(sizes) > MAX_FILE_BYTES:
        sys.exit(f"largest file {max(sizes)} bytes")
    print(f"seed {seed}, {sum(sizes)} bytes, greedy {expected['greedy'].tolist()}")


if __name__ == "__main__":
    main()
