#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/align.h"
#include "base/rng.h"
#include "bench/op_cases.h"
#include "ops/attention/paged_attention.h"

namespace hayate::bench {
namespace {

constexpr int32_t kPageTokens = 32;

struct Shape {
  const char* name;
  DType dtype;  // of the cache
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
};

struct Span {
  int32_t tokens;   // of the row
  int32_t context;  // with the row's own tokens
};

// A pool of several sequences' caches, each call reading another one.
struct AttentionOperands {
  std::unique_ptr<Device> device = MakeCpuDevice(0);
  Stream stream{device.get()};
  std::unique_ptr<Workspace> workspace;
  std::vector<std::byte> pool;
  std::vector<int32_t> pages;  // [sequences, pages of one]
  std::vector<float> q, out;
  int32_t q_begin[2] = {};
  int32_t kv_len[1] = {};
  ops::PagedAttentionArgs args;
  int32_t pages_each = 0;
  int32_t num_sequences = 0;
  int32_t next = 0;
};

// Values are small numbers of the cache's type, so that no sum overflows and none is denormal.
void FillPool(AttentionOperands& o, DType dtype) {
  Rng rng(3);
  if (dtype == DType::kF32) {
    for (size_t i = 0; i + 4 <= o.pool.size(); i += 4) {
      const float value = rng.NextFloat() - 0.5f;
      std::copy_n(reinterpret_cast<const std::byte*>(&value), 4, o.pool.data() + i);
    }
    return;
  }
  // fp16 with random sign and mantissa and an exponent of 2^−2 … 2^−1.
  for (size_t i = 0; i + 2 <= o.pool.size(); i += 2) {
    const uint16_t bits = static_cast<uint16_t>((rng.NextU32() & 0x83FFu) | 0x3400u);
    std::copy_n(reinterpret_cast<const std::byte*>(&bits), 2, o.pool.data() + i);
  }
}

OpCase MakeAttention(const Shape& shape, const Span& span) {
  auto operands = std::make_shared<AttentionOperands>();
  AttentionOperands& o = *operands;
  const int64_t page_bytes =
      ops::KvLayerPageBytes(shape.dtype, kPageTokens, shape.num_kv_heads, shape.head_dim);
  o.pages_each = CeilDiv(span.context, kPageTokens);
  o.num_sequences = static_cast<int32_t>(CeilDiv(ColdBytes(), o.pages_each * page_bytes));
  o.pages.resize(static_cast<size_t>(o.pages_each) * static_cast<size_t>(o.num_sequences));
  std::iota(o.pages.begin(), o.pages.end(), 0);
  // Pages of a sequence lie apart, as they do in a pool that has been in use.
  Rng rng(4);
  for (size_t i = o.pages.size() - 1; i > 0; --i) {
    std::swap(o.pages[i], o.pages[rng.Below(static_cast<uint32_t>(i + 1))]);
  }
  o.pool.resize(o.pages.size() * static_cast<size_t>(page_bytes));
  FillPool(o, shape.dtype);
  const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
  o.q.resize(static_cast<size_t>(span.tokens * width));
  for (float& value : o.q) value = rng.NextNormal();
  o.out.resize(o.q.size());
  o.q_begin[1] = span.tokens;
  o.kv_len[0] = span.context;
  o.workspace = std::make_unique<Workspace>(
      Buffer::Allocate(*o.device, static_cast<size_t>(ops::PagedAttentionWorkspaceBytes(
                                      span.tokens, shape.num_heads, shape.head_dim)))
          .value());
  const hayate::Shape extents{span.tokens, shape.num_heads, shape.head_dim};
  o.args.out = {reinterpret_cast<std::byte*>(o.out.data()), DType::kF32, extents};
  o.args.q = {reinterpret_cast<const std::byte*>(o.q.data()), DType::kF32, extents};
  o.args.q_row_stride = width;
  o.args.rows = {1, o.q_begin, o.kv_len, o.pages.data(), o.pages_each};
  o.args.cache = {o.pool.data(), page_bytes,         shape.dtype,
                  kPageTokens,   shape.num_kv_heads, shape.head_dim};
  o.args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  o.args.group_size = shape.num_heads / shape.num_kv_heads;

  OpCase result;
  result.cold_bytes = static_cast<double>(o.pages_each) * static_cast<double>(page_bytes);
  // Two products of D for each pair of a query and a position that it sees.
  const double pairs = double{0.5} * span.tokens * (2.0 * span.context - span.tokens + 1);
  result.flop = 4.0 * pairs * static_cast<double>(width);
  result.run = [operands] {
    AttentionOperands& mine = *operands;
    mine.args.rows.page_table = mine.pages.data() + int64_t{mine.next} * mine.pages_each;
    mine.next = (mine.next + 1) % mine.num_sequences;
    ops::PagedAttention(mine.stream, *mine.workspace, mine.args);
  };
  return result;
}

}  // namespace

void AddAttentionSpecs(std::vector<OpSpec>& specs) {
  const Shape shapes[] = {{"9x3x64", DType::kF16, 9, 3, 64},
                          {"9x3x64", DType::kF32, 9, 3, 64},
                          {"8b-32x8x128", DType::kF16, 32, 8, 128}};
  for (const Shape& shape : shapes) {
    for (const Span& span : {Span{1, 512}, Span{1, 4096}, Span{512, 512}}) {
      specs.push_back({fmt::format("attention/{}/{}/T{}-of-{}", Info(shape.dtype).name, shape.name,
                                   span.tokens, span.context),
                       [shape, span] { return MakeAttention(shape, span); }});
    }
  }
}

}  // namespace hayate::bench
