#!/bin/bash
# Makes the Python environment of the tests in the cache and prints its folder: test_venv.sh
# Rebuilt when tests/requirements.txt changes; otherwise nothing is downloaded.
set -euo pipefail

requirements=$(cd "$(dirname "$0")/.." && pwd)/tests/requirements.txt
cache=${HAYATE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/hayate}
venv=$cache/test-venv
mkdir -p "$cache"
exec 9>"$cache/.test-venv.lock"
flock 9

stamp=$venv/requirements.sha256
wanted=$(cat "$requirements" <(python3 --version) | sha256sum)
if [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]]; then
  echo "test_venv: installing $requirements" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  if ! "$venv/bin/python" -m pip --disable-pip-version-check install -q -r "$requirements" >&2; then
    echo "test_venv: pip failed (above). Is the network up and PyPI reachable? Then run this again." >&2
    exit 1
  fi
  echo "$wanted" >"$stamp"
fi
echo "$venv"
