#include "ops/attention/attention_plan.h"
#include "ops/attention/sm90/decode_attention.h"
#include "ops/attention/sm90/launch.h"
#include "ops/attention/sm90/prefill_attention.h"

namespace hayate::ops::sm90 {
namespace {

void DecodeAttention(Stream stream, const PagedAttentionArgs& args) {
  switch (args.cache.head_dim) {
    case 64:
      return DecodeAttention64(stream, args);
    case 80:
      return DecodeAttention80(stream, args);
    case 96:
      return DecodeAttention96(stream, args);
    case 128:
      return DecodeAttention128(stream, args);
    case 256:
      return DecodeAttention256(stream, args);
    default:
      CHECK(false) << "no plan for head dimension " << args.cache.head_dim;
  }
}

void PrefillAttention(Stream stream, const PagedAttentionArgs& args) {
  if (args.cache.dtype == DType::kBF16) return PrefillAttentionBf16(stream, args);
  PrefillAttentionE4M3(stream, args);
}

}  // namespace

void PagedAttention(Stream stream, const PagedAttentionArgs& args) {
  const AttentionPlan& plan = args.rows.plan;
  if (plan.decode_begin == nullptr) return SimpleAttention(stream, args);
  // Beside each other, prefill takes its multiprocessors first: a block of it needs a whole one.
  if (plan.beside) PrefillAttention(stream, args);
  if (plan.num_decode_blocks > 0) DecodeAttention(stream, args);
  if (!plan.beside && plan.num_prefill_tiles > 0) PrefillAttention(stream, args);
}

}  // namespace hayate::ops::sm90
