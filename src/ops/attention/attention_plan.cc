#include "ops/attention/attention_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/processor_split.h"

namespace hayate::ops {
namespace {

// kByPosition: a sequence is cut into at most so many pieces, alike to a page, of at least so many
// pages. A short rest as a piece of its own would cost its merging: a third of the launch for 256
// sequences of 17 pages.
constexpr int32_t kMaxPieces = 16;
constexpr int32_t kMinPiecePages = 16;
// Stretches below kMaxRoundedPages are multiples of kRoundPages: shorter ones cost more in merging
// than they win by spreading over more multiprocessors.
constexpr int32_t kRoundPages = 2;
constexpr int32_t kMaxRoundedPages = 16;
// Beginning, merging and storing a stretch takes a block as long as so many pages more.
constexpr int32_t kStretchPages = 1;

// Two blocks of the decode kernel on a multiprocessor: one merges and stores while the other reads.
constexpr int32_t kBlocksOfProcessor = 2;
// At most, of a step.
int32_t NumBlocks(const AttentionPlanShape& shape) {
  return kBlocksOfProcessor * shape.num_processors;
}
// The kernels for 8 and for 16 queries sum in different orders. By position all items of a shape go
// to one of them, whatever rows a step holds.
int32_t QueriesPerItem(const AttentionPlanShape& shape) {
  constexpr int32_t kNarrow = 8;
  const bool narrow = shape.split == SplitRule::kByPosition && shape.group_size <= kNarrow;
  return narrow ? kNarrow : kMaxDecodeQueries;
}
int32_t TokensPerItem(const AttentionPlanShape& shape) {
  return QueriesPerItem(shape) / shape.group_size;
}

// The prefill kernel takes whole groups; elsewhere decode items serve prefill too.
bool HasPrefillKernel(const AttentionPlanShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.group_offset == 0 &&
         shape.num_q_heads == shape.num_kv_heads * shape.group_size;
}

bool IsDecode(const AttentionPlanShape& shape, const HostRows& rows, size_t row) {
  if (!HasPrefillKernel(shape)) return true;
  const bool by_position = shape.split == SplitRule::kByPosition;
  if (by_position && !rows.is_prompt.empty() && rows.is_prompt[row] != 0) return false;
  return rows.q_begin[row + 1] - rows.q_begin[row] <= TokensPerItem(shape);
}

int64_t MaxItems(const AttentionPlanShape& shape, int32_t num_rows, int32_t num_tokens) {
  // Every row may end in an item that is not full; a block's quota cuts one item at most.
  int64_t items = int64_t{num_rows} * shape.num_kv_heads;
  if (!HasPrefillKernel(shape)) {
    items += int64_t{num_tokens / TokensPerItem(shape)} * shape.num_kv_heads;
  }
  if (shape.split == SplitRule::kByPosition) return items * kMaxPieces;
  return items + NumBlocks(shape);
}
int64_t MaxSlots(const AttentionPlanShape& shape) {
  if (shape.split == SplitRule::kByPosition) {
    return MaxItems(shape, shape.max_rows, shape.max_tokens);
  }
  return 2 * NumBlocks(shape);
}
int64_t MaxTiles(const AttentionPlanShape& shape, int32_t num_rows, int32_t num_tokens) {
  const int32_t tile_tokens = kPrefillQueries / shape.group_size;
  // A row may end in a tile that is not full, and in half a pair.
  return HasPrefillKernel(shape) ? 2 * num_rows + num_tokens / tile_tokens : 0;
}
int64_t SlotFloats(const AttentionPlanShape& shape) {
  return int64_t{kMaxDecodeQueries} * (shape.head_dim + 2);  // a weighted sum, its max and sum
}

int64_t BeginBytes(const AttentionPlanShape& shape) {
  return AlignUp<int64_t>((NumBlocks(shape) + 1) * int64_t{sizeof(int32_t)}, 16);
}
int64_t CounterBytes(const AttentionPlanShape& shape) {
  return AlignUp<int64_t>(MaxSlots(shape) * int64_t{sizeof(int32_t)}, 256);
}

// Whether a cluster a kv head takes the step. Clusters must lie in one of the chip's parts each, so
// that two thirds of the multiprocessors are as many as surely hold them at a time.
bool IsShortRow(const AttentionPlanShape& shape, const HostRows& rows) {
  return rows.kv_len.size() == 1 && rows.kv_len[0] <= kShortRowKeys &&
         rows.q_begin[1] - rows.q_begin[0] <= TokensPerItem(shape) &&
         shape.split == SplitRule::kBalanced && shape.head_dim % kRowFeatures == 0 &&
         shape.num_kv_heads * kRowBlocks * 3 <= shape.num_processors * 2;
}

// By position an item is cut into so many stretches.
int32_t NumPieces(const DecodeItem& item) {
  return std::clamp((item.page_end - item.page_begin) / kMinPiecePages, 1, kMaxPieces);
}

// What a step's decode rows come to, over all kv heads.
struct DecodeWork {
  int64_t pages = 0;      // an item is at least kRoundPages
  int64_t stretches = 0;  // at most
  int32_t queries = 0;    // the most of an item
};

// Hands items to blocks in order, so that each block gets about equal work, counted in pages.
class DecodePlanner {
 public:
  DecodePlanner(const AttentionPlanShape& shape, const DecodeWork& work, int32_t num_blocks,
                int32_t* begin, DecodeItem* items)
      : shape_(shape), num_blocks_(num_blocks), begin_(begin), items_(items) {
    const int64_t quota = CeilDiv<int64_t>(work.pages, num_blocks);
    if (quota < kMaxRoundedPages) {
      rounded_quota_ = AlignUp<int64_t>(quota, kRoundPages);
    } else {
      stretch_pages_ = kStretchPages;
      total_ = work.pages + work.stretches * kStretchPages;
    }
    begin_[0] = 0;
  }

