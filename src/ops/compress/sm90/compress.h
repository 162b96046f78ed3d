#pragma once
// ops::Compress on a CUDA device. What a step completes is not known to the host: row t of `out` is
// the entry that token t completes, and is not written where it completes none.

#include "ops/compress/compress.h"

namespace hayate::ops::sm90 {

void Compress(Stream stream, const CompressArgs& args);

void ListEntries(Stream stream, const ListEntriesArgs& args);

}  // namespace hayate::ops::sm90
