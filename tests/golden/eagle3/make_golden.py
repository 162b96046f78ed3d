#!/usr/bin/env python3
"""Makes tiny dense checkpoints with EAGLE-3 heads, and what the heads must guess.

Needs `pip install numpy==2.4.6 torch==2.15.0 transformers==5.24.0 safetensors==0.8.0`; the tests that
read the result need none of it.

    python3 make_golden.py [CASE...]      all cases when none is named

A case becomes two folders. target/ is a checkpoint of transformers with a tokenizer. head/ holds the head as
SGLang (case "llama") or vLLM (case "qwen3") lays it out, and expected.safetensors:
    input_ids       I32 [T]             the prompt
    logits          F32 [T, vocab]      of the target, at every prompt position
    positions       I32 [P]             of the last committed token: the anchor is the prompt's next
    guesses         I32 [P, K]          the greedy guesses, ids of the target
    draft_logits    F32 [P, K, vocab]   of each guess after the greedy ones before, by ids of the target;
                                        -inf for tokens that the head does not know
The target's states are transformers' own (float32). The head is written here from the published formulas, in
float64 over the whole text, without a cache. A seed is taken only if every greedy guess wins by more than
0.02.
"""

import argparse
import importlib.util
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

GOLDEN = Path(__file__).resolve().parent.parent
sys.path.append(str(GOLDEN))
from byte_tokenizer import write_tokenizer
from tiny_model import Noise

spec = importlib.util.spec_from_file_location("dense", GOLDEN / "dense" / "make_golden.py")
dense = importlib.util.module_from_spec(spec)
sys.modules["dense"] = dense
spec.loader.exec_module(dense)

VOCAB = 320
PROMPT_TOKENS = 60
POSITIONS = [0, 1, 3, 14, 15, 16, 17, 30, 31, 32, 47, 58]
GUESSES = 4
MIN_MARGIN = 0.02
THETA = 10000.0


@dataclass
class Case:
    target: dense.Case
    config: dict  # the head's own fields
    layer: str  # prefix of its layer's tensors
    states: list[int]  # layers of the target whose input it looks at
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    draft_vocab: int
    bias: bool = False
    own_embedding: bool = False
    norm_before_residual: bool = False


TARGET = {"vocab_size": VOCAB, "num_hidden_layers": 4}
CASES = {
    # SGLang: layers are named by their output; a map of tokens; the target's embedding.
    "llama": Case(
        target=dense.Case("Llama", {**TARGET, **dense.rope(THETA)}),
        config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}},
        layer="midlayer",
        states=[1, 2, 3],
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn=96,
        draft_vocab=100,
    ),
    # vLLM: layers are named by their input; all tokens; an embedding of another width; biases.
    "qwen3": Case(
        target=dense.Case("Qwen3", {**TARGET, "head_dim": 32, **dense.rope(1000000.0)}),
        config={
            "eagle_aux_hidden_state_layer_ids": [0, 2, 3],
            "norm_before_residual": True,
            "target_hidden_size": 64,
            "attention_bias": True,
        },
        layer="layers.0",
        states=[0, 2, 3],
        hidden=48,
        heads=3,
        kv_heads=1,
        head_dim=32,
        ffn=80,
        draft_vocab=VOCAB,
        bias=True,
        own_embedding=True,
        norm_before_residual=True,
    ),
}


def make_head(case: Case, seed: int, target_hidden: int) -> dict[str, torch.Tensor]:
    noise, h, layer = Noise(7000 + seed), case.hidden, case.layer
    tensors = {"fc.weight": noise.matrix(h, len(case.states) * target_hidden)}
    shapes = {
        "self_attn.q_proj": (case.heads * case.head_dim, 2 * h),
        "self_attn.k_proj": (case.kv_heads * case.head_dim, 2 * h),
        "self_attn.v_proj": (case.kv_heads * case.head_dim, 2 * h),
        "self_attn.o_proj": (h, case.heads * case.head_dim),
        "mlp.gate_proj": (case.ffn, h),
        "mlp.up_proj": (case.ffn, h),
        "mlp.down_proj": (h, case.ffn),
    }
    for name, (rows, columns) in shapes.items():
        tensors[f"{layer}.{name}.weight"] = noise.matrix(rows, columns)
        if case.bias and name.startswith("self_attn"):
            tensors[f"{layer}.{name}.bias"] = noise.normal(rows, sigma=0.2)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"{layer}.{name}.weight"] = noise.normal(h, mean=1.0, sigma=0.2)
    tensors["norm.weight"] = noise.normal(h, mean=1.0, sigma=0.2)
    tensors["lm_head.weight"] = noise.matrix(case.draft_vocab, h, gain=3.0)
    if case.own_embedding:
        tensors["embed_tokens.weight"] = noise.normal(VOCAB, h)
    tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    if case.draft_vocab < VOCAB:
        known = np.sort(np.random.default_rng(seed).choice(np.arange(3, VOCAB), case.draft_vocab, replace=False))
        tensors["d2t"] = torch.tensor(known - np.arange(case.draft_vocab), dtype=torch.int64)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
        tensors["t2d"][known] = True
    return tensors