  // All stretches of one (row, kv head); `item` says everything else.
  void Add(DecodeItem item) {
    const bool by_position = shape_.split == SplitRule::kByPosition;
    const int32_t first = num_items_, begin = item.page_begin, end = item.page_end;
    const int32_t pages = end - begin, pieces = NumPieces(item);
    int32_t piece = 0;
    done_ += std::max(kRoundPages - pages, 0);
    do {
      const int64_t room = item.page_begin + std::max<int64_t>(1, Room());
      const int64_t stop = by_position ? begin + ++piece * pages / pieces : room;
      item.page_end = static_cast<int32_t>(std::min<int64_t>(end, stop));
      items_[num_items_++] = item;
      done_ += item.page_end - item.page_begin + stretch_pages_;
      item.page_begin = item.page_end;
      while (Room() < 1 && block_ + 1 < num_blocks_) begin_[++block_] = num_items_;
    } while (item.page_begin < end);
    NumberPieces(first);
  }

  int32_t Finish() {
    while (block_ < num_blocks_) begin_[++block_] = num_items_;
    return num_items_;
  }

 private:
  // The pages of one more stretch that the current block has time for; the last block has to.
  int64_t Room() const {
    if (block_ + 1 == num_blocks_) return std::numeric_limits<int32_t>::max();
    const int64_t end = rounded_quota_ > 0 ? (block_ + 1) * rounded_quota_  //
                                           : (block_ + 1) * total_ / num_blocks_;
    return end - done_ - stretch_pages_;
  }

  void NumberPieces(int32_t first) {
    const int32_t count = num_items_ - first;
    if (count == 1) return;
    for (int32_t i = 0; i < count; ++i) {
      items_[first + i].partial = num_slots_++;
      items_[first + i].piece = static_cast<uint16_t>(i);
      items_[first + i].num_pieces = static_cast<uint16_t>(count);
    }
  }

