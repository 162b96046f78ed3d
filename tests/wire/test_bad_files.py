"""Model files that are cut, altered or lie about themselves: the server says so and does not start."""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from golden_server import write_tokenizer
from patience import patient
from server_process import BINARY, ROOT, ServerProcess
from wire_checks import GREEDY

sys.path.insert(0, str(ROOT / "tools"))
import tiny_model

GOLDEN = ROOT / "tests" / "golden" / "dense" / "llama"
TENSOR = b"blk.0.attn_q.weight"
MAX_SECONDS = 10.0
MAX_EXTRA_BYTES = 200 << 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "tiny.gguf"
    tiny_model.write(path)
    return path.read_bytes()


def refusal(path: Path) -> str:
    """What `hayate serve` says of a model that it does not serve: no crash, no hang, no flood of memory."""
    command = [str(BINARY), "serve", "--port", "0", "--model-path", str(path), "--max-total-tokens", "1024"]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode > 0, f"exit status {process.returncode}\n{output}"
    assert time.monotonic() - started < patient(MAX_SECONDS)
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    # A child's peak starts at its parent's.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert usage.ru_maxrss * 1024 < own * 1024 + size + MAX_EXTRA_BYTES, output
    return output


def refused_gguf(folder: Path, raw: bytes, *mentions: str) -> None:
    path = folder / "bad.gguf"
    path.write_bytes(raw)
    output = refusal(path)
    for mention in ("bad.gguf", *mentions):
        assert mention in output, output


@pytest.mark.parametrize("cut", [0, 3, 4, 23, 500, -40000, -1])
def test_b085_a_file_that_was_cut(whole: bytes, tmp_path: Path, cut: int):
    refused_gguf(tmp_path, whole[:cut])


@pytest.mark.parametrize("place", ["metadata", "tensors"])
def test_b085_a_file_that_was_cut_inside_its_tables(whole: bytes, tmp_path: Path, place: str):
    where = whole.index(b"llama.rope.freq_base") if place == "metadata" else whole.index(TENSOR) + len(TENSOR) + 6
    refused_gguf(tmp_path, whole[:where])


def with_tensor(whole: bytes, change: Callable[[bytearray, int], None]) -> bytes:
    """`change` gets the file and the place of the tensor's number of dimensions."""
    raw = bytearray(whole)
    change(raw, whole.index(TENSOR) + len(TENSOR))
    return bytes(raw)


@pytest.mark.parametrize("dimensions", [(1 << 30, 1 << 40), ((1 << 42) + 1, 64), (0, 64), (64, 63), (1 << 63, 2)])
def test_b085_dimensions_that_cannot_be(whole: bytes, tmp_path: Path, dimensions: tuple[int, int]):
    raw = with_tensor(whole, lambda raw, at: struct.pack_into("<QQ", raw, at + 4, *dimensions))
    refused_gguf(tmp_path, raw, TENSOR.decode())


@pytest.mark.parametrize("count", [0, 5, 1 << 31])
def test_b085_a_number_of_dimensions_that_cannot_be(whole: bytes, tmp_path: Path, count: int):
    refused_gguf(tmp_path, with_tensor(whole, lambda raw, at: struct.pack_into("<I", raw, at, count)))


@pytest.mark.parametrize("offset", [1, 1 << 20, 1 << 63, (1 << 64) - 32])
def test_b085_data_that_is_not_where_the_file_says(whole: bytes, tmp_path: Path, offset: int):
    raw = with_tensor(whole, lambda raw, at: struct.pack_into("<Q", raw, at + 24, offset))
    refused_gguf(tmp_path, raw, TENSOR.decode())


@pytest.mark.parametrize("kind", [36, 99, 1 << 31])
def test_b089_a_type_that_there_is_not(whole: bytes, tmp_path: Path, kind: int):
    raw = with_tensor(whole, lambda raw, at: struct.pack_into("<I", raw, at + 20, kind))
    refused_gguf(tmp_path, raw, TENSOR.decode(), str(kind))


