#include <cstdint>
#include <vector>

#include "base/check.h"
#include "weights/dequantize.h"
#include "weights/finite.h"
#include "weights/gguf.h"

// Parses any bytes; what the parser accepts must be readable to its last byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayate;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const Result<weights::GgufContents> contents = weights::ParseGguf(file);
  if (!contents.ok()) {
    CHECK(!contents.status().message().empty());
    return 0;
  }
  for (const auto& [key, value] : contents->metadata.values()) {
    CHECK(!weights::Summarize(value, 40).empty()) << key;
  }
  for (const auto& [name, info] : contents->tensors) {
    CHECK(info.offset <= size && info.bytes <= size - info.offset) << name;
    const ConstTensorView tensor(file.data() + info.offset, info.dtype, info.shape);
    if (info.bytes == 0) continue;
    CHECK_EQ(static_cast<uint64_t>(tensor.num_bytes()), info.bytes);
    (void)weights::FindNonFinite(tensor);
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
    weights::Dequantize(tensor, values);
  }
  return 0;
}
