#include "api/session_table.h"

#include <fmt/format.h>

#include <utility>

#include "api/field_reader.h"
#include "base/error.h"

namespace hayate::api {

Result<std::string> SessionTable::Open(std::string id, int64_t capacity) {
  std::lock_guard lock(mutex_);
  if (id.empty()) id = fmt::format("{:016x}{:016x}", rng_.NextU64(), rng_.NextU64());
  if (sessions_.contains(id)) {
    return InvalidField("session_id", "'{}' is open already", Shown(id));
  }
  if (sessions_.size() >= limits_.max_sessions) DropIdle();
  if (sessions_.size() >= limits_.max_sessions) {
    return Error(ErrorCode::kResourceExhausted, "{} sessions are open, as many as may be",
                 limits_.max_sessions);
  }
  sessions_.emplace(id, Session{.capacity = capacity, .used_ns = clock_.NowNs()});
  return id;
}

Status SessionTable::Close(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) {
    return Error(ErrorCode::kNotFound, "no session '{}' is open", Shown(id));
  }
  for (const auto& [rid, turn] : it->second.turns) num_tokens_ -= turn.num_tokens();
  sessions_.erase(it);
  return OkStatus();
}

Result<std::vector<TokenId>> SessionTable::Begin(const SessionTurn& turn, const std::string& rid) {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(turn.session);
  if (it == sessions_.end()) {
    return InvalidField("session_params.id", "no session '{}' is open", Shown(turn.session));
  }
  Session& session = it->second;
  session.used_ns = clock_.NowNs();
  std::vector<TokenId> prefix;
  if (turn.parent) {
    const auto found = session.turns.find(*turn.parent);
    if (found == session.turns.end()) {
      return InvalidField("session_params.rid", "the session has no turn '{}'",
                          Shown(*turn.parent));
    }
    const Turn& parent = found->second;
    if (!parent.finished) {
      return InvalidField("session_params.rid", "'{}' is still running", Shown(*turn.parent));
    }
    prefix = parent.prompt;
    if (!turn.drop_previous_output) {
      prefix.insert(prefix.end(), parent.output.begin(), parent.output.end());
    }
    if (turn.offset > 0 && turn.offset < static_cast<int64_t>(prefix.size())) {
      prefix.resize(static_cast<size_t>(turn.offset));
    }
    if (session.capacity > 0 && static_cast<int64_t>(prefix.size()) > session.capacity) {
      return Error(ErrorCode::kContextTooLong, "the session holds {} tokens, its capacity is {}",
                   prefix.size(), session.capacity)
          .WithParam("session_params");
    }
  }
  if (session.turns.contains(rid)) {
    return InvalidField("rid", "'{}' names an earlier turn of the session", Shown(rid));
  }
  if (turn.replace && turn.parent) ForgetDescendants(session, *turn.parent);
  if (turn.replace && !turn.parent) {
    for (const auto& [name, old] : session.turns) num_tokens_ -= old.num_tokens();
    session.turns.clear();
  }
  if (session.turns.size() >= limits_.max_turns) {
    return Error(ErrorCode::kResourceExhausted, "the session has {} turns, as many as may be",
                 limits_.max_turns);
  }
  session.turns.emplace(rid, Turn{.parent = turn.parent});
  return prefix;
}

void SessionTable::Finish(const SessionTurn& turn, const std::string& rid,
                          std::vector<TokenId> prompt, std::vector<TokenId> output) {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(turn.session);
  if (it == sessions_.end()) return;
  const auto found = it->second.turns.find(rid);
  if (found == it->second.turns.end()) return;
  const auto count = static_cast<int64_t>(prompt.size() + output.size());
  if (num_tokens_ + count > limits_.max_tokens) DropIdle();
  // A turn that cannot be kept cannot be gone on from: the next one is told that it is not there.
  const auto still = sessions_.find(turn.session);
  if (still == sessions_.end()) return;
  if (num_tokens_ + count > limits_.max_tokens) return Forget(still->second, rid);
  still->second.used_ns = clock_.NowNs();
  Turn& kept = still->second.turns.at(rid);
  kept.prompt = std::move(prompt);
  kept.output = std::move(output);
  kept.finished = true;
  num_tokens_ += count;
}

void SessionTable::Drop(const SessionTurn& turn, const std::string& rid) {
  std::lock_guard lock(mutex_);
  if (const auto it = sessions_.find(turn.session); it != sessions_.end()) {
    Forget(it->second, rid);
  }
}

size_t SessionTable::num_sessions() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

void SessionTable::Forget(Session& session, const std::string& rid) {
  const auto it = session.turns.find(rid);
  if (it == session.turns.end()) return;
  num_tokens_ -= it->second.num_tokens();
  session.turns.erase(it);
}

void SessionTable::ForgetDescendants(Session& session, const std::string& rid) {
  std::vector<std::string> doomed = {rid};
  for (size_t i = 0; i < doomed.size(); ++i) {
    for (const auto& [name, turn] : session.turns) {
      if (turn.parent == doomed[i]) doomed.push_back(name);
    }
  }
  for (size_t i = 1; i < doomed.size(); ++i) Forget(session, doomed[i]);
}

void SessionTable::DropIdle() {
  const int64_t now_ns = clock_.NowNs();
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = entry.second;
    if (now_ns - session.used_ns < limits_.idle_ns) return false;
    for (const auto& [rid, turn] : session.turns) num_tokens_ -= turn.num_tokens();
    return true;
  });
}

}  // namespace hayate::api
