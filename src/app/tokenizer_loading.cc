#include "app/tokenizer_loading.h"

#include <utility>

#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"

namespace hayate::app {
namespace {

Result<text::TokenizerSpec> MakeSpec(const weights::GgufTokenizer& source,
                                     const weights::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  constexpr const char* kSpacePrefix = "tokenizer.ggml.add_space_prefix";
  text::GgufTokenizerData data;
  data.model = source.model;
  data.pre = source.pre;
  data.tokens.assign(source.tokens.begin(), source.tokens.end());
  data.merges.assign(source.merges.begin(), source.merges.end());
  data.scores = source.scores;
  data.token_types = source.token_types;
  data.bos_id = special.bos;
  data.unk_id = special.unk;
  if (!special.eos.empty()) data.eos_id = special.eos.front();
  data.add_bos = special.add_bos;
  data.add_eos = special.add_eos;
  if (checkpoint.metadata().Has(kSpacePrefix)) {
    ASSIGN_OR_RETURN(data.add_space_prefix, checkpoint.metadata().GetBool(kSpacePrefix));
  }
  return text::MakeTokenizerSpec(std::move(data));
}

}  // namespace

Result<std::shared_ptr<const text::Tokenizer>> LoadTokenizer(
    const weights::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const weights::TokenizerSource source, checkpoint.Tokenizer());
  if (const auto* gguf = std::get_if<weights::GgufTokenizer>(&source)) {
    ASSIGN_OR_RETURN(text::TokenizerSpec spec, MakeSpec(*gguf, checkpoint));
    return text::Tokenizer::Create(std::move(spec));
  }
  const auto& files = std::get<weights::HfTokenizer>(source);
  ASSIGN_OR_RETURN(
      text::TokenizerSpec spec,
      text::ParseTokenizerJson({.tokenizer_json = files.tokenizer_json,
                                .tokenizer_config_json = files.tokenizer_config_json}));
  return text::Tokenizer::Create(std::move(spec));
}

}  // namespace hayate::app