  const AttentionPlanShape& shape_;
  const int32_t num_blocks_;
  int32_t* const begin_;
  DecodeItem* const items_;
  int64_t rounded_quota_ = 0;  // 0: the exact share of total_
  int64_t stretch_pages_ = 0, total_ = 0;
  int64_t done_ = 0;
  int32_t block_ = 0, num_items_ = 0, num_slots_ = 0;
};

// Calls f with the item of each group of tokens of the decode rows, not yet cut, for kv head 0.
template <typename F>
void ForDecodeTokens(const AttentionPlanShape& shape, const HostRows& rows, const F& f) {
  for (size_t r = 0; r < rows.kv_len.size(); ++r) {
    const int32_t begin = rows.q_begin[r], count = rows.q_begin[r + 1] - begin;
    if (!IsDecode(shape, rows, r)) continue;
    const int32_t position = rows.kv_len[r] - count, step = TokensPerItem(shape);
    for (int32_t i = 0; i < count; i += step) {
      DecodeItem item = {};
      item.table_row = rows.table_row.empty() ? static_cast<int32_t>(r) : rows.table_row[r];
      item.num_tokens = static_cast<uint8_t>(std::min(step, count - i));
      item.tokens_before = static_cast<uint8_t>(std::min(i, kManyTokensBefore));
      item.token = begin + i;
      item.position = position + i;
      item.partial = -1;
      const int32_t first = shape.window > 0 ? item.position - shape.window + 1 : 0;
      item.page_begin = std::max(0, first) / kPlanPage;
      item.page_end = CeilDiv(std::max(0, item.position + item.num_tokens), kPlanPage);
      f(item);
    }
  }
}

DecodeWork CountDecode(const AttentionPlanShape& shape, const HostRows& rows) {
  const bool by_position = shape.split == SplitRule::kByPosition;
  // Every block may end within an item, whose rest is one more stretch.
  DecodeWork work{.stretches = by_position ? 0 : NumBlocks(shape)};
  ForDecodeTokens(shape, rows, [&](const DecodeItem& item) {
    const int32_t pages = std::max(item.page_end - item.page_begin, kRoundPages);
    work.pages += int64_t{pages} * shape.num_kv_heads;
    work.stretches += int64_t{by_position ? NumPieces(item) : 1} * shape.num_kv_heads;
    work.queries = std::max(work.queries, item.num_tokens * shape.group_size);
  });
  return work;
}

// Returns how many items there are.
int32_t PlanDecode(const AttentionPlanShape& shape, const HostRows& rows, const DecodeWork& work,
                   int32_t num_processors, int32_t* begin, DecodeItem* items, AttentionPlan* plan) {
  const int32_t num_blocks = kBlocksOfProcessor * num_processors;
  DecodePlanner planner(shape, work, num_blocks, begin, items);
  ForDecodeTokens(shape, rows, [&](DecodeItem item) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      item.kv_head = static_cast<uint16_t>(head);
      planner.Add(item);
    }
  });
  const int32_t num_items = planner.Finish();
  plan->num_decode_blocks = work.queries > 0 ? num_blocks : 0;
  plan->decode_queries = work.queries <= 8 ? 8 : kMaxDecodeQueries;
  if (shape.split == SplitRule::kByPosition) plan->decode_queries = QueriesPerItem(shape);
  return num_items;
}

// Neighbouring tiles share their keys (sm90/prefill_kernel.cuh). The odd tile of a row is computed
// twice, so few of them may be. Where a window hides whole blocks of keys from one of the two, its
// sums would not be those of a single tile to the bit.
bool PairsTiles(const AttentionPlanShape& shape, const HostRows& rows) {
  if (shape.head_dim != 128 || shape.cache != DType::kBF16 || shape.window > 0) return false;
  constexpr int32_t kMostOdd = 16;  // one in so many
  const int32_t tile_tokens = kPrefillQueries / shape.group_size;
  int32_t tiles = 0, odd = 0;
  for (size_t r = 0; r < rows.kv_len.size(); ++r) {
    if (IsDecode(shape, rows, r)) continue;
    const int32_t count = CeilDiv(rows.q_begin[r + 1] - rows.q_begin[r], tile_tokens);
    tiles += count;
    odd += count % 2;
  }
  return tiles > 0 && odd * kMostOdd <= tiles;
}

// Longest first: blocks take tiles in this order, and the last ones to run should be short.
int32_t PlanPrefill(const AttentionPlanShape& shape, const HostRows& rows, bool pairs,
                    PrefillTile* tiles) {
  const int32_t tile_tokens = kPrefillQueries / shape.group_size;
  int32_t count = 0;
  for (size_t r = 0; r < rows.kv_len.size(); ++r) {
    const int32_t begin = rows.q_begin[r], tokens = rows.q_begin[r + 1] - begin;
    if (IsDecode(shape, rows, r)) continue;
    for (int32_t i = 0; i < tokens; i += tile_tokens) {
      PrefillTile& tile = tiles[count++];
      tile.table_row = rows.table_row.empty() ? static_cast<int32_t>(r) : rows.table_row[r];
      tile.token = begin + i;
      tile.position = rows.kv_len[r] - tokens + i;
      tile.num_tokens = static_cast<uint16_t>(std::min(tile_tokens, tokens - i));
      tile.tokens_after =
          static_cast<uint16_t>(std::min(kMaxTokensAfter, tokens - i - tile.num_tokens));
    }
    if (pairs && count % 2 == 1) {
      tiles[count] = tiles[count - 1];
      ++count;
    }
  }
  const auto keys = [&](const PrefillTile& tile) {
    const int32_t end = tile.position + tile.num_tokens;
    return shape.window > 0 ? std::min(end, shape.window + tile.num_tokens) : end;
  };
  if (pairs) {
    using Pair = std::array<PrefillTile, 2>;
    auto* begin = reinterpret_cast<Pair*>(tiles);
    std::stable_sort(begin, begin + count / 2,
                     [&](const Pair& a, const Pair& b) { return keys(a[1]) > keys(b[1]); });
    return count;
  }
  std::stable_sort(tiles, tiles + count,
                   [&](const PrefillTile& a, const PrefillTile& b) { return keys(a) > keys(b); });
  return count;
}

}  // namespace

