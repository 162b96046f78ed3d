#include "ops/attention/sm90/decode_launch.cuh"

namespace hayate::ops::sm90 {

void DecodeAttention256(Stream stream, const PagedAttentionArgs& args) {
  LaunchDecodeOf<256>(stream, args);
}

}  // namespace hayate::ops::sm90
