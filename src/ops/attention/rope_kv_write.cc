#include "ops/attention/rope_kv_write.h"

#include "base/check.h"
#include "ops/attention/sm90/launch.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void RopeKvWrite(Stream stream, const RopeKvWriteArgs& args) {
  DCHECK(args.rope.k.data == args.write.k.data);
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RopeKvWrite(stream, args);
  }
  Rope(stream, args.rope);
  KvWrite(stream, args.write);
}

}  // namespace hayate::ops
