#!/usr/bin/env python3
"""The table of docs/parallel.md from bench/results/ranks-dep64.json.

    tools/ranks_table.py            prints it
    tools/ranks_table.py --check    exits 1 when the document has another
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "ranks-dep64.json"
DOCUMENT = ROOT / "docs" / "parallel.md"
SHAPE = "v4-flash"
BATCHES = (8, 32, 128, 256)
COLUMNS = (
    "sequences",
    "placement",
    "fullest ÷ mean",
    "exchanged MB a step",
    "experts µs a layer",
    "exchange µs a layer",
    "step ms",
    "tokens/s",
    "two batches",
)


def cells(row: dict) -> tuple[str, ...]:
    return (
        str(row["sequences_per_rank"]),
        row["placement"],
        f"{row['imbalance']:.2f}",
        f"{row['dispatch_mb_per_rank'] + row['combine_mb_per_rank']:.0f}",
        f"{row['experts_us_per_layer']:.0f}",
        f"{row['exchange_us_per_layer']:.0f}",
        f"{row['step_ms']:.1f}",
        f"{row['tokens_per_s_per_rank']:,.0f}",
        f"{row['tokens_per_s_per_rank_two_batches']:,.0f}",
    )


def table(rows: list[dict]) -> str:
    rule = ("---:", "---", *["---:"] * (len(COLUMNS) - 2))
    lines = [COLUMNS, rule, *(cells(row) for row in rows if row["sequences_per_rank"] in BATCHES)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of docs/parallel.md from its results.")
    parser.add_argument("--check", action="store_true")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    made = table(results[SHAPE]["results"])
    if not parser.parse_args().check:
        print(made)
    elif made not in DOCUMENT.read_text(encoding="utf-8"):
        sys.exit(f"{DOCUMENT}: its table is not that of {RESULTS.name}; tools/ranks_table.py prints it")


if __name__ == "__main__":
    main()