def header(version: int, tensors: int, pairs: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    "raw",
    [
        header(3, 0, 1, struct.pack("<Q", 1 << 48) + b"\0" * 4),
        header(3, 0, 1, pair(b"a", 8, struct.pack("<Q", 1 << 63))),
        header(3, 0, 1, pair(b"a", 9, struct.pack("<IQ", 0, 1 << 60))),
        header(3, 0, (1 << 64) - 1),
        header(3, 1 << 40, 0),
        *(header(3, 0, 1, pair(b"general.alignment", 4, struct.pack("<I", n))) for n in (1 << 30, 3, 0)),
        header(3, 0, 1, pair(b"a", 9, b"".join(struct.pack("<IQ", 9, 1) for _ in range(100000)))),
    ],
    ids=["key", "string", "array", "pairs", "tensors", "alignment", "alignment-3", "alignment-0", "nesting"],
)
def test_b086_a_small_file_that_claims_much(tmp_path: Path, raw: bytes):
    refused_gguf(tmp_path, raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"GGUF" + struct.pack(">IQQ", 3, 2, 2) + b"\0" * 64,
        *(header(version, 0, 0) + b"\0" * 64 for version in (0, 1, 4, 1 << 24)),
        b"GGML" + b"\0" * 64,
        b"ggjt" + b"\0" * 64,
        b"PK\x03\x04" + b"\0" * 64,
        b"<!DOCTYPE html><html><body>Not found</body></html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 270000000\n",
    ],
    ids=["byte order", "v0", "v1", "v4", "v2^24", "ggml", "ggjt", "zip", "html", "lfs"],
)
def test_b088_what_is_no_such_file(tmp_path: Path, raw: bytes):
    refused_gguf(tmp_path, raw)


Table = dict[str, dict]


def with_table(folder: Path, change: Callable[[Table], None]) -> Path:
    """A copy of a small checkpoint whose table of contents was changed."""
    made = folder / "checkpoint"
    shutil.copytree(GOLDEN, made)
    write_tokenizer(made)
    path = made / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    table = json.loads(raw[8 : 8 + length])
    change(table)
    text = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return made


NORM = "model.layers.1.input_layernorm.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[QUERY].update(shape=[1000, 1000]),
        lambda table: table[QUERY].update(data_offsets=[8, 4]),
        lambda table: table[QUERY].update(data_offsets=[-1, 3]),
        lambda table: table[QUERY].update(data_offsets=[0]),
        lambda table: table[QUERY].update(data_offsets=[1 << 40, (1 << 40) + 8192]),
        lambda table: table[QUERY].update(data_offsets=table[NORM]["data_offsets"]),
        lambda table: table[QUERY].update(shape=[1 << 32, 1 << 32]),
        lambda table: table[QUERY].update(dtype="F7"),
        lambda table: table.pop(QUERY),
        lambda table: table.update(other=table.pop(QUERY)),
    ],
    ids=["shape", "backwards", "negative", "one", "past the end", "shared", "overflow", "dtype", "gap", "missing"],
)
def test_b091_a_table_of_contents_that_lies(tmp_path: Path, change: Callable[[Table], None]):
    output = refusal(with_table(tmp_path, change))
    assert QUERY in output or NORM in output or "model.safetensors: offset" in output, output


def poisoned(folder: Path, name: str, value: bytes) -> Path:
    made = with_table(folder, lambda table: None)
    path = made / "model.safetensors"
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", raw)
    begin = 8 + length + json.loads(raw[8 : 8 + length])[name]["data_offsets"][0]
    raw[begin : begin + len(value)] = value
    path.write_bytes(raw)
    return made


@pytest.mark.parametrize("value", [b"\xc0\x7f", b"\x80\x7f"], ids=["nan", "infinity"])
def test_b092_weights_that_are_no_numbers(tmp_path: Path, value: bytes):
    output = refusal(poisoned(tmp_path, NORM, value))
    assert NORM in output


def test_the_whole_files_are_served(whole: bytes, tmp_path: Path):
    """What the others were made of is right."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(whole)
    flags = ["--model-path", str(path), "--max-total-tokens", "1024"]
    with ServerProcess(flags, tmp_path / "server.log") as server:
        body = {**GREEDY, "prompt": "the", "max_tokens": 8, "ignore_eos": True}
        answer = httpx.post(server.url + "/v1/completions", json=body, timeout=patient(30))
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 8
