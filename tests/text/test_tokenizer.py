"""Every id and every decoded character as the reference library gives them, on 10,000 texts a tokenizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from reference_tokenizers import FAMILIES, added_token_texts, smollm2
from text_samples import ROOT, hard_texts

BUILD = Path(os.environ.get("HAYATE_BINARY", ROOT / "build" / "hayate")).parent
BINARY = BUILD / "tests" / "tokenize_lines"
NUM_TEXTS = 10_500


def default_model() -> Path:
    named = os.environ.get("HAYATE_MODEL")
    if named:
        return Path(named)
    script = ROOT / "tools" / "fetch_model.sh"
    return Path(subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def run_ours(tokenizer_path: Path, texts: list[str], options: str) -> tuple[list[list[int]], list[str]]:
    records = bytearray()
    for text in texts:
        raw = text.encode()
        records += f"{options} {len(raw)}\n".encode() + raw + b"\n"
    result = subprocess.run([BINARY, tokenizer_path], input=bytes(records), stdout=subprocess.PIPE, check=True)
    lines = result.stdout.decode().split("\n")
    ids = [[int(number) for number in line.split()] for line in lines[0:-1:2]]
    decoded = [bytes.fromhex(line).decode() for line in lines[1::2]]
    return ids, decoded


def compare(tokenizer: Tokenizer, folder: Path, seed: int, count: int, options: str = "") -> None:
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    texts = list(hard_texts(seed, count, added_token_texts(tokenizer)))
    tokenizer.encode_special_tokens = "t" in options
    ids, decoded = run_ours(path, texts, options)
    expected = [found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens="b" in options)]
    expected_text = tokenizer.decode_batch(expected, skip_special_tokens=True)
    assert len(ids) == len(decoded) == len(texts) >= count
    wrong = [i for i in range(len(texts)) if ids[i] != expected[i] or decoded[i] != expected_text[i]]
    report = [(texts[i], ids[i], expected[i], decoded[i], expected_text[i]) for i in wrong[:5]]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ: {report}"


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_text_equal_the_reference(family: str, tmp_path: Path) -> None:
    compare(FAMILIES[family](), tmp_path, seed=1, count=NUM_TEXTS)


@pytest.mark.parametrize("family", ["llama3", "llama2", "added_token_traits"])
def test_special_tokens_as_text_and_bos_equal_the_reference(family: str, tmp_path: Path) -> None:
    compare(FAMILIES[family](), tmp_path, seed=2, count=2000, options="bt")


def test_the_default_model_equals_the_reference(tmp_path: Path) -> None:
    compare(smollm2(default_model()), tmp_path, seed=3, count=NUM_TEXTS)
