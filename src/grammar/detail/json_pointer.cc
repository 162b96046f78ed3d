#include "grammar/detail/json_pointer.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace hayate::grammar::detail {
namespace {

// "%25" of the URI first, then "~1" and "~0" of the pointer.
std::optional<std::string> Unescape(std::string_view step) {
  std::string plain;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      plain += step[i];
      continue;
    }
    unsigned char byte = 0;
    const char* begin = step.data() + i + 1;
    if (step.size() - i < 3) return std::nullopt;
    if (std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return std::nullopt;
    plain += static_cast<char>(byte);
    i += 2;
  }
  std::string name;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool escape = plain[i] == '~' && i + 1 < plain.size();
    if (escape && (plain[i + 1] == '0' || plain[i + 1] == '1')) {
      name += plain[++i] == '0' ? '~' : '/';
    } else {
      name += plain[i];
    }
  }
  return name;
}

}  // namespace

std::optional<simdjson::dom::element> ResolvePointer(simdjson::dom::element root,
                                                     std::string_view fragment) {
  if (!fragment.starts_with('#')) return std::nullopt;
  fragment.remove_prefix(1);
  if (fragment.empty() || fragment == "/") return root;
  if (!fragment.starts_with('/')) return std::nullopt;  // an anchor
  simdjson::dom::element at = root;
  while (!fragment.empty()) {
    fragment.remove_prefix(1);
    const size_t end = std::min(fragment.find('/'), fragment.size());
    const auto name = Unescape(fragment.substr(0, end));
    fragment.remove_prefix(end);
    if (!name) return std::nullopt;
    simdjson::dom::object object;
    simdjson::dom::array array;
    simdjson::dom::element next;
    if (at.get(object) == simdjson::SUCCESS) {
      if (object.at_key(*name).get(next) != simdjson::SUCCESS) return std::nullopt;
    } else if (at.get(array) == simdjson::SUCCESS) {
      size_t index = 0;
      const auto parsed = std::from_chars(name->data(), name->data() + name->size(), index);
      if (parsed.ec != std::errc() || parsed.ptr != name->data() + name->size())
        return std::nullopt;
      if (array.at(index).get(next) != simdjson::SUCCESS) return std::nullopt;
    } else {
      return std::nullopt;
    }
    at = next;
  }
  return at;
}

}  // namespace hayate::grammar::detail
