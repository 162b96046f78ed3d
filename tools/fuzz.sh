#!/bin/bash
# Builds the libFuzzer programs (preset fuzz: clang-19, ASan, UBSan) and runs each for a while:
#   fuzz.sh [SECONDS [TARGET…]]      default 300 seconds, all targets
# Inputs that led somewhere new are kept in the cache and start the next run. The first finding ends
# its target; its input is named. Exit 1 if there was any.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-300}
shift || true
cache=${HAYATE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/hayate}
tools/setup.sh fuzz
[[ -f build-fuzz/build.ninja ]] || cmake --preset fuzz --log-level=WARNING

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  mapfile -t targets < <(find src -name '*_fuzz.cc' -exec basename {} .cc \; | sort)
fi
cmake --build build-fuzz -j "${HAYATE_JOBS:-$(nproc)}" --target "${targets[@]}"

failed=()
for target in "${targets[@]}"; do
  corpus=$cache/fuzz/$target
  mkdir -p "$corpus/new" "$corpus/findings"
  echo "fuzz: $target, $seconds s"
  if ! "build-fuzz/src/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$corpus/findings/" "$corpus/new" >"$corpus/log" 2>&1; then
    tail -n 40 "$corpus/log"
    failed+=("$target")
  fi
  grep -E '^stat::number_of_executed_units' "$corpus/log" || true
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "fuzz: findings in ${failed[*]}; inputs in $cache/fuzz/TARGET/findings"
  exit 1
fi
echo "fuzz: ${#targets[@]} targets, no finding"
