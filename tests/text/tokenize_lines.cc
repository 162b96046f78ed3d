// Test driver: encodes and decodes for test_tokenizer.py, which compares the output with the
// reference library.
//
//   tokenize_lines TOKENIZER_JSON [TOKENIZER_CONFIG_JSON]
//
// Reads records from stdin, each a line "OPTIONS LENGTH" followed by LENGTH bytes of text and a
// newline. OPTIONS is a set of letters: b adds BOS and EOS, t takes special tokens as text. Writes
// two lines per record: the ids, and the text they decode to, in hexadecimal.

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "base/mapped_file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace hayate::text {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 28;

Result<std::shared_ptr<const Tokenizer>> Load(int argc, char** argv) {
  if (argc < 2)
    return Status(ErrorCode::kInvalidArgument, "usage: tokenize_lines TOKENIZER_JSON [CONFIG]");
  ASSIGN_OR_RETURN(const std::string json, ReadFile(argv[1], kMaxFileBytes));
  std::string config;
  if (argc > 2) {
    ASSIGN_OR_RETURN(config, ReadFile(argv[2], kMaxFileBytes));
  }
  ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson({json, config}));
  return Tokenizer::Create(std::move(spec));
}

int Run(const Tokenizer& tokenizer) {
  std::string header, text;
  while (std::getline(std::cin, header)) {
    const size_t space = header.find(' ');
    text.resize(std::stoul(header.substr(space + 1)));
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    std::cin.ignore();
    EncodeOptions options{.add_bos_eos = AddBosEos::kNo};
    if (header.find('b') < space) options.add_bos_eos = AddBosEos::kYes;
    if (header.find('t') < space) options.special_tokens = SpecialTokens::kAsText;
    const auto ids = tokenizer.Encode(text, options);
    if (!ids.ok()) {
      fmt::print("error {}\n\n", ids.status().ToString());
      continue;
    }
    std::string hex;
    for (const char byte : tokenizer.Decode(*ids, SkipSpecial::kYes)) {
      hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
    fmt::print("{}\n{}\n", fmt::join(*ids, " "), hex);
  }
  return 0;
}

}  // namespace
}  // namespace hayate::text

int main(int argc, char** argv) {
  const auto tokenizer = hayate::text::Load(argc, argv);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.status().ToString());
    return 1;
  }
  return hayate::text::Run(**tokenizer);
}
