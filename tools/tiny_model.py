"""A GGUF model that costs next to nothing to compute, for benches of everything around a model.

One Llama layer of 64 channels; a byte-level vocabulary with a few words. Whatever it is asked, greedy
answers are made of words and letters, so that every token shows as text at once.
"""

import random
import struct
from pathlib import Path

WIDTH, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 64, 4, 2, 16, 128
CONTEXT = 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "a n", "an d", "Ġ and"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
INT32 = 5
ALIGNMENT = 32


def byte_tokens() -> list[str]:
    """The 256 bytes as byte-level BPE spells them: printable ones as themselves, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary() -> list[str]:
    return [*SPECIALS, *byte_tokens(), *(merge.replace(" ", "") for merge in MERGES)]


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value) -> bytes:
    if kind == STRING:
        return _string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _entry(key: str, kind: int, value) -> bytes:
    return _string(key) + struct.pack("<I", kind) + _value(kind, value)


def _list(key: str, kind: int, values: list) -> bytes:
    head = _string(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(_value(kind, value) for value in values)


def _metadata(tokens: list[str]) -> list[bytes]:
    control, normal = 3, 1
    types = [control] * len(SPECIALS) + [normal] * (len(tokens) - len(SPECIALS))
    return [
        _entry("general.architecture", STRING, "llama"),
        _entry("general.name", STRING, "tiny"),
        _entry("llama.block_count", UINT32, 1),
        _entry("llama.context_length", UINT32, CONTEXT),
        _entry("llama.embedding_length", UINT32, WIDTH),
        _entry("llama.feed_forward_length", UINT32, FEED_FORWARD),
        _entry("llama.attention.head_count", UINT32, HEADS),
        _entry("llama.attention.head_count_kv", UINT32, KV_HEADS),
        _entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        _entry("llama.rope.dimension_count", UINT32, HEAD_DIM),
        _entry("llama.rope.freq_base", FLOAT32, 10000.0),
        _entry("llama.vocab_size", UINT32, len(tokens)),
        _entry("tokenizer.ggml.model", STRING, "gpt2"),
        _entry("tokenizer.ggml.pre", STRING, "smollm"),
        _list("tokenizer.ggml.tokens", STRING, tokens),
        _list("tokenizer.ggml.token_type", INT32, types),
        _list("tokenizer.ggml.merges", STRING, MERGES),
        _entry("tokenizer.ggml.bos_token_id", UINT32, 1),
        _entry("tokenizer.ggml.eos_token_id", UINT32, 2),
        _entry("tokenizer.ggml.add_bos_token", BOOL, False),
        _entry("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def _tensors(tokens: list[str]) -> dict[str, tuple[list[int], list[float]]]:
    """By name: dimensions, the innermost first, and values."""
    rng = random.Random(1)

    def rows(count: int, width: int) -> list[float]:
        return [rng.gauss(0, 0.1) for _ in range(count * width)]

    # Only plain letters and words may win: the others' logits are 0.
    head = []
    for token in tokens:
        wins = token not in SPECIALS and token.removeprefix("Ġ").isascii() and token.removeprefix("Ġ").isalpha()
        head += rows(1, WIDTH) if wins else [0.0] * WIDTH
    kv = KV_HEADS * HEAD_DIM
    return {
        "token_embd.weight": ([WIDTH, len(tokens)], rows(len(tokens), WIDTH)),
        "output_norm.weight": ([WIDTH], [1.0] * WIDTH),
        "output.weight": ([WIDTH, len(tokens)], head),
        "blk.0.attn_norm.weight": ([WIDTH], [1.0] * WIDTH),
        "blk.0.attn_q.weight": ([WIDTH, WIDTH], rows(WIDTH, WIDTH)),
        "blk.0.attn_k.weight": ([WIDTH, kv], rows(kv, WIDTH)),
        "blk.0.attn_v.weight": ([WIDTH, kv], rows(kv, WIDTH)),
        "blk.0.attn_output.weight": ([WIDTH, WIDTH], rows(WIDTH, WIDTH)),
        "blk.0.ffn_norm.weight": ([WIDTH], [1.0] * WIDTH),
        "blk.0.ffn_gate.weight": ([WIDTH, FEED_FORWARD], rows(FEED_FORWARD, WIDTH)),
        "blk.0.ffn_up.weight": ([WIDTH, FEED_FORWARD], rows(FEED_FORWARD, WIDTH)),
        "blk.0.ffn_down.weight": ([FEED_FORWARD, WIDTH], rows(WIDTH, FEED_FORWARD)),
    }


def write(path: Path) -> None:
    tokens = vocabulary()
    metadata = _metadata(tokens)
    tensors = _tensors(tokens)
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata))
    data = bytearray()
    for name, (dimensions, values) in tensors.items():
        out += _string(name) + struct.pack("<I", len(dimensions))
        out += b"".join(struct.pack("<Q", dimension) for dimension in dimensions)
        out += struct.pack("<IQ", 0, len(data))  # F32
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % ALIGNMENT)
    out += bytes(-len(out) % ALIGNMENT)
    path.write_bytes(out + data)
