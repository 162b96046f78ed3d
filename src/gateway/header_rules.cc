#include "gateway/header_rules.h"

#include <algorithm>
#include <array>

namespace hayate::gateway {
namespace {

using http::EqualsIgnoreCase;

// Ended at this hop, whatever Connection says. Lengths and Host are made anew for the next one.
constexpr std::array<std::string_view, 12> kHopByHop = {"connection",
                                                        "keep-alive",
                                                        "proxy-connection",
                                                        "proxy-authenticate",
                                                        "proxy-authorization",
                                                        "te",
                                                        "trailer",
                                                        "transfer-encoding",
                                                        "upgrade",
                                                        "content-length",
                                                        "host",
                                                        "expect"};
constexpr std::array<std::string_view, 8> kAlwaysAllowed = {
    "content-type",     "accept",      "authorization", "x-request-id",
    "x-correlation-id", "traceparent", "tracestate",    "content-encoding"};

bool IsOneOf(std::string_view name, const auto& names) {
  return std::any_of(names.begin(), names.end(),
                     [name](const auto& other) { return EqualsIgnoreCase(name, other); });
}

bool ListHolds(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (EqualsIgnoreCase(item, name)) return true;
  }
  return false;
}

bool NamedByConnection(http::HeaderView headers, std::string_view name) {
  for (const http::Header& field : headers) {
    if (EqualsIgnoreCase(field.name, "connection") && ListHolds(field.value, name)) return true;
  }
  return false;
}

bool IsCors(std::string_view name) {
  constexpr std::string_view kPrefix = "access-control-";
  return EqualsIgnoreCase(name.substr(0, kPrefix.size()), kPrefix);
}

}  // namespace

void AppendRequestFields(http::HeaderView headers, const HeaderRules& rules,
                         std::string_view request_id, std::string& out) {
  const bool has_connection = headers.Find("connection").has_value();
  for (const http::Header& field : headers) {
    if (IsOneOf(field.name, kHopByHop)) continue;
    if (has_connection && NamedByConnection(headers, field.name)) continue;
    if (!rules.allowed.empty() && !IsOneOf(field.name, kAlwaysAllowed) &&
        !IsOneOf(field.name, rules.request_id_headers) && !IsOneOf(field.name, rules.allowed)) {
      continue;
    }
    if (EqualsIgnoreCase(field.name, "authorization")) continue;
    out.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  if (!headers.Find("x-request-id")) out.append("x-request-id: ").append(request_id).append("\r\n");
}

std::string_view RequestIdOf(http::HeaderView headers, const HeaderRules& rules) {
  for (const std::string& name : rules.request_id_headers) {
    const auto value = headers.Find(name);
    if (value && !value->empty()) return *value;
  }
  return {};
}

void ResponseFields::Add(std::string_view name, std::string_view value) {
  const auto begin = static_cast<uint32_t>(text_.size());
  text_.append(name).append(value);
  spans_.push_back({begin, static_cast<uint32_t>(name.size()),
                    begin + static_cast<uint32_t>(name.size()),
                    static_cast<uint32_t>(value.size())});
}

void ResponseFields::Assign(http::HeaderView headers, const HeaderRules& rules,
                            std::string_view request_id) {
  Clear();
  const bool has_connection = headers.Find("connection").has_value();
  bool has_id = false;
  for (const http::Header& field : headers) {
    // This server dates its own answers.
    if (IsOneOf(field.name, kHopByHop) || EqualsIgnoreCase(field.name, "date")) continue;
    if (has_connection && NamedByConnection(headers, field.name)) continue;
    if (rules.drop_cors && IsCors(field.name)) continue;
    has_id = has_id || EqualsIgnoreCase(field.name, "x-request-id");
    Add(field.name, field.value);
  }
  if (!has_id) Add("x-request-id", request_id);
}

std::vector<http::Header> ResponseFields::View() const {
  std::vector<http::Header> out;
  out.reserve(spans_.size());
  const std::string_view text = text_;
  for (const Span& span : spans_) {
    out.push_back(
        {text.substr(span.name, span.name_size), text.substr(span.value, span.value_size)});
  }
  return out;
}

}  // namespace hayate::gateway
