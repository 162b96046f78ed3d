#include "ops/grouped_matmul/sm90/grouped_matmul.h"

#include <vector>

#include "base/error.h"
#include "ops/moe/sm90/grouped_product.h"

namespace hayate::ops::sm90 {

Status PlaceGroup(Device& device, MatrixGroup& group) {
  if (group.matrices.empty()) return OkStatus();
  RETURN_IF_ERROR(CheckAlike(group.matrices, 1));
  std::vector<const std::byte*> addresses;
  for (const PackedMatrix& matrix : group.matrices) addresses.push_back(matrix.storage.data());
  const size_t bytes = addresses.size() * sizeof(addresses[0]);
  ASSIGN_OR_RETURN(group.addresses, Buffer::Allocate(device, bytes));
  device.Upload(group.addresses.data(), addresses.data(), bytes);
  return OkStatus();
}

void GroupedMatmul(Stream stream, const GroupedMatmulArgs& args) {
  const int64_t tokens = args.x.shape[0], groups = args.x.shape[1], k = args.x.shape[2];
  if (tokens == 0 || groups == 0) return;
  const PackedMatrix& first = args.w->matrices[0];
  const auto* storage = reinterpret_cast<const std::byte* const*>(args.w->addresses.data());
  const ExpertMatrix w = MatrixOf(first, storage, first.n);
  const int32_t tile = TileTokens(w, args.x.dtype, k, tokens * groups, groups);
  GroupedProduct(stream, {.out = args.out,
                          .x = args.x,
                          .out_stride = args.out.shape[2],
                          .x_stride = k,
                          .w = w,
                          .pairs = EveryPair(tokens, groups, tile)});
}

}  // namespace hayate::ops::sm90
