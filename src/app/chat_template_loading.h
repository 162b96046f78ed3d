#pragma once
// The chat template of a checkpoint, or another one that the user names.

#include <memory>
#include <string>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace hayate::app {

// `override_path`: a file with a Jinja template, or empty for the checkpoint's own; without either,
// ChatML.
Result<std::unique_ptr<const text::ChatTemplate>> LoadChatTemplate(
    const weights::Checkpoint& checkpoint, const text::Tokenizer& tokenizer,
    const std::string& override_path);

}  // namespace hayate::app
