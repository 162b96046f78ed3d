#include "ops/attention/sm90/decode_launch.cuh"

namespace hayate::ops::sm90 {

void DecodeAttention96(Stream stream, const PagedAttentionArgs& args) {
  LaunchDecodeOf<96>(stream, args);
}

}  // namespace hayate::ops::sm90
