#!/usr/bin/env python3
"""Writes a tokenizer.json of so many tokens, each the text of one short word, so that every id that a
model with dummy weights draws is text and reaches the client at once. Bytes beyond ASCII, whose text may
wait for the rest of a character, are the last ids: dummy weights repeat their rows, and of equal logits
the first id is drawn, one below 1,024 with rows of 4,096 in bf16.

    make_tokenizer.py VOCAB_SIZE DIR"""

import json
import sys


def byte_letters():
    """The printable letter of each byte in byte-level BPE vocabularies (GPT-2's table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + extra)
            extra += 1
    return letters


def main():
    size, folder = int(sys.argv[1]), sys.argv[2]
    letters = list(byte_letters().values())
    words = [f"{letters[ord(' ')]}w{i}" for i in range(128, size - 128)]
    vocab = {token: i for i, token in enumerate([*letters[:128], *words, *letters[128:]])}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file)


if __name__ == "__main__":
    main()
