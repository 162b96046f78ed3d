#!/bin/bash
# Installs the Debian packages of tools/apt_packages.txt up to a group: setup.sh [run|test|fuzz].
# Does nothing, and asks nobody, when all of them are there.
set -euo pipefail

group=${1:-run}
list=$(dirname "$0")/apt_packages.txt

case $group in
  run) groups='^run ' ;;
  test) groups='^(run|test) ' ;;
  fuzz) groups='^(run|test|fuzz) ' ;;
  *)
    echo "setup: no group '$group'; there are run, test and fuzz" >&2
    exit 2
    ;;
esac
mapfile -t wanted < <(grep -E "$groups" "$list" | awk '{print $2}')

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is no Debian system; install the counterparts of: ${wanted[*]}" >&2
  exit 1
fi

installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' | sed -n 's/^ii *//p')
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed"))
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo; as root run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >>"$log" 2>&1; }
if ! apt update || ! apt install -y --no-install-recommends "${missing[@]}"; then
  tail -n 15 "$log" >&2
  echo "setup: apt-get failed (above). Is the network up and the Debian mirror reachable? Then run this again." >&2
  exit 1
fi
