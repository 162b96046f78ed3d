// Which workers a request goes to, and where it waits while there is none.

#include <utility>

#include "gateway/lane.h"

namespace hayate::gateway {

WaitingRoom::Pool Exchange::PoolOf(const Guard&) const {
  WaitingRoom::Pool pool{.model = model_};
  if (!lane_.state().router.pairs()) return pool;
  // Facts are the same on either side of a pair.
  pool.workers = route_.kind == RouteKind::kInference ? WaitingRoom::Workers::kPair
                                                      : WaitingRoom::Workers::kDecode;
  return pool;
}

Router::Picked Exchange::Choose(const WaitingRoom::Pool& pool, std::optional<Lease>& decode,
                                const Guard&) {
  State& state = lane_.state();
  // Who waits already goes first.
  if (place_ == 0 && state.waiting_room.HasLine(pool)) return {.may_come = true};
  const int64_t now_ns = lane_.now_ns();
  RouteRequest request{.model = model_, .key = key_, .tried = tried_};
  if (pool.workers == WaitingRoom::Workers::kDecode) request.role = WorkerRole::kDecode;
  if (pool.workers == WaitingRoom::Workers::kPair) request.role = WorkerRole::kPrefill;
  Router::Picked picked = state.router.Pick(request, now_ns);
  if (!picked.lease || pool.workers != WaitingRoom::Workers::kPair) return picked;
  request.role = WorkerRole::kDecode;
  Router::Picked second = state.router.Pick(request, now_ns);
  if (!second.lease) {
    state.router.Finish(*picked.lease, AttemptEnd::kCancelled, now_ns);
    return second;
  }
  decode = std::move(second.lease);
  return picked;
}

bool Exchange::TakePlace(const WaitingRoom::Pool& pool, const Guard&) {
  State& state = lane_.state();
  if (state.options.admission.queue_timeout_ns <= 0) return false;
  if (place_ != 0) {
    state.waiting_room.WaitAgain(place_);  // called for nothing; its time goes on
    return true;
  }
  const auto place = state.waiting_room.Enter(pool);
  if (!place) return false;
  place_ = *place;
  state.waiting[place_] = {&lane_, id_};
  if (!place_timer_) place_timer_.emplace(lane_.loop(), [this] { OnRoomTimeout(); });
  place_timer_->Set(lane_.now_ns() + state.options.admission.queue_timeout_ns);
  return true;
}

void Exchange::LeaveRoom(const Guard&) {
  if (place_ == 0) return;
  lane_.state().waiting_room.Leave(place_);
  lane_.state().waiting.erase(place_);
  place_ = 0;
  place_timer_->Set(http::Timer::kNever);
}

void Exchange::OnWorkerThere() {
  if (stage_ == Stage::kInRoom) Attempt();
}

void Exchange::OnRoomTimeout() {
  if (stage_ != Stage::kInRoom) return;
  lane_.state().metrics.room_timeouts.Increment();
  FailWith({.status = 503,
            .code = "no_healthy_workers",
            .message = "no worker came up while the request waited for one; try again later",
            .retry_after_s = 1},
           AttemptEnd::kOk);
}

}  // namespace hayate::gateway
