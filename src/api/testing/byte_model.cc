#include "api/testing/byte_model.h"

#include "text/testing/small_tokenizers.h"

namespace hayate::api::testing {

ServedModel ByteModel() {
  text::TokenizerSpec spec = text::testing::ByteLevelSpec({{"t", "h"}, {"th", "e"}});
  spec.added_tokens.push_back({.content = "<|im_end|>", .id = kEnd, .special = true});
  ServedModel model;
  model.name = "bytes";
  model.weights = std::make_shared<WeightsInUse>("bytes.gguf", "default");
  model.tokenizer = text::testing::Make(std::move(spec));
  model.chat_template = std::make_shared<const text::ChatTemplate>(
      text::ChatTemplate::ChatMl({.eos_token = "<|im_end|>"}));
  model.eos_ids = {kEnd};
  model.max_context = kMaxContext;
  model.vocab_size = kVocabSize;
  return model;
}

}  // namespace hayate::api::testing
