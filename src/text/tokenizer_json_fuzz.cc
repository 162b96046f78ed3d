// tokenizer.json from anywhere: it is refused, or it makes a tokenizer that encodes and decodes any
// text. The input is the file, a zero byte, and the text.

#include <cstdint>
#include <string_view>

#include "text/detail/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace text = hayate::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view json = input.substr(0, end);
  auto spec = text::ParseTokenizerJson({json, json});
  if (!spec.ok()) spec = text::ParseTokenizerJson({json, ""});
  if (!spec.ok()) return 0;
  const auto tokenizer = text::Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) return 0;
  for (const std::string_view sample : {input.substr(std::min(end + 1, size)), json}) {
    const auto ids = (*tokenizer)->Encode(sample);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size()) << id;
    const std::string decoded = (*tokenizer)->Decode(*ids, text::SkipSpecial::kNo);
    CHECK_EQ(text::FindInvalidUtf8(decoded), std::string_view::npos);
  }
  return 0;
}
