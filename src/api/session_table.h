#pragma once
// Sessions of /generate: conversations as token ids, kept between requests so that a turn sends
// only what is new. Turns form trees: a turn goes on from any finished one, so a client can branch
// or take a turn back. What makes them cheap is the prefix cache; this only remembers the ids.
// Any thread.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "core/ids.h"

namespace hayate::api {

// session_params of a request.
struct SessionTurn {
  std::string session;
  std::optional<std::string> parent;  // the rid of the turn to go on from; none: a new root
  int64_t offset = 0;                 // of the parent's tokens this many are kept; 0: all
  bool replace = false;               // the parent's later turns, or without one all, are dropped
  bool drop_previous_output = false;  // of the parent only the prompt is kept
};

class SessionTable {
 public:
  struct Limits {
    size_t max_sessions = 1024;
    size_t max_turns = 4096;             // of a session
    int64_t max_tokens = 64 << 20;       // of all sessions together
    int64_t idle_ns = 3600'000'000'000;  // then a session is dropped where room is needed
  };
  SessionTable(const Limits& limits, const Clock& clock, uint64_t seed)
      : limits_(limits), clock_(clock), rng_(seed) {}

  // `id` empty: made up. kInvalidArgument when it is open already, kResourceExhausted when as many
  // as may be are. `capacity`: tokens that a turn may go on from; 0: no limit.
  Result<std::string> Open(std::string id, int64_t capacity);
  // kNotFound for a session that is not open.
  Status Close(const std::string& id);

  // The tokens that stand before the turn's own. `rid` names the turn, which is under way from here
  // until Finish or Drop. Refuses unknown sessions and parents, and parents still under way.
  Result<std::vector<TokenId>> Begin(const SessionTurn& turn, const std::string& rid);
  // The turn may be gone on from. Does nothing when the session was closed meanwhile.
  void Finish(const SessionTurn& turn, const std::string& rid, std::vector<TokenId> prompt,
              std::vector<TokenId> output);
  void Drop(const SessionTurn& turn, const std::string& rid);

  size_t num_sessions() const;

 private:
  struct Turn {
    std::optional<std::string> parent;
    bool finished = false;
    std::vector<TokenId> prompt;  // whole, parents' tokens included
    std::vector<TokenId> output;
    int64_t num_tokens() const { return static_cast<int64_t>(prompt.size() + output.size()); }
  };
  struct Session {
    int64_t capacity = 0;
    int64_t used_ns = 0;
    std::unordered_map<std::string, Turn> turns;
  };
  // All with the lock held.
  void Forget(Session& session, const std::string& rid);
  void ForgetDescendants(Session& session, const std::string& rid);
  void DropIdle();

  const Limits limits_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Rng rng_;
  std::unordered_map<std::string, Session> sessions_;
  int64_t num_tokens_ = 0;
};

}  // namespace hayate::api
