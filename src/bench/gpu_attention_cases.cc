#include <fmt/format.h>

#include <cmath>

#include "base/align.h"
#include "base/rng.h"
#include "bench/gpu_cases.h"
#include "bench/gpu_operands.h"
#include "ops/attention/attention_plan.h"

namespace hayate::bench {
namespace {

constexpr int32_t kHeadDim = 128;
constexpr int32_t kHeads = 32;

struct Rows {
  int32_t rows, tokens, prefix;  // of every row
  int32_t length() const { return prefix + tokens; }
  int64_t num_tokens() const { return int64_t{rows} * tokens; }
};

double Flop(const Rows& rows) {
  const double pairs =
      double{1} * rows.tokens * rows.prefix + 0.5 * rows.tokens * (rows.tokens + 1.0);
  return 4.0 * kHeadDim * kHeads * rows.rows * pairs;
}

// Pages of a sequence lie apart, as they do in a pool that has been in use.
std::vector<int32_t> ScatteredPages(int32_t count) {
  Rng rng(4);
  std::vector<int32_t> pages(static_cast<size_t>(count));
  for (int32_t page = 0; page < count; ++page) pages[static_cast<size_t>(page)] = page;
  for (size_t i = pages.size(); i > 1; --i) {
    std::swap(pages[i - 1], pages[rng.Below(static_cast<uint32_t>(i))]);
  }
  return pages;
}

ops::AttentionRows PlaceRows(GpuOperands& operands, const Rows& rows, int32_t kv_heads,
                             DType cache) {
  std::vector<int32_t> q_begin = {0};
  for (int32_t r = 0; r < rows.rows; ++r) q_begin.push_back(q_begin.back() + rows.tokens);
  const std::vector<int32_t> kv_len(static_cast<size_t>(rows.rows), rows.length());
  const int32_t pages = CeilDiv(rows.length(), ops::kPlanPage);
  const ops::AttentionPlanShape shape{.num_q_heads = kHeads,
                                      .num_kv_heads = kv_heads,
                                      .group_size = kHeads / kv_heads,
                                      .head_dim = kHeadDim,
                                      .page_tokens = ops::kPlanPage,
                                      .cache = cache,
                                      .max_rows = rows.rows,
                                      .max_tokens = static_cast<int32_t>(rows.num_tokens())};
  std::vector<std::byte> host(
      static_cast<size_t>(ops::PlanStagedBytes(shape, shape.max_rows, shape.max_tokens)));
  std::byte* staged = operands.Take(static_cast<int64_t>(host.size()));
  std::byte* scratch = operands.Zeros(ops::PlanScratchBytes(shape));
  const ops::AttentionPlan plan =
      ops::PlanAttention(shape, {q_begin, kv_len, {}}, host.data(), staged, scratch);
  operands.stream().device->Upload(staged, host.data(), host.size());
  return {.num_rows = rows.rows,
          .q_begin = operands.Place(q_begin),
          .kv_len = operands.Place(kv_len),
          .page_table = operands.Place(ScatteredPages(pages * rows.rows)),
          .page_table_stride = pages,
          .plan = plan};
}

OpCase MakeAttention(const Rows& rows, int32_t kv_heads, DType cache) {
  auto operands = std::make_shared<GpuOperands>();
  const int64_t page_bytes = ops::KvLayerPageBytes(cache, ops::kPlanPage, kv_heads, kHeadDim);
  const int64_t pool_bytes = page_bytes * CeilDiv(rows.length(), ops::kPlanPage) * rows.rows;
  std::vector<std::byte*> pools;
  for (int32_t i = 0; i < GpuCopies(pool_bytes); ++i) {
    pools.push_back(operands->Random(pool_bytes, cache));
  }
  const hayate::Shape shape{rows.num_tokens(), kHeads, kHeadDim};
  const int64_t bytes = rows.num_tokens() * kHeads * kHeadDim * 2;
  ops::PagedAttentionArgs args{
      .out = {operands->Take(bytes), DType::kBF16, shape},
      .q = TensorView{operands->Random(bytes, DType::kBF16), DType::kBF16, shape},
      .q_row_stride = int64_t{kHeads} * kHeadDim,
      .rows = PlaceRows(*operands, rows, kv_heads, cache),
      .cache = {nullptr, page_bytes, cache, ops::kPlanPage, kv_heads, kHeadDim},
      .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
      .group_size = kHeads / kv_heads};
  operands->FinishLoading();
  OpCase result;
  result.cold_bytes = static_cast<double>(rows.rows) * rows.length() * kv_heads * 2 * kHeadDim *
                      Info(cache).block_bytes;
  result.flop = Flop(rows);
  result.arithmetic = OpArithmetic::kBf16;
  result.stream = operands->stream();
  result.run = [operands, pools, args, next = size_t{0}]() mutable {
    args.cache.base = pools[next];
    next = (next + 1) % pools.size();
    ops::PagedAttention(operands->stream(), operands->workspace(), args);
  };
  return result;
}

}  // namespace

void AddGpuAttentionSpecs(std::vector<OpSpec>& specs) {
  const auto add = [&](const char* phase, const Rows& rows, int32_t kv_heads, DType cache) {
    specs.push_back({fmt::format("attention/{}/{}/{}x{}x{}/B{}-T{}-of-{}", phase, Info(cache).name,
                                 kHeads, kv_heads, kHeadDim, rows.rows, rows.tokens, rows.length()),
                     [=] { return MakeAttention(rows, kv_heads, cache); }});
  };
  const Rows decode[] = {{1, 1, 511},  {1, 1, 1023},  {1, 1, 8191},  {1, 1, 131071},
                         {8, 1, 8191}, {64, 1, 1023}, {64, 1, 8191}, {256, 1, 1023}};
  const Rows prefill[] = {{1, 1024, 0},  {1, 4096, 0},    {1, 8192, 0},
                          {1, 32768, 0}, {1, 2048, 6144}, {8, 1024, 0},
                          {1, 256, 768}, {1, 256, 7936},  {1, 128, 7936}};
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    for (const Rows& rows : decode) {
      for (const int32_t kv_heads : {8, 4}) add("decode", rows, kv_heads, cache);
    }
    for (const Rows& rows : prefill) add("prefill", rows, 8, cache);
  }
}

}  // namespace hayate::bench
