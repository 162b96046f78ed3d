#include "ops/grouped_matmul/grouped_matmul.h"

#include <cstring>

#include "base/check.h"
#include "ops/grouped_matmul/sm90/grouped_matmul.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

int64_t MatrixGroup::bytes() const {
  size_t sum = addresses.size();
  for (const PackedMatrix& matrix : matrices) sum += matrix.storage.size();
  return static_cast<int64_t>(sum);
}

Status PlaceGroup(Device& device, MatrixGroup& group) {
  if constexpr (kCudaBuild) {
    if (device.kind() == DeviceKind::kCuda) return sm90::PlaceGroup(device, group);
  }
  return OkStatus();
}

void GroupedMatmul(Stream stream, Workspace& workspace, const GroupedMatmulArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::GroupedMatmul(stream, args);
  }
  const int64_t tokens = args.x.shape[0], groups = args.x.shape[1], k = args.x.shape[2];
  const int64_t n = args.out.shape[2];
  DCHECK_EQ(groups, std::ssize(args.w->matrices));
  const size_t mark = workspace.mark();
  const TensorView part = workspace.Take(DType::kF32, {tokens, k});
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::memcpy(part.as<float>() + t * k, args.x.as<float>() + (t * groups + g) * k,
                  static_cast<size_t>(k) * sizeof(float));
    }
    Matmul(stream, workspace,
           {.out = {args.out.data + g * n * static_cast<int64_t>(sizeof(float)),
                    DType::kF32,
                    {tokens, n}},
            .x = part,
            .w = &args.w->matrices[static_cast<size_t>(g)],
            .out_row_stride = groups * n});
  }
  workspace.ResetTo(mark);
}

int64_t GroupedMatmulWorkspaceBytes(int64_t max_tokens, int64_t k) {
  return max_tokens * k * static_cast<int64_t>(sizeof(float)) +
         MatmulWorkspaceBytes(max_tokens, k) + static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops
