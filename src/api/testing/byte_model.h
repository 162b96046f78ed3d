#pragma once
// A served model for tests: one token a byte, then "th", "the" and an end-of-answer token; ChatML.

#include "api/served_model.h"

namespace hayate::api::testing {

inline constexpr int32_t kThe = 257;
inline constexpr int32_t kEnd = 258;
inline constexpr int32_t kVocabSize = 259;
inline constexpr int32_t kMaxContext = 1000;

ServedModel ByteModel();

}  // namespace hayate::api::testing
