#include "gateway/pd_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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

constexpr std::string_view kLogprobs = "\"input_token_logprobs\"";
constexpr std::string_view kIndex = "\"index\"";
constexpr std::string_view kEventData = "data:";

// Where the value behind the first `key` from `from` on begins; npos without one.
size_t FindValue(std::string_view json, std::string_view key, size_t from) {
  size_t at = json.find(key, from);
  if (at == std::string_view::npos) return at;
  at += key.size();
  while (at < json.size() && (json[at] == ' ' || json[at] == ':')) ++at;
  return at < json.size() ? at : std::string_view::npos;
}

// The inside of the next list of log-probabilities from `from` on, or nothing.
std::optional<std::string_view> NextList(std::string_view json, size_t from) {
  for (size_t begin = FindValue(json, kLogprobs, from); begin != std::string_view::npos;
       begin = FindValue(json, kLogprobs, begin)) {
    if (json[begin] != '[') continue;  // null: this one has none
    int depth = 0;
    for (size_t i = begin; i < json.size(); ++i) {
      if (json[i] == '"') {
        i = text::FindStringEnd(json, i + 1);
        continue;
      }
      if (json[i] == '[') ++depth;
      if (json[i] == ']' && --depth == 0) return json.substr(begin + 1, i - begin - 1);
    }
    return std::nullopt;
  }
  return std::nullopt;
}

size_t IndexOf(std::string_view event) {
  size_t index = 0;
  if (const size_t at = FindValue(event, kIndex, 0); at != std::string_view::npos) {
    std::from_chars(event.data() + at, event.data() + event.size(), index);
  }
  return index;
}

// Cuts the next line off, its line end included.
std::string_view TakeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t taken = std::min(text.size(), line.size() + 1);
  const std::string_view whole = text.substr(0, taken);
  text.remove_prefix(taken);
  return whole;
}

// Puts `list` before what stands at `at`, the first place inside decode's own list.
size_t InsertBefore(std::string& answer, std::string_view own, std::string_view list) {
  const auto at = static_cast<size_t>(own.data() - answer.data());
  std::string merged(list);
  if (!own.empty()) merged += ",";
  answer.insert(at, merged);
  return at + merged.size();
}

}  // namespace

size_t RoomsFor(const text::BodyFields& fields, bool chat) {
  // /generate fans n out inside the worker; a chat request with n > 1 is a batch of n there.
  const int64_t n = chat ? std::max<int64_t>(1, fields.n) : 1;
  const int64_t rooms = std::max<int64_t>(1, fields.batch) * n;
  return static_cast<size_t>(std::clamp<int64_t>(rooms, 1, kMaxRooms));
}

std::string RankSplice(const RankChoice& choice, RankField field) {
  std::string out;
  if (choice.rank >= 0) {
    out += field == RankField::kSingle ? "\"data_parallel_rank\":" : "\"routed_dp_rank\":";
    out += std::to_string(choice.rank) + ",";
  }
  if (choice.prefill_rank >= 0) {
    out += "\"disagg_prefill_dp_rank\":" + std::to_string(choice.prefill_rank) + ",";
  }
  return out;
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

PromptLogprobs::PromptLogprobs(std::string_view prefill) {
  if (prefill.starts_with(kEventData)) {
    while (!prefill.empty()) {
      const std::string_view line = TakeLine(prefill);
      const auto list = NextList(line, 0);
      if (list && !list->empty()) lists_[IndexOf(line)] = *list;
    }
    return;
  }
  size_t from = 0;
  for (size_t k = 0; const auto list = NextList(prefill, from); ++k) {
    if (!list->empty()) lists_[k] = *list;
    from = static_cast<size_t>(list->data() - prefill.data()) + list->size();
  }
}

void PromptLogprobs::MergeInto(std::string& answer) const {
  size_t from = 0;
  for (size_t k = 0; const auto own = NextList(answer, from); ++k) {
    const auto list = lists_.find(k);
    from = list != lists_.end() ? InsertBefore(answer, *own, list->second) + own->size()
                                : static_cast<size_t>(own->data() - answer.data()) + own->size();
  }
}

void PromptLogprobs::MergeEvents(std::string_view events, std::string& out) const {
  while (!events.empty()) {
    const std::string_view line = TakeLine(events);
    const auto own = line.starts_with(kEventData) ? NextList(line, 0) : std::nullopt;
    const auto list = own ? lists_.find(IndexOf(line)) : lists_.end();
    if (list == lists_.end()) {
      out += line;
      continue;
    }
    const auto at = static_cast<size_t>(own->data() - line.data());
    out += line.substr(0, at);
    out += list->second;
    if (!own->empty()) out += ",";
    out += line.substr(at);
  }
}

}  // namespace hayate::gateway
