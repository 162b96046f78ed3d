#!/usr/bin/env python3
"""Encode speed of the default model's tokenizer, beside the `tokenizers` library on the same text.

    tools/bench_tokenizer.py MODEL.gguf [--build build-bench] [--rounds 5]

The text is English prose that every Python carries: the reference manual in pydoc_data, 466 KB. Both
encode it on one thread, in alternating rounds; prints the median MB/s of each as JSON. Needs a build with
HAYATE_BENCHES=ON and the packages of tests/requirements.txt.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "text"))


def our_megabytes_per_s(program: Path, tokenizer_json: Path, text_file: Path) -> float:
    command = [program, tokenizer_json, text_file, "--benchmark_filter=Encode/file", "--benchmark_format=json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    (row,) = json.loads(result.stdout)["benchmarks"]
    return row["bytes_per_second"] / 1e6


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from reference_tokenizers import smollm2

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build-bench")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    tokenizer = smollm2(args.model)
    text = "\n".join(topics.values())
    ours, reference = [], []
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_json, text_file = Path(folder, "tokenizer.json"), Path(folder, "text.txt")
        tokenizer.save(str(tokenizer_json))
        text_file.write_text(text)
        for _ in range(args.rounds):
            ours.append(our_megabytes_per_s(args.build / "tests" / "tokenizer_speed", tokenizer_json, text_file))
            start = time.perf_counter()
            tokenizer.encode_batch_fast([text], add_special_tokens=False)
            reference.append(len(text.encode()) / 1e6 / (time.perf_counter() - start))
    result = {
        "hayate_mb_per_s": round(statistics.median(ours), 2),
        "tokenizers_mb_per_s": round(statistics.median(reference), 2),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, reference, strict=True)), 1),
        "text_bytes": len(text.encode()),
        "machine": platform.processor() or platform.machine(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
