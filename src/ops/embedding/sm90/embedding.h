#pragma once
// The launchers of ops/embedding/embedding.h.

#include "ops/embedding/embedding.h"

namespace hayate::ops::sm90 {

void Embedding(Stream stream, const EmbeddingArgs& args);

}  // namespace hayate::ops::sm90
