#pragma once
// The safetensors container: header length u64 | header JSON | tensor data. The header maps a name
// to dtype, shape and data_offsets [begin, end) from the end of the header; the tensors cover the
// data exactly, without gaps or overlaps.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "weights/tensor_index.h"

namespace hayate::weights {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

// Parses a whole file; offsets in the index count from its start. kDataLoss or kUnsupported with
// tensor name and offset.
Result<TensorIndex> ParseSafetensors(std::span<const std::byte> file);

// Parses model.safetensors.index.json: tensor name → file name. A file name that is not a plain
// name inside the directory (a separator, "..", no .safetensors ending) is refused.
Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json);

}  // namespace hayate::weights
