#pragma once
// The GGUF container, versions 2 and 3, little-endian:
//
//   "GGUF" | version u32 | num_tensors u64 | num_key_values u64
//   key values: key string | type u32 | value
//   tensor infos: name string | rank u32 | extents u64… (innermost first) | type u32 | offset u64
//   padding to general.alignment | tensor data
//
// Every length is checked against the bytes that remain before anything is allocated for it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "weights/metadata.h"
#include "weights/tensor_index.h"

namespace hayate::weights {

struct GgufContents {
  uint32_t version = 0;
  Metadata metadata;  // strings view the parsed bytes
  TensorIndex tensors;
};

// Parses a whole file. Tensor data is not touched, but each tensor must lie inside the bytes and
// none may overlap another. kDataLoss (damaged) or kUnsupported (version, tensor type) with key or
// tensor name and byte offset.
Result<GgufContents> ParseGguf(std::span<const std::byte> file);

}  // namespace hayate::weights
