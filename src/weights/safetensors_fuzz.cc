#include <cstdint>

#include "base/check.h"
#include "tensor/tensor_view.h"
#include "weights/finite.h"
#include "weights/safetensors.h"

// Parses any bytes as a file and as an index; accepted tensors must lie inside the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayate;
  (void)weights::ParseSafetensorsIndex({reinterpret_cast<const char*>(data), size});
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const Result<weights::TensorIndex> tensors = weights::ParseSafetensors(file);
  if (!tensors.ok()) return 0;
  for (const auto& [name, info] : *tensors) {
    CHECK(info.offset <= size && info.bytes <= size - info.offset) << name;
    if (info.bytes == 0) continue;
    (void)weights::FindNonFinite(
        ConstTensorView(file.data() + info.offset, info.dtype, info.shape));
  }
  return 0;
}
