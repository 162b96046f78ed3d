#include "text/body_scan.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <charconv>

namespace hayate::text {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Walks over JSON without checking more than it needs to stay in step.
class Walker {
 public:
  explicit Walker(std::string_view bytes) : bytes_(bytes) {}

  void SkipBlanks() {
    while (at_ < bytes_.size() && IsBlank(bytes_[at_])) ++at_;
  }
  bool AtEnd() const { return at_ >= bytes_.size(); }
  char Peek() const { return AtEnd() ? '\0' : bytes_[at_]; }
  size_t at() const { return at_; }
  // Whether the value just walked over was whole.
  bool whole() const { return whole_; }

  bool Take(char c) {
    SkipBlanks();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  // A string's inside; the walker stands on its opening quote.
  std::string_view TakeString() {
    const size_t begin = at_ + 1;
    const size_t end = FindStringEnd(bytes_, begin);
    whole_ = end < bytes_.size();
    at_ = std::min(end + 1, bytes_.size());
    return bytes_.substr(std::min(begin, bytes_.size()), end - std::min(begin, end));
  }

  // Any value, as raw bytes. Empty when there is none.
  std::string_view TakeValue() {
    SkipBlanks();
    const size_t begin = at_;
    const char c = Peek();
    if (c == '"') {
      TakeString();
    } else if (c == '{' || c == '[') {
      SkipNested();
    } else {
      while (!AtEnd() && !IsBlank(Peek()) && Peek() != ',' && Peek() != '}' && Peek() != ']') ++at_;
      whole_ = !AtEnd();
    }
    return bytes_.substr(begin, at_ - begin);
  }

 private:
  void SkipNested() {
    int64_t depth = 0;
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '"') {
        TakeString();
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) {
        whole_ = true;
        return;
      }
    }
    whole_ = false;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool whole_ = true;
};

std::string_view StringInside(std::string_view raw) {
  return raw.size() >= 2 && raw.front() == '"' && raw.back() == '"' ? raw.substr(1, raw.size() - 2)
                                                                    : std::string_view();
}

int64_t ReadInt(std::string_view raw, int64_t fallback) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(raw.data(), raw.data() + raw.size(), value);
  return error == std::errc() && end == raw.data() + raw.size() ? value : fallback;
}

// Elements of a list of strings or of lists; 0 for anything else: a list of ids is one prompt.
int64_t CountBatch(std::string_view raw) {
  Walker walker(raw);
  if (!walker.Take('[')) return 0;
  walker.SkipBlanks();
  if (walker.Peek() != '"' && walker.Peek() != '[') return 0;
  int64_t count = 0;
  do {
    if (walker.TakeValue().empty()) break;
    ++count;
  } while (walker.Take(','));
  return count;
}

// The sampling parameters of /generate lie one level down.
void ReadSamplingParams(std::string_view raw, BodyFields& out) {
  Walker walker(raw);
  if (!walker.Take('{')) return;
  do {
    walker.SkipBlanks();
    if (walker.Peek() != '"') return;
    const std::string_view key = walker.TakeString();
    if (!walker.Take(':')) return;
    const std::string_view value = walker.TakeValue();
    if (key == "max_new_tokens") out.max_tokens = ReadInt(value, out.max_tokens);
    if (key == "n") out.n = ReadInt(value, out.n);
  } while (walker.Take(','));
}

void ReadField(std::string_view key, std::string_view raw, BodyFields& out) {
  if (key == "model") {
    out.model = StringInside(raw);
  } else if (key == "messages" || key == "prompt" || key == "text" || key == "input_ids" ||
             key == "input") {
    out.prompt = raw;
    out.batch = key == "messages" || key == "input" ? 0 : CountBatch(raw);
  } else if (key == "tools" || key == "system" || key == "instructions" || key == "lora_path" ||
             key == "cache_salt" || key == "extra_key") {
    out.context_hash +=
        XXH3_64bits_withSeed(raw.data(), raw.size(), XXH3_64bits(key.data(), key.size()));
  } else if (key == "stream") {
    out.stream = raw == "true";
  } else if (key == "return_logprob") {
    out.return_logprob = raw == "true";
  } else if (key == "max_tokens" || key == "max_completion_tokens" || key == "max_output_tokens") {
    out.max_tokens = ReadInt(raw, out.max_tokens);
  } else if (key == "n") {
    out.n = ReadInt(raw, out.n);
  } else if (key == "sampling_params") {
    ReadSamplingParams(raw, out);
  }
}

// Skips blocks of 64 bytes without a quote or a backslash, so that long prompts run at memory
// speed.
size_t SkipPlain(std::string_view bytes, size_t i) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  for (; i + 64 <= bytes.size(); i += 64) {
    uint64_t hits = 0;
    for (int part = 0; part < 4; ++part) {
      const auto* from = reinterpret_cast<const __m128i*>(bytes.data() + i + 16 * part);
      const __m128i block = _mm_loadu_si128(from);
      const __m128i found =
          _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash));
      hits |= uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(found))} << (16 * part);
    }
    if (hits != 0) return i + std::countr_zero(hits);
  }
#endif
  return i;
}

}  // namespace

size_t FindStringEnd(std::string_view bytes, size_t begin) {
  size_t i = begin;
  while (i < bytes.size()) {
    i = SkipPlain(bytes, i);
    while (i < bytes.size() && bytes[i] != '"' && bytes[i] != '\\') ++i;
    if (i >= bytes.size()) return bytes.size();
    if (bytes[i] == '"') return i;
    i += 2;  // an escape: the next byte is no end, whatever it is
  }
  return bytes.size();
}

BodyFields ScanBody(std::string_view bytes) {
  BodyFields out;
  Walker walker(bytes);
  if (!walker.Take('{')) return out;
  out.is_object = true;
  out.insert_at = walker.at();
  if (walker.Take('}')) {
    out.empty = true;
  } else {
    do {
      walker.SkipBlanks();
      if (walker.Peek() != '"') return out;
      const std::string_view key = walker.TakeString();
      if (!walker.Take(':')) return out;
      const std::string_view value = walker.TakeValue();
      if (value.empty()) return out;
      ReadField(key, value, out);
      if (!walker.whole()) return out;
    } while (walker.Take(','));
    if (!walker.Take('}')) return out;
  }
  walker.SkipBlanks();
  out.complete = walker.AtEnd();
  return out;
}

std::string_view Unescape(std::string_view raw, std::string& storage) {
  if (raw.find('\\') == std::string_view::npos) return raw;
  storage.clear();
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      storage.push_back(raw[i]);
      continue;
    }
    const char c = raw[++i];
    switch (c) {
      case 'n':
        storage.push_back('\n');
        break;
      case 't':
        storage.push_back('\t');
        break;
      case 'u': {
        unsigned code = 0;
        const size_t digits = std::min<size_t>(4, raw.size() - i - 1);
        std::from_chars(raw.data() + i + 1, raw.data() + i + 1 + digits, code, 16);
        i += digits;
        // Names of models are ASCII; anything else becomes a name that no worker has.
        storage.push_back(code < 0x80 ? static_cast<char>(code) : '?');
        break;
      }
      default:
        storage.push_back(c);
    }
  }
  return storage;
}

}  // namespace hayate::text
