#!/bin/bash
# Gathers what tools/gpu/check needs on a machine with a GPU where nothing can be installed:
#
#   tools/gpu/pack.sh BUILD OUT
#
# BUILD is a build folder with CUDA and tests (cmake --preset cuda). OUT gets the binary, the GPU test
# programs and the Debian libraries they link, stripped.
set -euo pipefail
build=${1:?build folder} out=${2:?output folder}
mkdir -p "$out/lib"
programs=("$build/hayate" "$build"/src/*_gpu_test)
for program in "${programs[@]}"; do
  strip -o "$out/$(basename "$program")" "$program"
  # libc, libstdc++ and their kin are the machine's own.
  ldd "$program" | awk '$3 ~ /^\// { print $3 }' |
    grep -Ev '/(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt)\.so' |
    xargs -r -I{} cp -nL {} "$out/lib/"
done
strip --strip-unneeded "$out"/lib/*
du -sh "$out"
