#pragma once
// One metadata value of a GGUF file.

#include "base/status.h"
#include "weights/detail/byte_reader.h"
#include "weights/metadata.h"

namespace hayate::weights::detail {

// Reads a type number and the value after it. Strings view the reader's bytes; an array is refused
// before anything is allocated when the rest of the file cannot hold it.
Result<MetadataValue> ReadGgufValue(ByteReader& reader);

}  // namespace hayate::weights::detail
