#include "ops/attention/sm90/decode_launch.cuh"

namespace hayate::ops::sm90 {

void DecodeAttention80(Stream stream, const PagedAttentionArgs& args) {
  LaunchDecodeOf<80>(stream, args);
}

}  // namespace hayate::ops::sm90
