#!/usr/bin/env python3
"""Adds the map from token ids to Engram's compressed ids to a DeepSeek V4.1 checkpoint.

Engram hashes ids under which spellings of one word meet: without accents, case, and outer blanks. The
released checkpoint leaves it to the engine to derive them from its tokenizer; that needs Unicode's
normalisation tables, so it is done once, here. Hayate reads the result as the tensor engram.token_map.

    pip install tokenizers
    tools/engram_token_map.py MODEL_DIRECTORY

Writes engram_token_map.safetensors and names it in model.safetensors.index.json (made where there is
none). Refuses a tokenizer whose map has another size than the config's engram_compressed_vocab_size:
every hash would be wrong.
"""

import argparse
import json
import os
import struct
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers

TENSOR = "engram.token_map"
FILE = "engram_token_map.safetensors"
INDEX = "model.safetensors.index.json"
UNDECODABLE = "\N{REPLACEMENT CHARACTER}"

NORMALIZER = normalizers.Sequence(
    [
        normalizers.NFKC(),
        normalizers.NFD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
    ]
)


def key_of(tokenizer: Tokenizer, token_id: int) -> str:
    """What tokens of one compressed id have in common."""
    text = tokenizer.decode([token_id], skip_special_tokens=False)
    if UNDECODABLE in text:
        return tokenizer.id_to_token(token_id)
    normal = NORMALIZER.normalize_str(text)
    if normal != " ":
        normal = normal.strip()
    return normal or text


def compressed_ids(tokenizer: Tokenizer) -> list[int]:
    """By token id, in the order in which keys first appear."""
    ids: dict[str, int] = {}
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    return [ids.setdefault(key_of(tokenizer, i), len(ids)) for i in range(size)]


def read_names(path: Path) -> list[str]:
    """Of the tensors in a safetensors file."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return [name for name in json.loads(file.read(size)) if name != "__metadata__"]


def write_ids(path: Path, ids: list[int]) -> None:
    header = json.dumps({TENSOR: {"dtype": "I32", "shape": [len(ids)], "data_offsets": [0, 4 * len(ids)]}})
    header = header.ljust(-(-len(header) // 8) * 8).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(ids)}i", *ids))


def add_to_index(directory: Path) -> None:
    path = directory / INDEX
    if path.exists():
        index = json.loads(path.read_text(encoding="utf-8"))
    else:
        index = {"metadata": {}, "weight_map": {}}
        for file in sorted(directory.glob("*.safetensors")):
            index["weight_map"].update({name: file.name for name in read_names(file)})
    index["weight_map"][TENSOR] = FILE
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    os.replace(scratch, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    if "engram_compressed_vocab_size" not in config:
        sys.exit(f"{directory / 'config.json'}: no engram_compressed_vocab_size")
    expected, vocab = config["engram_compressed_vocab_size"], config["vocab_size"]
    token_map = compressed_ids(Tokenizer.from_file(str(directory / "tokenizer.json")))
    found = max(token_map) + 1
    if found != expected:
        sys.exit(f"{directory}: the tokenizer gives {found} compressed ids, engram_compressed_vocab_size is {expected}")
    if len(token_map) > vocab:
        sys.exit(f"{directory}: the tokenizer has {len(token_map)} tokens, vocab_size is {vocab}")
    # Ids without a token are never in a text.
    write_ids(directory / FILE, token_map + [0] * (vocab - len(token_map)))
    add_to_index(directory)
    print(f"{directory / FILE}: {len(token_map)} tokens, {found} compressed ids")


if __name__ == "__main__":
    main()