bool CanPlan(const AttentionPlanShape& shape) {
  const int32_t d = shape.head_dim;
  return shape.num_q_heads > 0 && shape.page_tokens == kPlanPage &&
         shape.activations == DType::kBF16 &&
         (shape.cache == DType::kBF16 || shape.cache == DType::kF8E4M3) &&
         shape.group_size <= kMaxDecodeQueries &&
         (d == 64 || d == 80 || d == 96 || d == 128 || d == 256);
}

int64_t PlanStagedBytes(const AttentionPlanShape& shape, int32_t num_rows, int32_t num_tokens) {
  return BeginBytes(shape) + MaxItems(shape, num_rows, num_tokens) * int64_t{sizeof(DecodeItem)} +
         MaxTiles(shape, num_rows, num_tokens) * int64_t{sizeof(PrefillTile)};
}

int64_t PlanScratchBytes(const AttentionPlanShape& shape) {
  return CounterBytes(shape) + MaxSlots(shape) * SlotFloats(shape) * int64_t{sizeof(float)};
}

AttentionPlan PlanAttention(const AttentionPlanShape& shape, const HostRows& rows,
                            std::byte* staged, std::byte* device_staged, std::byte* scratch) {
  DCHECK(CanPlan(shape));
  DCHECK_LE(rows.kv_len.size(), static_cast<size_t>(shape.max_rows));
  AttentionPlan plan;
  // Tiles lie before items: a step of decode rows alone has none, so its items lie where every such
  // step's do.
  auto* tiles = reinterpret_cast<PrefillTile*>(staged + BeginBytes(shape));
  plan.num_prefill_tiles = PlanPrefill(shape, rows, /*pairs=*/false, tiles);
  const bool pairs = PairsTiles(shape, rows);
  const DecodeWork decode = CountDecode(shape, rows);
  const ProcessorSplit split = SplitProcessors(
      shape, decode.pages, {tiles, static_cast<size_t>(plan.num_prefill_tiles)}, pairs);
  plan.beside = split.beside > 0;
  plan.prefill_processors = plan.beside ? split.beside : shape.num_processors;
  plan.prefill_parts = split.parts;
  plan.prefill_pairs = pairs && split.parts == 1;
  if (plan.prefill_pairs) plan.num_prefill_tiles = PlanPrefill(shape, rows, /*pairs=*/true, tiles);
  const int64_t items_at =
      BeginBytes(shape) + plan.num_prefill_tiles * int64_t{sizeof(PrefillTile)};
  const int32_t num_items = PlanDecode(shape, rows, decode, shape.num_processors - split.beside,
                                       reinterpret_cast<int32_t*>(staged),
                                       reinterpret_cast<DecodeItem*>(staged + items_at), &plan);
  plan.staged_bytes = items_at + num_items * int64_t{sizeof(DecodeItem)};
  plan.short_row = IsShortRow(shape, rows);
  plan.decode_begin = reinterpret_cast<const int32_t*>(device_staged);
  plan.decode_items = reinterpret_cast<const DecodeItem*>(device_staged + items_at);
  plan.counters = reinterpret_cast<int32_t*>(scratch);
  plan.partials = reinterpret_cast<float*>(scratch + CounterBytes(shape));
  plan.prefill_tiles = reinterpret_cast<const PrefillTile*>(device_staged + BeginBytes(shape));
  return plan;
}

}  // namespace hayate::ops
