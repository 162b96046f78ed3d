#include "ops/attention/sm90/prefill_attention.h"
#include "ops/attention/sm90/prefill_kernel.cuh"

namespace hayate::ops::sm90 {

void PrefillAttentionBf16(Stream stream, const PagedAttentionArgs& args) {
  LaunchPrefillOf<__nv_bfloat16>(stream, args);
}

}  // namespace hayate::ops::sm90
