#include "text/detokenizer.h"

#include <algorithm>

namespace hayate::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of a character that begins with `lead`; 0 if none does (Unicode 15, table 3-7).
uint8_t ExpectedLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Whether `byte` may be the second byte after `lead`; no overlong forms, surrogates or beyond
// U+10FFFF.
bool IsSecondByte(unsigned char lead, unsigned char byte) {
  switch (lead) {
    case 0xE0:
      return byte >= 0xA0 && byte <= 0xBF;
    case 0xED:
      return byte >= 0x80 && byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90 && byte <= 0xBF;
    case 0xF4:
      return byte >= 0x80 && byte <= 0x8F;
    default:
      return byte >= 0x80 && byte <= 0xBF;
  }
}

}  // namespace

void Utf8Repairer::Push(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) PushByte(static_cast<unsigned char>(byte), out);
}

void Utf8Repairer::PushByte(unsigned char byte, std::string& out) {
  if (num_pending_ > 0) {
    const bool continues = num_pending_ == 1
                               ? IsSecondByte(static_cast<unsigned char>(pending_[0]), byte)
                               : (byte & 0xC0) == 0x80;
    if (continues) {
      pending_[num_pending_++] = static_cast<char>(byte);
      if (num_pending_ == num_expected_) {
        out.append(pending_, num_pending_);
        num_pending_ = 0;
      }
      return;
    }
    out += kReplacement;
    num_pending_ = 0;
  }
  num_expected_ = ExpectedLength(byte);
  if (num_expected_ == 0) {
    out += kReplacement;
  } else if (num_expected_ == 1) {
    out += static_cast<char>(byte);
  } else {
    pending_[num_pending_++] = static_cast<char>(byte);
  }
}

void Utf8Repairer::Flush(std::string& out) {
  if (num_pending_ > 0) out += kReplacement;
  num_pending_ = 0;
}

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DetokenizeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  strip_space_ = options_.position == TextPosition::kStart && tokenizer_->strips_leading_space();
}

std::string Detokenizer::Push(std::span<const int32_t> ids) {
  std::string delta;
  for (const int32_t id : ids) {
    if (options_.skip_special == SkipSpecial::kYes && tokenizer_->IsSpecial(id) && !Kept(id)) {
      continue;
    }
    std::string_view bytes = tokenizer_->TokenBytes(id);
    if (bytes.empty()) continue;
    if (strip_space_ && bytes.front() == ' ') bytes.remove_prefix(1);
    strip_space_ = false;
    repairer_.Push(bytes, delta);
  }
  return delta;
}

bool Detokenizer::Kept(int32_t id) const {
  return options_.kept != nullptr && std::ranges::binary_search(*options_.kept, id);
}

std::string Detokenizer::Flush() {
  std::string delta;
  repairer_.Flush(delta);
  strip_space_ = options_.position == TextPosition::kStart && tokenizer_->strips_leading_space();
  return delta;
}

}  // namespace hayate::text
