#include "gateway/pd_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/json_writer.h"

namespace hayate::gateway {
namespace {

template <typename Append>
void AppendRepeated(std::string& out, size_t count, bool arrays, Append append) {
  if (!arrays) return append(0);
  out.push_back('[');
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out.push_back(',');
    append(i);
  }
  out.push_back(']');
}

// The inside of the list behind `key`, or nothing.
std::optional<std::string_view> ListInside(std::string_view json, std::string_view key) {
  const size_t at = json.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  size_t begin = at + key.size();
  while (begin < json.size() && (json[begin] == ' ' || json[begin] == ':')) ++begin;
  if (begin >= json.size() || json[begin] != '[') return std::nullopt;
  int depth = 0;
  for (size_t i = begin; i < json.size(); ++i) {
    if (json[i] == '"') {
      i = FindStringEnd(json, i + 1);
      continue;
    }
    if (json[i] == '[') ++depth;
    if (json[i] == ']' && --depth == 0) return json.substr(begin + 1, i - begin - 1);
  }
  return std::nullopt;
}

}  // namespace

size_t RoomsFor(const BodyFields& fields, bool chat) {
  // /generate fans n out inside the worker; a chat request with n > 1 is a batch of n there.
  const int64_t n = chat ? std::max<int64_t>(1, fields.n) : 1;
  const int64_t rooms = std::max<int64_t>(1, fields.batch) * n;
  return static_cast<size_t>(std::clamp<int64_t>(rooms, 1, kMaxRooms));
}

std::string RendezvousSplice(const Rendezvous& rendezvous, std::span<const uint64_t> rooms,
                             bool arrays, bool empty_object) {
  std::string out = "\"bootstrap_host\":";
  AppendRepeated(out, rooms.size(), arrays,
                 [&](size_t) { AppendJsonString(out, rendezvous.host); });
  out += ",\"bootstrap_port\":";
  AppendRepeated(out, rooms.size(), arrays, [&](size_t) {
    out += rendezvous.port > 0 ? std::to_string(rendezvous.port) : "null";
  });
  out += ",\"bootstrap_room\":";
  AppendRepeated(out, rooms.size(), arrays, [&](size_t i) { out += std::to_string(rooms[i]); });
  if (!empty_object) out += ",";
  return out;
}

bool MergeInputLogprobs(std::string_view prefill, std::string& decode) {
  constexpr std::string_view kKey = "\"input_token_logprobs\"";
  const auto first = ListInside(prefill, kKey);
  const auto second = ListInside(decode, kKey);
  if (!first || !second || first->empty()) return false;
  const auto at = static_cast<size_t>(second->data() - decode.data());
  std::string merged(*first);
  if (!second->empty()) merged += ",";
  decode.insert(at, merged);
  return true;
}

}  // namespace hayate::gateway
