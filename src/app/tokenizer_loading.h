#pragma once
// From a checkpoint's tokenizer to text::Tokenizer.

#include <memory>

#include "base/status.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace hayate::app {

Result<std::shared_ptr<const text::Tokenizer>> LoadTokenizer(const weights::Checkpoint& checkpoint);

}  // namespace hayate::app
