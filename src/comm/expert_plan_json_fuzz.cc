// Any file: a plan or an error, and a plan that was read either places every layer or says why not.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "comm/expert_plan_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayate::comm;
  ExpertPlan plan{.num_ranks = 4, .num_redundant = 2};
  if (!ReadExpertPlan({reinterpret_cast<const char*>(data), size}, plan).ok()) return 0;
  for (int layer = 0; layer < 3; ++layer) {
    for (const int num_experts : {6, 10}) {
      const auto placement = plan.Place(layer, num_experts);
      if (!placement.ok()) continue;
      CHECK_EQ(placement->num_physical(), num_experts + 2);
      for (int32_t e = 0; e < num_experts; ++e) CHECK(!placement->replicas(e).empty());
    }
  }
  return 0;
}
