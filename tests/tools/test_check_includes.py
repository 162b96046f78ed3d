"""tools/check_includes.py finds each kind of violation in a small tree, and nothing in a clean one."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "tools" / "check_includes.py"

TABLE = """
<!-- include-table -->

| module | holds | may include | must never see |
| --- | --- | --- | --- |
| `base` | x | – | – |
| `tensor` | x | – | – |
| `kv` | x | `tensor` | – |
| `sched` | x | `kv` (metadata) | `CUDA`, `tensor` but for `tensor/layout.h` |
| `api` | x | `sched/client.h` | `CUDA` |
| `app` | x | everything above | – |
"""

CLEAN = {
    "base/status.h": "",
    "tensor/view.h": '#include "base/status.h"\n',
    "tensor/layout.h": "",
    "kv/pool.h": '#include "tensor/layout.h"\n',
    "kv/detail/bits.h": "",
    "kv/version.h.in": "",
    "kv/testing/fake.h": "",
    "kv/storage.h": '#include "tensor/view.h"\n',
    "kv/pool.cc": '#include "kv/pool.h"\n#include "kv/version.h"\n#include "kv/detail/bits.h"\n',
    "sched/client.h": '#include "kv/pool.h"\n',
    "sched/plan.h": "",
    "sched/plan_test.cc": '#include "sched/plan.h"\n#include "tensor/view.h"\n#include "kv/testing/fake.h"\n',
    "api/chat.h": '#include <vector>\n#include "sched/client.h"\n',
    "app/main.cc": '#include "api/chat.h"\n#include "tensor/view.h"\n',
}


def run(tmp_path: Path, files: dict[str, str], cmake: str = "") -> subprocess.CompletedProcess:
    (tmp_path / "ARCHITECTURE.md").write_text(TABLE, encoding="utf-8")
    for name, text in {**CLEAN, **files}.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pragma = "#pragma once\n" if name.endswith((".h", ".h.in")) and "NO_PRAGMA" not in text else ""
        path.write_text(pragma + text, encoding="utf-8")
    (tmp_path / "src" / "CMakeLists.txt").write_text(cmake, encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "--root", str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_clean_tree_passes(tmp_path):
    result = run(tmp_path, {}, "hayate_module(kv DEPS tensor fmt::fmt TEST_DEPS sched)\nhayate_module(api DEPS sched)")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("kv/up.h", '#include "sched/plan.h"\n', "src/kv/up.h:2: 'kv' may not include \"sched/plan.h\""),
        ("api/plan.h", '#include "sched/plan.h"\n', "'api' may not include \"sched/plan.h\""),
        ("sched/a.h", '#include "kv/detail/bits.h"\n', '"kv/detail/bits.h" is private to kv'),
        ("sched/a.h", '#include "kv/testing/fake.h"\n', '"kv/testing/fake.h" is for tests only'),
        ("sched/a.h", '#include "kv/storage.h"\n', "must never see tensor: sched/a.h -> kv/storage.h -> tensor/view.h"),
        ("sched/a.h", "#include <cuda_runtime.h>\n", "'sched' must build without CUDA: <cuda_runtime.h>"),
        ("kv/gpu.h", "#include <cuda_runtime.h>\n#include <nccl.h>\n", None),
        ("kv/a.h", '#include "pool.h"\n', '"pool.h" is not a file of src/'),
        ("kv/a.h", '#include "kv/gone.h"\n', '"kv/gone.h" is not a file of src/'),
        ("kv/pool.cc", '#include <map>\n#include "kv/pool.h"\n', 'own header "kv/pool.h" comes first'),
        ("kv/made.h.in", '#include "kv/gone.h"\n', 'src/kv/made.h:2: "kv/gone.h" is not a file of src/'),
        ("kv/a.h", "// NO_PRAGMA\n", "header without #pragma once"),
        ("kv/a_test.cc", '#include "sched/plan.h"\n', "'kv' may not include"),
        ("extra/a.h", "", "its folder has no row in the include table"),
    ],
)
def test_a_violation_is_named(tmp_path, name, text, message):
    result = run(tmp_path, {name: text})
    if message is None:
        assert result.returncode == 0, result.stdout
    else:
        assert result.returncode == 1
        assert message in result.stdout


def test_deps_of_the_build_follow_the_table(tmp_path):
    result = run(tmp_path, {}, "# modules\nhayate_module(sched DEPS base kv tensor)\n")
    assert result.returncode == 1
    assert "src/CMakeLists.txt:2: 'sched' may not depend on 'tensor'" in result.stdout
