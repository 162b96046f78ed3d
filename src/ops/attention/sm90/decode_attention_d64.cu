#include "ops/attention/sm90/decode_launch.cuh"

namespace hayate::ops::sm90 {

void DecodeAttention64(Stream stream, const PagedAttentionArgs& args) {
  LaunchDecodeOf<64>(stream, args);
}

}  // namespace hayate::ops::sm90
