"""The tables of the documents are those of bench/results."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_gateways_table_is_that_of_its_results() -> None:
    command = [sys.executable, ROOT / "tools" / "bench_gateway.py", "--table", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_h200_tables_are_those_of_their_results() -> None:
    command = [sys.executable, ROOT / "tools" / "gpu" / "readme_table.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
