#include "ops/attention/sm90/decode_launch.cuh"

namespace hayate::ops::sm90 {

void DecodeAttention128(Stream stream, const PagedAttentionArgs& args) {
  LaunchDecodeOf<128>(stream, args);
}

}  // namespace hayate::ops::sm90
