#include "ops/engram/engram.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/engram/sm90/engram.h"
#include "tensor/cuda_build.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kScaleColumns = 32;
constexpr float kNormEps = 1e-20f;
constexpr float kLeastDot = 1e-6f;

int32_t* EntryAt(const EngramHistory& history, int32_t row, int32_t position) {
  const int32_t page = history.rows.PagesOf(row)[position / history.page_tokens];
  DCHECK_GE(page, 0) << "position " << position << " has no page";
  return reinterpret_cast<int32_t*>(history.base + page * history.page_stride) +
         position % history.page_tokens;
}

void CopyRow(const EngramGatherArgs& args, int64_t row, float* out) {
  const int64_t width = args.table.cols();
  const auto* codes = reinterpret_cast<const uint8_t*>(args.table.data) + row * width;
  const auto* scales =
      reinterpret_cast<const uint8_t*>(args.scales.data) + row * args.scales.cols();
  for (int64_t i = 0; i < width; ++i) {
    out[i] = F8E4M3ToFloat(codes[i]) * F8E8M0ToFloat(scales[i / kScaleColumns]);
  }
}

float Rms(const float* x, int64_t n) {
  return std::sqrt(detail::Dot(x, x, n) / static_cast<float>(n) + kNormEps);
}

}  // namespace

Result<Buffer> PlaceEngramHash(Device& device, const EngramHash& hash) {
  if (device.kind() == DeviceKind::kCpu) return Buffer();
  std::vector<int64_t> numbers = hash.multipliers;
  numbers.insert(numbers.end(), hash.sizes.begin(), hash.sizes.end());
  numbers.insert(numbers.end(), hash.offsets.begin(), hash.offsets.end());
  const size_t bytes = numbers.size() * sizeof(int64_t);
  ASSIGN_OR_RETURN(Buffer placed, Buffer::Allocate(device, bytes));
  device.Upload(placed.data(), numbers.data(), bytes);
  return placed;
}

void EngramRemember(Stream stream, const EngramHistory& history, const int32_t* token_ids,
                    const int32_t* token_map) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::EngramRemember(stream, history, token_ids, token_map);
  }
  for (int32_t r = 0; r < history.rows.num_rows; ++r) {
    for (int32_t t = history.rows.q_begin[r]; t < history.rows.q_begin[r + 1]; ++t) {
      *EntryAt(history, r, history.positions[t]) = token_map[token_ids[t]];
    }
  }
}

void EngramRows(const EngramHash& hash, std::span<const int32_t> sources, int64_t* rows) {
  int64_t accumulated = 0;
  for (int32_t s = 0; s < hash.ngram; ++s) {
    const auto at = static_cast<size_t>(s);
    accumulated ^= sources[at] * hash.multipliers[at];
    if (s == 0) continue;
    for (int32_t head = 0; head < hash.heads; ++head) {
      const auto i = static_cast<size_t>((s - 1) * hash.heads + head);
      rows[i] = accumulated % hash.sizes[i] + hash.offsets[i];
    }
  }
}

void EngramGather(Stream stream, const EngramGatherArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::EngramGather(stream, args);
  }
  const EngramHash& hash = *args.hash;
  const int64_t width = args.table.cols(), rows_per_token = hash.rows_per_token();
  DCHECK_EQ(args.out.cols(), rows_per_token * width);
  std::array<int64_t, (kMaxNgram - 1) * kMaxEngramHeads> rows;
  std::array<int32_t, kMaxNgram> sources = {};
  for (int32_t r = 0; r < args.history.rows.num_rows; ++r) {
    for (int32_t t = args.history.rows.q_begin[r]; t < args.history.rows.q_begin[r + 1]; ++t) {
      const int32_t position = args.history.positions[t];
      for (int32_t s = 0; s < hash.ngram; ++s) {
        sources[static_cast<size_t>(s)] =
            position >= s ? *EntryAt(args.history, r, position - s) : args.padding;
      }
      EngramRows(hash, sources, rows.data());
      float* out = args.out.as<float>() + t * rows_per_token * width;
      for (int64_t i = 0; i < rows_per_token; ++i) {
        CopyRow(args, rows[static_cast<size_t>(i)], out + i * width);
      }
    }
  }
}

void EngramGate(Stream stream, const EngramGateArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::EngramGate(stream, args);
  }
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  DCHECK_EQ(args.kv.cols(), (kStreams + 1) * width);
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (int64_t t = 0; t < tokens; ++t) {
    const float* kv = args.kv.as<float>() + t * (kStreams + 1) * width;
    const float* value = kv + kStreams * width;
    for (int64_t j = 0; j < kStreams; ++j) {
      float* h = args.streams.as<float>() + (t * kStreams + j) * width;
      const float* key = kv + j * width;
      float lanes[detail::kLanes] = {};
      for (int64_t i = 0; i < width; ++i) {
        lanes[i % detail::kLanes] +=
            h[i] * args.q_weight[j * width + i] * args.k_weight[j * width + i] * key[i];
      }
      const float dot = detail::FoldLanes(lanes) / (Rms(h, width) * Rms(key, width)) * scale;
      const float root = std::sqrt(std::max(std::fabs(dot), kLeastDot));
      const float gate = 1.0f / (1.0f + std::exp(dot < 0.0f ? root : -root));
      detail::AddScaled(h, gate, value, width);
    }
  }
}

void EngramGateReference(const EngramGateArgs& args) {
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  for (int64_t t = 0; t < tokens; ++t) {
    const float* kv = args.kv.as<float>() + t * (kStreams + 1) * width;
    for (int64_t j = 0; j < kStreams; ++j) {
      float* h = args.streams.as<float>() + (t * kStreams + j) * width;
      double dot = 0, h_squares = 0, key_squares = 0;
      for (int64_t i = 0; i < width; ++i) {
        const double key = kv[j * width + i];
        dot += h[i] * double{args.q_weight[j * width + i]} * args.k_weight[j * width + i] * key;
        h_squares += double{h[i]} * h[i];
        key_squares += key * key;
      }
      const auto n = static_cast<double>(width);
      dot /= std::sqrt(h_squares / n + 1e-20) * std::sqrt(key_squares / n + 1e-20) * std::sqrt(n);
      const double root = std::sqrt(std::max(std::abs(dot), 1e-6));
      const double gate = 1 / (1 + std::exp(dot < 0 ? root : -root));
      for (int64_t i = 0; i < width; ++i) {
        h[i] = static_cast<float>(h[i] + gate * kv[kStreams * width + i]);
      }
    }
  }
}

}  // namespace hayate::ops
