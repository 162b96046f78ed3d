#include "weights/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "weights/dequantize.h"
#include "weights/dummy.h"

namespace hayate::weights {
namespace {

bool AllFinite(const ConstTensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  Dequantize(tensor, values);
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

// One flipped bit at a time, in every block layout: the scan of the scales must agree with the
// values.
TEST(FindNonFinite, AgreesWithTheDequantisedValuesUnderDamage) {
  Rng rng(8);
  int damaged = 0;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Shape shape{3, 2 * Info(dtype).block_elements};
    std::vector<std::byte> storage(
        static_cast<size_t>(TensorView{nullptr, dtype, shape}.num_bytes()));
    const TensorView tensor{storage.data(), dtype, shape};
    FillDummy(tensor, "w", 4);
    ASSERT_EQ(FindNonFinite(tensor), std::nullopt) << Info(dtype).name;
    for (int round = 0; round < 2'000; ++round) {
      const std::vector<std::byte> saved = storage;
      const size_t at = rng.Below(static_cast<uint32_t>(storage.size()));
      storage[at] = static_cast<std::byte>(rng.NextU32() % 4 == 0 ? rng.NextU32() : 0xFF);
      if (rng.NextU32() % 2 == 0 && at + 1 < storage.size()) storage[at + 1] = std::byte{0x7C};
      const std::optional<int64_t> found = FindNonFinite(tensor);
      if (found) {
        ++damaged;
        ASSERT_LE(std::abs(*found - static_cast<int64_t>(at)), 3) << Info(dtype).name;
      }
      // The scan may be stricter: an MXFP4 scale that overflows only for the largest codes.
      const bool finite = AllFinite(tensor);
      ASSERT_TRUE(found || finite) << Info(dtype).name << " byte " << at;
      ASSERT_TRUE(!found || !finite || dtype == DType::kMXFP4)
          << Info(dtype).name << " byte " << at;
      storage = saved;
    }
  }
  EXPECT_GT(damaged, 500);
}

TEST(FindNonFinite, TellsTheFirstOffset) {
  std::vector<float> values = {1, 2, INFINITY, NAN};
  const TensorView tensor{reinterpret_cast<std::byte*>(values.data()), DType::kF32, {2, 2}};
  EXPECT_EQ(FindNonFinite(tensor), 8);
  values[2] = 0;
  EXPECT_EQ(FindNonFinite(tensor), 12);
}

}  // namespace
}  // namespace hayate::weights
