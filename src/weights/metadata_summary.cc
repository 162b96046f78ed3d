#include <string>

#include "base/error.h"
#include "base/json_writer.h"
#include "weights/detail/utf8_cut.h"
#include "weights/metadata.h"

namespace hayate::weights {
namespace {

std::string Literal(std::string_view text, size_t max_chars) {
  const std::string_view head = detail::CutUtf8(text, max_chars);
  std::string quoted;
  AppendJsonString(quoted, head);
  return head.size() < text.size() ? quoted + "…" : quoted;
}
std::string Literal(bool value, size_t) { return value ? "true" : "false"; }
std::string Literal(int64_t value, size_t) { return std::to_string(value); }
std::string Literal(double value, size_t) { return fmt::format("{}", value); }

template <typename T>
std::string List(const std::vector<T>& items, size_t max_chars) {
  std::string text = fmt::format("[{} items]", items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = Literal(items[i], max_chars / 4);
    if (text.size() + item.size() + 2 > max_chars) return text + ", …";
    text += (i == 0 ? " " : ", ") + item;
  }
  return text;
}

struct Summarizer {
  size_t max_chars;
  std::string operator()(Untyped value) const {
    return value == Untyped::kNull         ? "null"
           : value == Untyped::kEmptyArray ? "[]"
                                           : "[nested arrays]";
  }
  std::string operator()(bool value) const { return Literal(value, max_chars); }
  std::string operator()(int64_t value) const { return Literal(value, max_chars); }
  std::string operator()(double value) const { return Literal(value, max_chars); }
  std::string operator()(std::string_view value) const { return Literal(value, max_chars); }
  template <typename T>
  std::string operator()(const std::vector<T>& items) const {
    return List(items, max_chars);
  }
};

}  // namespace

std::string Summarize(const MetadataValue& value, size_t max_chars) {
  return std::visit(Summarizer{max_chars}, value);
}

}  // namespace hayate::weights
