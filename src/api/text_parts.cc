#include "api/text_parts.h"

#include <algorithm>

#include "api/field_reader.h"
#include "base/error.h"

namespace hayate::api {

Result<std::vector<std::string>> ReadTexts(simdjson::dom::element content, const std::string& where,
                                           std::span<const std::string_view> types) {
  std::string_view text;
  if (content.get(text) == simdjson::SUCCESS) return std::vector{std::string(text)};
  simdjson::dom::array parts;
  if (content.get(parts) != simdjson::SUCCESS) {
    return InvalidField(where, "must be a string or a list of parts");
  }
  if (parts.size() == 0) return InvalidField(where, "must hold at least one part");
  std::vector<std::string> texts;
  for (const simdjson::dom::element part : parts) {
    const std::string at = where + "[" + std::to_string(texts.size()) + "]";
    if (part.get(text) == simdjson::SUCCESS) {
      texts.emplace_back(text);
      continue;
    }
    simdjson::dom::object object;
    std::string_view type;
    if (part.get(object) != simdjson::SUCCESS || object["type"].get(type) != simdjson::SUCCESS) {
      return InvalidField(at, "must be an object with a type");
    }
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return InvalidField(at + ".type", "'{}' is not supported: this model takes text only",
                          Shown(type));
    }
    // A refusal is the text of its turn under another name.
    const char* name = type == "refusal" ? "refusal" : "text";
    if (object[name].get(text) != simdjson::SUCCESS) {
      return InvalidField(at + "." + name, "must be a string");
    }
    texts.emplace_back(text);
  }
  return texts;
}

}  // namespace hayate::api
