#pragma once
// Engram (DeepSeek V4.1): rows of large tables, chosen by hashes of the last few tokens, added to
// the residual streams through a gate.
//
//   src[s]  = compressed id of the token at t − s; the padding id before the start
//   acc_0   = src[0] · mult[0];   acc_s = acc_{s−1} xor src[s] · mult[s]          s = 1 … N − 1
//   row     = acc_s mod size[s, head] + offset[s, head]                  N − 1 n-grams × heads
//   E[t]    = the rows joined
//   kv      = wkv · E[t]: a key for each stream, then one value
//   d_j     = Σ h_j · q_j · k_j · key_j / (√(mean h_j²) · √(mean key_j²) · √H)
//   h_j    += sigmoid(sign(d_j) · √max(|d_j|, 1e-6)) · value
//
// The tables are far larger than a device's memory. On the CPU they stay in the checkpoint's mapped
// file; for CUDA they are copied to pinned memory of the host, which kernels read over the bus.
// Both read a row at a time.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/attention/paged_attention.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

inline constexpr int kMaxNgram = 8;
inline constexpr int kMaxEngramHeads = 64;

// How one layer hashes.
struct EngramHash {
  int32_t ngram = 0;                 // N: tokens that a hash looks back over, its own included
  int32_t heads = 0;                 // rows per n-gram length
  std::vector<int64_t> multipliers;  // [N], odd
  std::vector<int64_t> sizes;        // [(N − 1) · heads], primes
  std::vector<int64_t> offsets;      // [(N − 1) · heads]: of each size's first row
  int64_t num_rows = 0;              // Σ sizes

  int32_t rows_per_token() const { return (ngram - 1) * heads; }
};

struct EngramHashConfig {
  std::vector<int32_t> layers;  // with an Engram, ascending
  int32_t ngram = 0;
  int32_t heads = 0;
  int64_t bucket_size = 0;       // primes are searched from here upward
  int64_t compressed_vocab = 0;  // compressed ids are below it
};
// One per layer. The multipliers are what the model was trained with: NumPy's default generator,
// seeded by the layer. kInvalidArgument names the number that cannot work.
Result<std::vector<EngramHash>> MakeEngramHashes(const EngramHashConfig& config);
// The numbers of a hash where kernels read them: multipliers, sizes, offsets. Empty on the CPU.
Result<Buffer> PlaceEngramHash(Device& device, const EngramHash& hash);

// The compressed ids of a sequence's tokens, kept in the pages of a cache group: one int32 a
// position.
struct EngramHistory {
  std::byte* base = nullptr;
  int64_t page_stride = 0;
  int32_t page_tokens = 0;
  AttentionRows rows;
  const int32_t* positions = nullptr;  // [T]
  int32_t num_tokens = 0;              // T
};
// Appends token_map[token_ids[t]] of the step's tokens.
void EngramRemember(Stream stream, const EngramHistory& history, const int32_t* token_ids,
                    const int32_t* token_map);

struct EngramGatherArgs {
  TensorView out;          // [T, rows_per_token · width]; f32 or, on CUDA, bf16, which is exact
  ConstTensorView table;   // [num_rows, width] E4M3, host memory
  ConstTensorView scales;  // [num_rows, width / 32] E8M0
  const EngramHash* hash = nullptr;
  const int64_t* numbers = nullptr;  // as PlaceEngramHash gave them; CUDA alone
  EngramHistory history;             // the step's tokens are in it already
  int32_t padding = 0;               // compressed
};
void EngramGather(Stream stream, const EngramGatherArgs& args);
// The table rows of one token; `sources` [N] from the token backward.
void EngramRows(const EngramHash& hash, std::span<const int32_t> sources, int64_t* rows);

struct EngramGateArgs {
  TensorView streams;     // [T, 4, H] f32, changed in place
  ConstTensorView kv;     // [T, 5·H] f32: keys of the streams, then the value
  const float* q_weight;  // [4, H]
  const float* k_weight;  // [4, H]
};
void EngramGate(Stream stream, const EngramGateArgs& args);

// The definition, in double.
void EngramGateReference(const EngramGateArgs& args);

}  // namespace hayate::ops
