#include "text/testing/small_tokenizers.h"

#include <fmt/format.h>

#include "text/detail/merge_resolver.h"
#include "text/detail/utf8.h"
#include "text/tokenizer_gguf.h"

namespace hayate::text::testing {

std::string Spell(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t character = byte;
    // The 68 bytes without a printable Latin-1 character follow each other from U+0100.
    if (byte <= 0x20) character = 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) character = 0x121 + (byte - 0x7F);
    if (byte == 0xAD) character = 0x143;
    AppendUtf8(character, spelling);
  }
  return spelling;
}

TokenizerSpec ByteLevelSpec(const std::vector<std::pair<std::string, std::string>>& merges) {
  TokenizerSpec spec;
  spec.bpe.byte_level = true;
  for (int byte = 0; byte < 256; ++byte) {
    spec.bpe.tokens.push_back(Spell(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [left, right] : merges) spec.bpe.tokens.push_back(Spell(left + right));
  const MergeResolver resolver(spec.bpe.tokens);
  for (const auto& [left, right] : merges) {
    spec.bpe.merges.push_back(*resolver.Resolve(Spell(left), Spell(right), spec.bpe.merges.size()));
  }
  return spec;
}

TokenizerSpec MetaspaceSpec(const std::vector<std::string>& pieces) {
  GgufTokenizerData data{.model = "llama", .bos_id = 1, .eos_id = 2, .unk_id = 0};
  const auto add = [&data](std::string token, int32_t type, float score) {
    data.tokens.push_back(std::move(token));
    data.token_types.push_back(type);
    data.scores.push_back(score);
  };
  add("<unk>", 2, 0);
  add("<s>", 3, 0);
  add("</s>", 3, 0);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6, 0);
  for (size_t i = 0; i < pieces.size(); ++i) add(pieces[i], 1, -static_cast<float>(i));
  return *MakeTokenizerSpec(std::move(data));
}

std::shared_ptr<const Tokenizer> Make(TokenizerSpec spec) {
  return *Tokenizer::Create(std::move(spec));
}

}  // namespace hayate::text::testing
