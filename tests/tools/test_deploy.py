"""deploy/ fits the schemas of Kubernetes, Helm and Compose, offline; and the check would say if it did not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("HAYATE_BINARY", ROOT / "build" / "hayate"))


@pytest.fixture(scope="module")
def python() -> Path:
    made = subprocess.run([ROOT / "tools" / "test_venv.sh", "deploy"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip()) / "bin" / "python"


def check(python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [python, ROOT / "tools" / "check_deploy.py", folder]
    return subprocess.run(
        command, env={**os.environ, "HAYATE_BINARY": str(BINARY)}, capture_output=True, text=True, check=False
    )


def test_every_object_fits_and_every_flag_is_known(python: Path) -> None:
    done = check(python, ROOT / "deploy")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("helm/hayate/templates/worker.yaml", "--enable-metrics", "--enable-metric", "--enable-metric"),
        ("helm/hayate/templates/gateway.yaml", "kind: Deployment", "kind: Deploymnt", "has no apps/v1 Deploymnt"),
        ("helm/hayate/values.schema.json", '"cache_aware"', '"best"', "policy"),
        ("kubernetes/leader-worker-set.yaml", "containerPort: 30000", "containerPort: x", "leader-worker-set"),
        ("kubernetes/leader-worker-set.yaml", "failureThreshold", "failureTreshold", "failureTreshold"),
        ("compose.yaml", "serve, ", "serv, ", "compose.yaml"),
        ("grafana/hayate.json", "sglang:num_running_reqs", "sglang:num_runing_reqs", "num_runing_reqs"),
    ],
)
def test_a_mistake_is_found(python: Path, tmp_path: Path, file: str, old: str, new: str, complaint: str) -> None:
    folder = tmp_path / "deploy"
    shutil.copytree(ROOT / "deploy", folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    done = check(python, folder)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
