#!/bin/bash
# Makes a Python environment of the tests in the cache and prints its folder: test_venv.sh [deploy]
# Of tests/requirements.txt, or of tests/requirements-deploy.txt for the checks of deploy/. Rebuilt when
# that file changes; otherwise nothing is downloaded.
set -euo pipefail

name=${1:-test}
case $name in
  test) file=requirements.txt ;;
  deploy) file=requirements-deploy.txt ;;
  *)
    echo "test_venv: no environment '$name'; there are test and deploy" >&2
    exit 2
    ;;
esac
requirements=$(cd "$(dirname "$0")/.." && pwd)/tests/$file
cache=${HAYATE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/hayate}
venv=$cache/$name-venv
mkdir -p "$cache"
exec 9>"$cache/.$name-venv.lock"
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