class HeadReference:
    def __init__(self, case: Case, tensors: dict[str, torch.Tensor], embedding: np.ndarray):
        self.case = case
        self.w = {name: t.double().numpy() for name, t in tensors.items() if t.dtype == torch.bfloat16}
        self.embedding = self.w.get("embed_tokens.weight", embedding)
        self.known = np.arange(case.draft_vocab)
        if "d2t" in tensors:
            self.known = self.known + tensors["d2t"].numpy()

    def norm(self, x, name: str):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * self.w[f"{name}.weight"]

    def linear(self, x, name: str):
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def rotate(self, x):
        """x [T, heads, D] at positions 0 … T - 1, halves paired."""
        count, _, width = x.shape
        angle = np.arange(count)[:, None] * THETA ** (-np.arange(0, width, 2) / width)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., : width // 2], x[..., width // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def layer(self, state, tokens: list[int]):
        """What the layer makes of state [T, H] with the tokens behind, before the last norm."""
        c, name = self.case, self.case.layer
        normed = self.norm(state, f"{name}.hidden_norm")
        both = np.concatenate([self.norm(self.embedding[tokens], f"{name}.input_layernorm"), normed], -1)
        residual = normed if c.norm_before_residual else state
        heads = lambda part, count: self.linear(both, f"{name}.self_attn.{part}").reshape(len(both), count, c.head_dim)
        q, k = self.rotate(heads("q_proj", c.heads)), self.rotate(heads("k_proj", c.kv_heads))
        v, out = heads("v_proj", c.kv_heads), np.empty_like(q)
        for h in range(c.heads):
            of = h * c.kv_heads // c.heads
            score = q[:, h] @ k[:, of].T * c.head_dim**-0.5
            score[np.triu_indices(len(both), 1)] = -np.inf
            weight = np.exp(score - score.max(-1, keepdims=True))
            out[:, h] = weight / weight.sum(-1, keepdims=True) @ v[:, of]
        x = residual + self.linear(out.reshape(len(both), -1), f"{name}.self_attn.o_proj")
        y = self.norm(x, f"{name}.post_attention_layernorm")
        gate = self.linear(y, f"{name}.mlp.gate_proj")
        return x + self.linear(
            gate / (1 + np.exp(-gate)) * self.linear(y, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj"
        )

    def guesses(self, states, input_ids: list[int], position: int):
        """states [T, n · H of the target]; the guesses behind input_ids[position + 1]."""
        state = self.linear(states[: position + 1], "fc")
        tokens, logits, guesses = input_ids[1 : position + 2], [], []
        while len(guesses) < GUESSES:
            last = self.layer(state, tokens)[-1:]
            row = np.full(VOCAB, -np.inf)
            row[self.known] = self.linear(self.norm(last, "norm"), "lm_head")[0]
            logits.append(row)
            guesses.append(int(row.argmax()))
            state, tokens = np.concatenate([state, last]), [*tokens, guesses[-1]]
        return np.array(logits), guesses


def head_config(case: Case) -> dict:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": case.hidden,
        "intermediate_size": case.ffn,
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "head_dim": case.head_dim,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": case.draft_vocab,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        **case.config,
    }


@torch.no_grad()
def expect(case: Case, seed: int, folder: Path) -> dict[str, torch.Tensor] | str:
    """The expected tensors, or why this seed is no good."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("target", "head"):
        (folder / part).mkdir(parents=True)
    model = dense.build_model(case.target, seed)
    dense.write_config(model, case.target, folder / "target" / "config.json")
    dense.write_weights(model, case.target, folder / "target")
    write_tokenizer(folder / "target")
    tensors = make_head(case, seed, model.config.hidden_size)
    (folder / "head" / "config.json").write_text(json.dumps(head_config(case), indent=2) + "\n", encoding="utf-8")
    save_file(dict(sorted(tensors.items())), folder / "head" / "model.safetensors", metadata={"format": "pt"})

    input_ids = np.random.default_rng(1000 + seed).integers(8, 264, PROMPT_TOKENS).tolist()
    out = model(torch.tensor(input_ids)[None], use_cache=False, output_hidden_states=True)
    states = torch.cat([out.hidden_states[i][0] for i in case.states], -1).double().numpy()
    reference = HeadReference(case, tensors, model.get_input_embeddings().weight.double().numpy())
    results = [reference.guesses(states, input_ids, p) for p in POSITIONS]
    draft_logits = np.stack([result[0] for result in results])
    top = np.sort(draft_logits, -1)[..., -2:]
    if (top[..., 1] - top[..., 0]).min() < MIN_MARGIN:
        return f"margin {(top[..., 1] - top[..., 0]).min():.3f}"
    return {
        "input_ids": torch.tensor(input_ids, dtype=torch.int32),
        "logits": out.logits[0].float().contiguous(),
        "positions": torch.tensor(POSITIONS, dtype=torch.int32),
        "guesses": torch.tensor([result[1] for result in results], dtype=torch.int32),
        "draft_logits": torch.tensor(draft_logits).float(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tiny checkpoints with EAGLE-3 heads.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in parser.parse_args().cases or list(CASES):
        folder = Path(__file__).resolve().parent / name
        for seed in range(100):
            expected = expect(CASES[name], seed, folder)
            if not isinstance(expected, str):
                break
            print(f"{name}: seed {seed}: {expected}")
        else:
            sys.exit(f"{name}: no seed passes")
        save_file(expected, folder / "head" / "expected.safetensors")
        for path in folder.rglob("*.*"):
            path.chmod(0o644)
        print(f"{name}: seed {seed}, guesses {expected['guesses'][0].tolist()}")


if __name__ == "__main__":
    main()
