#!/usr/bin/env python3
"""Times what Hayate makes of a large checkpoint's headers, with sparse files of true size.

    tools/check_header_plan.py HAYATE_BINARY [SHAPE] [--max-seconds S]

SHAPE is a folder with config.json (bench/models/deepseek-v4-flash: 159.6 GB in 46 files, experts in
FP4). Its tensors are laid out in safetensors files that have every header and no data: a byte that is
read costs a page, so a plan that touches data shows. Fails above the limit.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPE = Path(__file__).resolve().parents[1] / "bench/models/deepseek-v4-flash"
FILE_BYTES = 3_500_000_000
RUNS = 5


def list_tensors(binary: str, shape: Path) -> list[dict]:
    result = subprocess.run([binary, "inspect", "--json", shape], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["tensors"]


def write_file(path: Path, tensors: list[dict]) -> None:
    header, offset = {}, 0
    for tensor in tensors:
        end = offset + tensor["bytes"]
        header[tensor["name"]] = {
            "dtype": tensor["dtype"],
            "shape": tensor["shape"],
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def write_checkpoint(folder: Path, shape: Path, tensors: list[dict]) -> int:
    (folder / "config.json").write_bytes((shape / "config.json").read_bytes())
    weight_map, files, size = {}, [[]], 0
    for tensor in tensors:
        if size + tensor["bytes"] > FILE_BYTES:
            files.append([])
            size = 0
        files[-1].append(tensor)
        size += tensor["bytes"]
    for number, content in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        write_file(folder / name, content)
        weight_map.update({tensor["name"]: name for tensor in content})
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("binary")
    parser.add_argument("shape", type=Path, nargs="?", default=SHAPE)
    parser.add_argument("--max-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    tensors = list_tensors(arguments.binary, arguments.shape)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        num_files = write_checkpoint(folder, arguments.shape, tensors)
        seconds = []
        for _ in range(RUNS):
            begin = time.monotonic()
            subprocess.run([arguments.binary, "inspect", folder], capture_output=True, check=True)
            seconds.append(time.monotonic() - begin)
    size = sum(tensor["bytes"] for tensor in tensors)
    middle = sorted(seconds)[RUNS // 2]
    print(f"{size / 1e9:.1f} GB, {len(tensors)} tensors in {num_files} files: {middle:.2f} s")
    if middle > arguments.max_seconds:
        sys.exit(f"more than {arguments.max_seconds} s")


if __name__ == "__main__":
    main()
