#!/usr/bin/env python3
"""Checks that clang-format 14 would leave every C++ and CUDA file of the tree as it is.

With --fix it rewrites the files instead. Exit 1 when a file differs, 2 when there is no clang-format.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
DIFFERENCE = re.compile(r"^(\S+?):\d+:\d+: warning: code should be clang-formatted")


def main() -> int:
    parser = argparse.ArgumentParser(description="Check or fix the formatting of src/.")
    parser.add_argument("--fix", action="store_true", help="rewrite files instead of reporting them")
    fix = parser.parse_args().fix
    root = Path(__file__).resolve().parent.parent
    # Versions format differently, so the one that Debian 12 ships is named.
    tool = shutil.which("clang-format-14")
    if tool is None:
        print("check_format: clang-format-14 is not installed (Debian package clang-format-14)")
        return 2
    files = sorted(path for path in (root / "src").rglob("*") if path.suffix in SUFFIXES)
    mode = ["-i"] if fix else ["--dry-run"]
    command = [tool, *mode, *(path.relative_to(root) for path in files)]
    result = subprocess.run(command, cwd=root, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        print(result.stderr, end="")
        return 1
    lines = [DIFFERENCE.match(line) for line in result.stderr.splitlines()]
    differences = Counter(match[1] for match in lines if match)
    for name, count in differences.items():
        print(f"{name}: {count} places; tools/check_format.py --fix rewrites them")
    print(f"check_format: {len(files)} files, {len(differences)} need formatting")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
