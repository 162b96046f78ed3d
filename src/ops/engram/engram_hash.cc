// The numbers of Engram's hashes: primes, and the multipliers of NumPy's default generator (PCG64
// seeded through SeedSequence; bounded by Lemire's method), as the model was trained with.

#include <array>
#include <bit>
#include <limits>
#include <set>

#include "base/error.h"
#include "ops/engram/engram.h"

namespace hayate::ops {
namespace {

using Uint128 = unsigned __int128;

constexpr int64_t kLayerSeed = 10007;
constexpr int64_t kMaxBucketSize = int64_t{1} << 40;  // keeps the search for primes short

// NumPy's SeedSequence of one word of entropy: mixes it into a pool, and draws words from the pool.
class SeedSequence {
 public:
  explicit SeedSequence(uint32_t entropy) {
    uint32_t constant = 0x43B0D7E5u;
    const auto hash = [&constant](uint32_t value) {
      value ^= constant;
      constant *= 0x931E8875u;
      value *= constant;
      return value ^ value >> 16;
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i == 0 ? entropy : 0);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xCA01F9DDu * pool_[to] - 0x4973F715u * hash(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }

  uint32_t NextWord() {
    uint32_t word = pool_[num_drawn_++ % pool_.size()] ^ constant_;
    constant_ *= 0x58F38DEDu;
    word *= constant_;
    return word ^ word >> 16;
  }
  uint64_t NextPair() {
    const uint64_t low = NextWord();
    return low | uint64_t{NextWord()} << 32;
  }

 private:
  std::array<uint32_t, 4> pool_;
  uint32_t constant_ = 0x8B51F9DDu;
  size_t num_drawn_ = 0;
};

class Pcg64 {
 public:
  explicit Pcg64(SeedSequence seeds) {
    const auto wide = [&seeds] {
      const Uint128 high = seeds.NextPair();
      return high << 64 | seeds.NextPair();
    };
    const Uint128 state = wide();
    increment_ = wide() << 1 | 1;
    Step();
    state_ += state;
    Step();
  }
  uint64_t Next() {
    Step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto rotation = static_cast<int>(state_ >> 122);
    return std::rotr(folded, rotation);
  }
  // Uniform below `bound`.
  uint64_t Below(uint64_t bound) {
    Uint128 product = Uint128{Next()} * bound;
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold) product = Uint128{Next()} * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void Step() {
    constexpr Uint128 kMultiplier = Uint128{2549297995355413924u} << 64 | 4865540595714422341u;
    state_ = state_ * kMultiplier + increment_;
  }
  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

bool IsPrime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d <= n / d; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

Status Check(const EngramHashConfig& config) {
  if (config.ngram < 2 || config.ngram > kMaxNgram) {
    return Error(ErrorCode::kInvalidArgument, "n-grams of up to {} tokens, must be 2 to {}",
                 config.ngram, kMaxNgram);
  }
  if (config.heads < 1 || config.heads > kMaxEngramHeads) {
    return Error(ErrorCode::kInvalidArgument, "{} hash heads, must be 1 to {}", config.heads,
                 kMaxEngramHeads);
  }
  if (config.bucket_size < 1 || config.bucket_size > kMaxBucketSize) {
    return Error(ErrorCode::kInvalidArgument, "{} rows per hash head, must be 1 to {}",
                 config.bucket_size, kMaxBucketSize);
  }
  if (config.compressed_vocab < 1 ||
      config.compressed_vocab > std::numeric_limits<int32_t>::max()) {
    return Error(ErrorCode::kInvalidArgument, "a compressed vocabulary of {} ids",
                 config.compressed_vocab);
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<EngramHash>> MakeEngramHashes(const EngramHashConfig& config) {
  RETURN_IF_ERROR(Check(config));
  // Products with compressed ids stay in 63 bits.
  const auto bound =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / config.compressed_vocab / 2);
  std::set<int64_t> used;
  std::vector<EngramHash> hashes;
  for (const int32_t layer : config.layers) {
    EngramHash& hash = hashes.emplace_back();
    hash.ngram = config.ngram;
    hash.heads = config.heads;
    Pcg64 generator(SeedSequence(static_cast<uint32_t>(kLayerSeed * layer)));
    for (int32_t s = 0; s < config.ngram; ++s) {
      hash.multipliers.push_back(static_cast<int64_t>(generator.Below(bound)) * 2 + 1);
    }
    for (int32_t n = 1; n < config.ngram; ++n) {
      int64_t size = config.bucket_size - 1;
      for (int32_t head = 0; head < config.heads; ++head) {
        do {
          ++size;
        } while (!IsPrime(size) || used.contains(size));
        used.insert(size);
        hash.offsets.push_back(hash.num_rows);
        hash.sizes.push_back(size);
        hash.num_rows += size;
      }
    }
  }
  return hashes;
}

}  // namespace hayate::ops
