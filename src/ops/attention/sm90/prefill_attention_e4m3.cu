#include "ops/attention/sm90/prefill_attention.h"
#include "ops/attention/sm90/prefill_kernel.cuh"

namespace hayate::ops::sm90 {

void PrefillAttentionE4M3(Stream stream, const PagedAttentionArgs& args) {
  LaunchPrefillOf<__nv_fp8_e4m3>(stream, args);
}

}  // namespace hayate::ops::sm90
