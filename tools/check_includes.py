#!/usr/bin/env python3
"""Checks every #include under src/ against the include table of ARCHITECTURE.md.

Rules, each violation on one line as file:line: message; exit 1 if there is any:
  * a project include is written "module/path" and names a file of src/;
  * its module is the includer's own, base, or named in the includer's row; tests, benches, fuzzers
    and testing/ folders may use any module whose row is not below their own;
  * detail/ folders are private to their module, testing/ folders to test code;
  * what a row "must never see" is reachable through no chain of includes (`CUDA`: no CUDA header),
    except the headers after "but for";
  * a .cc includes its own header first, every header says #pragma once;
  * DEPS in src/CMakeLists.txt name only modules that the row allows.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

TABLE_MARK = "<!-- include-table"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|cusolver|cusparse|nccl|nvtx|cute/|cutlass/|cub/|thrust/)")
TEST_FILE = re.compile(r"_(test|bench|fuzz)\.(cc|cu)$")
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
TEMPLATE_SUFFIX = ".in"  # the build makes x.h of x.h.in


@dataclass
class Row:
    name: str
    order: int
    allowed: set[str]  # module names and path prefixes such as "engine/client.h"
    hidden: set[str]  # module names, or "CUDA"
    exempt: set[str]  # headers of hidden modules that are plain data


@dataclass
class Include:
    line: int
    quoted: bool
    path: str


def read_table(architecture: Path) -> dict[str, Row]:
    """The rows after the mark, by module name, in the order of the page."""
    rows: dict[str, Row] = {}
    in_table = False
    for line in architecture.read_text(encoding="utf-8").splitlines():
        if line.startswith(TABLE_MARK):
            in_table = True
        if not in_table or not line.startswith("| `"):
            if rows and in_table:
                break
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4:
            sys.exit(f"{architecture}: a row of the include table has {len(cells)} cells: {line}")
        name = cells[0].strip("` ")
        allowed = set(re.findall(r"`([^`]+)`", cells[2]))
        if "everything above" in cells[2]:
            allowed |= set(rows)
        hidden, _, exempt = (re.findall(r"`([^`]+)`", part) for part in cells[3].partition("but for"))
        rows[name] = Row(name, len(rows), allowed, set(hidden), set(exempt))
    if not rows:
        sys.exit(f"{architecture}: no include table after '{TABLE_MARK}'")
    for row in rows.values():
        for entry in row.allowed:
            target = rows.get(entry.split("/")[0])
            if target is None or target.order >= row.order:
                sys.exit(f"{architecture}: '{row.name}' may include '{entry}', which is not a row above it")
        for entry in row.hidden - {"CUDA"}:
            if entry not in rows:
                sys.exit(f"{architecture}: '{row.name}' must never see '{entry}', which is no row")
    return rows


def read_includes(path: Path) -> list[Include]:
    found = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if match := INCLUDE.match(text):
            found.append(Include(number, match[1] == '"', match[2]))
    return found


def is_test(name: str) -> bool:
    return bool(TEST_FILE.search(name)) or "/testing/" in name


def allows(row: Row, rows: dict[str, Row], includer: str, target: str) -> bool:
    module = target.split("/")[0]
    if module in (row.name, "base") or module in row.allowed:
        return True
    if is_test(includer):
        return rows[module].order <= row.order
    paths = (entry for entry in row.allowed if "/" in entry)
    return any(target in (path, path + ".h") or target.startswith(path + "/") for path in paths)


class Checker:
    def __init__(self, source: Path, rows: dict[str, Row]):
        self.source = source
        self.rows = rows
        self.problems: list[str] = []
        self.files = {
            path.relative_to(source).as_posix().removesuffix(TEMPLATE_SUFFIX): read_includes(path)
            for path in sorted(source.rglob("*"))
            if Path(path.name.removesuffix(TEMPLATE_SUFFIX)).suffix in SOURCE_SUFFIXES
        }

    def report(self, name: str, line: int, message: str) -> None:
        self.problems.append(f"{self.source.name}/{name}:{line}: {message}")

    def check_direct(self, name: str, row: Row) -> None:
        for include in self.files[name]:
            if not include.quoted:
                if "CUDA" in row.hidden and CUDA_HEADER.match(include.path):
                    self.report(name, include.line, f"'{row.name}' must build without CUDA: <{include.path}>")
                continue
            target = include.path
            module = target.split("/")[0]
            if "/" not in target or target not in self.files:
                self.report(name, include.line, f'"{target}" is not a file of src/ written as "module/path"')
            elif module not in self.rows:
                self.report(name, include.line, f"'{module}' has no row in the include table")
            elif not allows(row, self.rows, name, target):
                self.report(name, include.line, f"'{row.name}' may not include \"{target}\"")
            elif "/detail/" in target and module != row.name:
                self.report(name, include.line, f'"{target}" is private to {module}')
            elif "/testing/" in target and not is_test(name):
                self.report(name, include.line, f'"{target}" is for tests only')

    def check_reach(self, name: str, row: Row) -> None:
        """Walks the include graph from one file; reports the first chain to each hidden module."""
        chains = {name: [name]}
        queue = [name]
        seen_hidden: set[str] = set()
        while queue:
            here = queue.pop(0)
            for include in self.files[here]:
                hit = ""
                if not include.quoted:
                    hit = "CUDA" if CUDA_HEADER.match(include.path) else ""
                elif include.path in self.files and include.path not in row.exempt:
                    hit = include.path.split("/")[0]
                    if include.path not in chains:
                        chains[include.path] = chains[here] + [include.path]
                        queue.append(include.path)
                if hit in row.hidden and hit not in seen_hidden:
                    seen_hidden.add(hit)
                    chain = " -> ".join(chains[here] + [include.path])
                    self.report(name, 1, f"'{row.name}' must never see {hit}: {chain}")

    def check_shape(self, name: str) -> None:
        path = self.source / name
        if path.suffix in (".h", ".cuh"):
            if not path.exists():
                path = path.with_name(path.name + TEMPLATE_SUFFIX)
            if "#pragma once" not in path.read_text(encoding="utf-8"):
                self.report(name, 1, "header without #pragma once")
            return
        own = name[: -len(path.suffix)] + ".h"
        if own in self.files:
            includes = self.files[name]
            if not includes or includes[0].path != own:
                self.report(name, includes[0].line if includes else 1, f'own header "{own}" comes first')

    def check_deps(self, cmake: Path) -> None:
        text = cmake.read_text(encoding="utf-8")
        for call in re.finditer(r"hayate_module\(\s*(\w+)([^)]*)\)", text):
            name, body = call[1], call[2]
            line = text[: call.start()].count("\n") + 1
            if name not in self.rows:
                self.report(cmake.name, line, f"module '{name}' has no row in the include table")
                continue
            row = self.rows[name]
            deps = re.search(r"\bDEPS\b(.*?)(?:\bTEST_DEPS\b|$)", body, re.DOTALL)
            for dep in re.findall(r"\S+", deps[1]) if deps else []:
                paths = any(entry.startswith(dep + "/") for entry in row.allowed)
                if dep in self.rows and dep not in row.allowed | {"base"} and not paths:
                    self.report(cmake.name, line, f"'{name}' may not depend on '{dep}'")

    def run(self) -> list[str]:
        for name in self.files:
            row = self.rows.get(name.split("/")[0])
            if row is None:
                self.report(name, 1, "its folder has no row in the include table")
                continue
            self.check_direct(name, row)
            self.check_shape(name)
            if not is_test(name):
                self.check_reach(name, row)
        self.check_deps(self.source / "CMakeLists.txt")
        return self.problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Check every #include of src/ against ARCHITECTURE.md.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    checker = Checker(root / "src", read_table(root / "ARCHITECTURE.md"))
    problems = checker.run()
    for problem in problems:
        print(problem)
    count = sum(len(includes) for includes in checker.files.values())
    print(f"check_includes: {count} includes in {len(checker.files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
