"""The tables of the documents are those of bench/results."""

import json
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


def run_of(date: str, **parts: object) -> dict:
    empty = {"step": [], "online": [], "offline": [], "tp2": [], "peer_sglang": []}
    about = {"hardware": ["NVIDIA H200, 580, 1 MiB"], "cpus": 16, "date": date, "command": f"check of {date}", "note": "-"}
    return about | empty | parts


def test_a_run_of_some_parts_joins_those_of_others(tmp_path: Path) -> None:
    into, run = tmp_path / "h200.json", tmp_path / "run.json"
    into.write_text(json.dumps(run_of("monday", step=[{"step_ms": 1}], online=[{"x": 1}], ops=[5])))

    def join(report: dict) -> dict:
        run.write_text(json.dumps(report))
        collect = ROOT / "tools" / "gpu" / "collect.py"
        subprocess.run([sys.executable, collect, "--into", into, run], check=True)
        return json.loads(into.read_text())

    joined = join(run_of("tuesday", online=[{"x": 2}]))
    assert (joined["step"], joined["online"], joined["ops"]) == ([{"step_ms": 1}], [{"x": 2}], [5])
    assert [(run["date"], run["parts"]) for run in joined["runs"]] == [("monday", ["step", "ops"]), ("tuesday", ["online"])]
    joined = join(run_of("friday", step=[{"step_ms": 3}], ops=[6]))
    assert (joined["step"], joined["online"], joined["ops"]) == ([{"step_ms": 3}], [{"x": 2}], [6])
    assert [(run["date"], run["parts"]) for run in joined["runs"]] == [("tuesday", ["online"]), ("friday", ["step", "ops"])]
