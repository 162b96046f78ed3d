#include "engine/client.h"

#include <utility>

#include "engine/engine.h"

namespace hayate::engine {

Status Client::Submit(Request request) {
  if (engine_.failed()) return Status(ErrorCode::kUnavailable, "the device has failed");
  request.arrival_ns = engine_.NowNs();
  return inbox_.TryPush(std::move(request));
}

void Client::Cancel(RequestId id) { inbox_.PushCancel({id, CancelReason::kUnwanted}); }
void Client::Complete(RequestId id) { inbox_.PushCancel({id, CancelReason::kComplete}); }
void Client::CancelAll() { inbox_.PushAbortAll(); }
std::future<Status> Client::FlushCache() { return inbox_.PushFlush(); }
std::future<Status> Client::Pause(PauseMode mode) { return inbox_.PushPause(mode); }
std::future<Status> Client::Continue() { return inbox_.PushPause(std::nullopt); }
std::future<Status> Client::UpdateWeights(WeightUpdate update) {
  return inbox_.PushUpdate(std::move(update));
}
EngineLoad Client::load() const { return engine_.load(); }
const CacheJournal* Client::cache_journal() const { return engine_.cache_journal(); }
int64_t Client::NowNs() const { return engine_.NowNs(); }
bool Client::failed() const { return engine_.failed(); }

}  // namespace hayate::engine
