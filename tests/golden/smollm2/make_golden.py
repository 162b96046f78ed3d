#!/usr/bin/env python3
"""Makes expected.json: what the default model says in fp32 to ten prompts, and how surely.

Needs `pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0`; the tests that read the result
need none of it.

    python3 make_golden.py SmolLM2-135M-Instruct.Q4_1.gguf

The oracle is transformers' fp32 forward pass over the dequantised weights. Per prompt the file holds
the text, its token ids, TOKENS greedy token ids with their text, and per step the two best logits:
an implementation whose activations have 8 bits may choose otherwise where they are close. `first`
has the 16 best logits after the prompt, to measure by how much an implementation's logits move.
Decoding goes on through end-of-text tokens, so every prompt has the same number of steps.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 48
FIRST_LOGITS = 16

TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "Water boils at 100 degrees Celsius because",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,",
]
CHATS = [
    [{"role": "user", "content": "What is gravity?"}],
    [{"role": "user", "content": "Write a haiku about the wind."}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada."},
        {"role": "user", "content": "What is my name?"},
    ],
    [{"role": "user", "content": "Translate to French: I like café crème, naïve 風 🌬️."}],
]


def load_tokenizer(path: Path):
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # transformers ignores tokenizer.ggml.pre = smollm: digits one by one, then the GPT-2 pattern.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


@torch.no_grad()
def decode(model, prompt_ids: list[int]) -> tuple[list[dict], list]:
    steps, first = [], []
    out = model(torch.tensor([prompt_ids]), use_cache=True)
    for _ in range(TOKENS):
        logits = out.logits[0, -1]
        if not first:
            top = logits.topk(FIRST_LOGITS)
            first = [[int(i), round(float(v), 5)] for v, i in zip(top.values, top.indices, strict=True)]
        top = logits.topk(2)
        steps.append(
            {
                "ids": [int(i) for i in top.indices],
                "logits": [round(float(v), 5) for v in top.values],
            }
        )
        out = model(top.indices[None, :1], past_key_values=out.past_key_values, use_cache=True)
    return steps, first


def main() -> None:
    parser = argparse.ArgumentParser(description="Make expected.json from the default model.")
    parser.add_argument("model", type=Path)
    path = parser.parse_args().model.resolve()
    tokenizer = load_tokenizer(path)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()

    texts = TEXTS + [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in CHATS
    ]
    cases = []
    for number, text in enumerate(texts):
        prompt_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        steps, first = decode(model, prompt_ids)
        greedy = [step["ids"][0] for step in steps]
        cases.append(
            {
                "text": text,
                "messages": None if number < len(TEXTS) else CHATS[number - len(TEXTS)],
                "prompt_ids": prompt_ids,
                "greedy_ids": greedy,
                "greedy_text": tokenizer.decode(greedy, clean_up_tokenization_spaces=False),
                "runner_up_ids": [step["ids"][1] for step in steps],
                "margins": [round(step["logits"][0] - step["logits"][1], 5) for step in steps],
                "first": first,
            }
        )
        print(f"{text[-40:]!r}: smallest margin {min(cases[-1]['margins']):.4f}: {cases[-1]['greedy_text'][:60]!r}")
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    target = Path(__file__).resolve().parent / "expected.json"
    target.write_text(f'{{"model": "{path.name}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
