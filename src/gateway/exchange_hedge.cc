// A second attempt beside one that is slow to begin its answer. Off unless asked for.

#include <algorithm>
#include <utility>

#include "gateway/lane.h"

namespace hayate::gateway {

void Exchange::ArmHedge() {
  const HedgeOptions& options = lane_.state().options.hedge;
  if (options.after_ns <= 0 || hedged_ || route_.kind != RouteKind::kInference || rest_) return;
  lane_.EarnHedge();
  if (!main_.lease || !main_.lease->others_left) return;
  if (!hedge_timer_) hedge_timer_.emplace(lane_.loop(), [this] { StartHedge(); });
  hedge_timer_->Set(lane_.now_ns() + options.after_ns);
}

void Exchange::StartHedge() {
  if (stage_ != Stage::kAttempt || main_.answered || !main_.lease || !lane_.SpendHedge()) return;
  hedged_ = true;
  std::vector<WorkerId> taken = tried_;
  taken.push_back(main_.lease->worker);
  std::shared_ptr<const Target> target;
  {
    State& state = lane_.state();
    const Guard guard(state.mutex);
    Router::Picked picked =
        state.router.Pick({.model = model_, .key = key_, .tried = taken}, lane_.now_ns());
    if (!picked.lease) return;
    if (std::find(taken.begin(), taken.end(), picked.lease->worker) != taken.end()) {
      state.router.Finish(*picked.lease, AttemptEnd::kCancelled, lane_.now_ns());
      return;  // the others are gone meanwhile
    }
    hedge_.lease = std::move(picked.lease);
    target = state.targets[hedge_.lease->worker];
  }
  if (target == nullptr) return EndLeg(hedge_, AttemptEnd::kCancelled);
  lane_.state().metrics.hedges.Increment();
  http::ResponseHandlers handlers;
  handlers.on_head = [this](int status, http::HeaderView headers) {
    const AttemptEnd end = EndOfStatus(status, headers.Find("retry-after").has_value());
    // One that refuses says nothing of how long the other will take.
    if (hedge_.fetch != 0 && end != AttemptEnd::kOk) return EndLeg(hedge_, end);
    PromoteHedge();
    OnHead(status, headers);
  };
  handlers.on_data = [this](std::string_view bytes) { OnData(bytes); };
  handlers.on_done = [this](const Status& status) { OnHedgeDone(status); };
  http::ClientRequest request = RequestFor(*hedge_.lease->spec, *target);
  request.shared_body = BodyFor(*hedge_.lease->spec);
  Send(hedge_, std::move(target), std::move(request), std::move(handlers));
}

void Exchange::PromoteHedge() {
  if (hedge_.fetch == 0) return;  // main_ failed, and this one stands in for it already
  lane_.state().metrics.hedges_won.Increment();
  EndLeg(main_, AttemptEnd::kCancelled);
  main_ = std::exchange(hedge_, {});
}

void Exchange::OnHedgeDone(const Status& status) {
  if (hedge_.fetch == 0) return OnDone(status);  // promoted
  hedge_.fetch = 0;
  EndLeg(hedge_, EndOfFailure(hedge_, status));
}

}  // namespace hayate::gateway
