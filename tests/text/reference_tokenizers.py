"""Tokenizers of every kind that Hayate reads, as the reference library builds them.

The default model's is real. The others carry the exact normalizers, pre-tokenizer patterns and decoders
of their families over small vocabularies, trained here in a second: a vocabulary is data, the rules that
apply it are what can be wrong.
"""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from text_samples import training_lines
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK_V3_LAST = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3_LAST]
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def isolated(pattern: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(*steps: Any, normalizer: Any = None, vocab_size: int = 3000) -> Tokenizer:
    """A byte-level BPE whose pre-tokenizer is `steps` and then the byte mapping."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(training_lines(), trainer)
    return with_all_pairs(tokenizer, alphabet)


def with_all_pairs(tokenizer: Tokenizer, alphabet: list[str]) -> Tokenizer:
    """Lets any two bytes merge, so that nearly every cut between pieces, or its absence, changes ids."""
    spec = json.loads(tokenizer.to_str())
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"]
    pairs = [[left, right] for left in alphabet for right in alphabet if left + right not in vocab]
    random.Random(5).shuffle(pairs)
    for left, right in pairs:
        vocab[left + right] = len(vocab)
        merges.append([left, right])
    return Tokenizer.from_str(json.dumps(spec))


def llama3() -> Tokenizer:
    tokenizer = byte_level(isolated(LLAMA3))
    tokenizer.model.ignore_merges = True
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", bos)],
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2() -> Tokenizer:
    tokenizer = byte_level(isolated(QWEN2), normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<tool_call>", "<think>", "</think>")])
    return tokenizer


def deepseek_v3() -> Tokenizer:
    tokenizer = byte_level(*[isolated(pattern) for pattern in DEEPSEEK_V3])
    tokenizer.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    plain = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    return tokenizer


def gpt_oss() -> Tokenizer:
    tokenizer = byte_level(isolated(O200K))
    tokenizer.add_special_tokens(["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"])
    return tokenizer


def gpt2() -> Tokenizer:
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def added_token_traits() -> Tokenizer:
    """White space and words beside added tokens; every behaviour of Split; grouped digits."""
    steps = [
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split("-", "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[.,]"), "merged_with_next"),
        pre_tokenizers.Split("#", "contiguous"),
        pre_tokenizers.Split(Regex(r"\s*\S+|\s+"), "removed", invert=True),
        pre_tokenizers.Split("~", "removed"),
    ]
    tokenizer = byte_level(*steps, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]))
    tokenizer.add_special_tokens([AddedToken("<A>", lstrip=True, normalized=False), "<AB>", "<A><AB>"])
    tokenizer.add_tokens(
        [
            AddedToken("<B>", rstrip=True, normalized=False),
            AddedToken("<C>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<D>", single_word=True, normalized=False),
            AddedToken("ﬁn", normalized=True),
            AddedToken("word", single_word=True, normalized=True),
        ]
    )
    return tokenizer


def sentence_piece(split: bool) -> Tokenizer:
    """Byte-fallback BPE over "▁" words, unknown tokens fused: Llama 2 and Mistral."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        limit_alphabet=200,
        special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_lines(), trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in special]
    if split:
        spec["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    else:
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        spec["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}
        spec["pre_tokenizer"] = None
    spec["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    return Tokenizer.from_str(json.dumps(spec))


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "llama3": llama3,
    "qwen2": qwen2,
    "deepseek_v3": deepseek_v3,
    "gpt_oss": gpt_oss,
    "gpt2": gpt2,
    "added_token_traits": added_token_traits,
    "llama2": lambda: sentence_piece(split=False),
    "mistral": lambda: sentence_piece(split=True),
}


# struct format of each scalar value type of GGUF.
GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class GgufMetadata:
    """Just enough of a GGUF reader for its key-value section."""

    def __init__(self, path: Path):
        with path.open("rb") as self._file:
            magic, _version, _tensors, num_keys = self._read("<4sIQQ")
            assert magic == b"GGUF"
            self.values = {self._string(): self._value() for _ in range(num_keys)}

    def _read(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._file.read(struct.calcsize(layout)))

    def _string(self) -> str:
        (length,) = self._read("<Q")
        return self._file.read(length).decode()

    def _value(self, kind: int | None = None) -> Any:
        if kind is None:
            (kind,) = self._read("<I")
        if kind == 8:
            return self._string()
        if kind == 9:
            element, length = self._read("<IQ")
            return [self._value(element) for _ in range(length)]
        return self._read("<" + GGUF_SCALARS[kind])[0]


def smollm2(path: Path) -> Tokenizer:
    """The default model's tokenizer: digits one by one, then the GPT-2 pattern."""
    values = GgufMetadata(path).values
    tokens = values["tokenizer.ggml.tokens"]
    control = [text for text, kind in zip(tokens, values["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    merges = [tuple(merge.split(" ")) for merge in values["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    return tokenizer


def added_token_texts(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]
