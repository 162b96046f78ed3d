#!/bin/bash
# Puts the sources of xgrammar into the cache and prints their folder: fetch_xgrammar.sh
#
# xgrammar (Apache-2.0) compiles grammars into token masks. The archive is its source distribution on
# PyPI, pinned by sha256. Once the folder is there, nothing is downloaded.
# Cache: $HAYATE_CACHE, else $XDG_CACHE_HOME/hayate, else ~/.cache/hayate.
set -euo pipefail

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80

fail() {
  echo "fetch_xgrammar: $1" >&2
  exit 1
}

cache=${HAYATE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/hayate}/sources
target=$cache/xgrammar-$version-${sha256:0:12}

if [[ -d $target ]]; then
  echo "$target"
  exit 0
fi
mkdir -p "$cache" || fail "cannot make $cache"
# Two builds at once: the second waits and finds the folder.
exec 9>"$cache/.lock"
flock 9
if [[ -d $target ]]; then
  echo "$target"
  exit 0
fi

command -v python3 >/dev/null || fail "python3 is needed to download xgrammar (Debian package python3)"
work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv" >/dev/null || fail "python3 has neither pip nor venv (Debian package python3-venv)"
  python=$work/venv/bin/python
fi
echo "fetch_xgrammar: downloading the sources of xgrammar $version from PyPI (3 MB, once)" >&2
echo "xgrammar==$version --hash=sha256:$sha256" >"$work/requirements.txt"
"$python" -m pip --disable-pip-version-check --retries 2 download -q --no-deps --require-hashes \
  --no-binary xgrammar -r "$work/requirements.txt" -d "$work" >&2 ||
  fail "download of xgrammar $version failed (above); run this again with the network up"
echo "$sha256  $work/xgrammar-$version.tar.gz" | sha256sum --check --status ||
  fail "xgrammar-$version.tar.gz has another sha256 than $sha256"
tar -xf "$work/xgrammar-$version.tar.gz" -C "$work" || fail "cannot unpack xgrammar-$version.tar.gz"
mv "$work/xgrammar-$version" "$target"
echo "$target"
