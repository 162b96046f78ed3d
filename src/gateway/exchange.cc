#include "gateway/exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gateway/lane.h"
#include "text/prompt_blocks.h"

namespace hayate::gateway {
namespace {

constexpr double kBytesPerToken = 4.0;
// What a request without max_tokens is taken to produce, and the most that any is.
constexpr int64_t kUsualOutputTokens = 256;
constexpr int64_t kMaxOutputTokens = 4096;

std::string_view EndName(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kOk:
      return "ok";
    case AttemptEnd::kBusy:
      return "busy";
    case AttemptEnd::kFault:
      return "fault";
    case AttemptEnd::kNoConnection:
      return "no_connection";
    case AttemptEnd::kStale:
    case AttemptEnd::kBroken:
      return "broken";
    case AttemptEnd::kTimeout:
      return "timeout";
    case AttemptEnd::kCancelled:
      return "cancelled";
  }
  return "";
}

}  // namespace

Exchange::Exchange(Lane& lane, uint64_t id, http::Request& request, http::ResponseWriter writer,
                   const Route& route)
    : lane_(lane),
      id_(id),
      route_(route),
      writer_(std::move(writer)),
      method_(request.method),
      path_(request.path),
      target_(request.path),
      rest_(std::move(request.rest)),
      body_bytes_(request.body_bytes),
      arrived_ns_(lane.now_ns()) {
  const GatewayOptions& options = lane_.state().options;
  if (!request.query.empty()) target_.append("?").append(request.query);
  request_id_ = RequestIdOf(request.headers, options.headers);
  if (request_id_.empty()) request_id_ = lane_.NewRequestId(route_.id_prefix);
  AppendRequestFields(request.headers, options.headers, request_id_, fields_);
  client_authorization_ = request.headers.Find("authorization").value_or("");
  x_api_key_ = request.headers.Find("x-api-key").value_or("");
  sticky_ = request.headers.Find(options.sticky_header).value_or("");
  if (const auto asked = request.headers.Find("x-request-priority")) {
    asked_priority_ = ParsePriority(*asked);
  }
  body_ = std::make_shared<const std::string>(std::move(request.body));
  bytes_in_ = body_->size();
  body_fields_ = text::ScanBody(*body_);
  std::string storage;
  model_ = text::Unescape(body_fields_.model, storage);
  const int64_t asked = body_fields_.max_tokens < 0 ? kUsualOutputTokens : body_fields_.max_tokens;
  key_ = {.prompt = body_fields_.prompt,
          .seed = text::PromptSeed(body_fields_),
          .sticky = sticky_,
          .prompt_tokens = static_cast<int64_t>(static_cast<double>(body_fields_.prompt.size()) /
                                                kBytesPerToken),
          .output_tokens = std::clamp<int64_t>(asked, 1, kMaxOutputTokens)};
}

Exchange::~Exchange() {
  // Legs are over by now, or the process is ending.
  if (main_.fetch != 0) main_.client->Cancel(main_.fetch);
  if (hedge_.fetch != 0) hedge_.client->Cancel(hedge_.fetch);
  if (prefill_.fetch != 0) prefill_.client->Cancel(prefill_.fetch);
}

void Exchange::Begin() {
  writer_.OnClose([this] { OnClientGone(); });
  lane_.state().metrics.running.Add(1);
  keys_ = lane_.state().Keys();
  if (!Authorise(*keys_)) {
    return FailWith({.status = 401,
                     .code = "invalid_api_key",
                     .message = "the API key is missing or wrong; send Authorization: Bearer KEY"},
                    AttemptEnd::kOk);
  }
  if (route_.kind == RouteKind::kInference) return Enter();
  Attempt();
}

bool Exchange::Authorise(const KeyTable& keys) {
  if (keys.keys.empty() || route_.open) return true;
  key_index_ = FindApiKey(keys.keys, client_authorization_, x_api_key_);
  if (!key_index_) return false;
  return true;
}

// A key's class is the best that its requests may ask for.
Priority Exchange::ClassOf() const {
  if (!key_index_) return asked_priority_.value_or(Priority::kNormal);
  const Priority best = keys_->keys[*key_index_].priority;
  return std::max(asked_priority_.value_or(best), best);
}

void Exchange::Enter() {
  State& state = lane_.state();
  Admission::Answer answer;
  {
    std::lock_guard lock(state.mutex);
    const Admission::Key place = key_index_ ? keys_->places[*key_index_] : -1;
    answer = state.admission.Enter(place, ClassOf(), key_.prompt_tokens, lane_.now_ns());
    if (answer.verdict == Admission::Verdict::kQueued) {
      state.waiters[answer.ticket] = {&lane_, id_};
    }
  }
  switch (answer.verdict) {
    case Admission::Verdict::kAdmitted:
      ticket_ = answer.ticket;
      return Attempt();
    case Admission::Verdict::kQueued:
      ticket_ = answer.ticket;
      stage_ = Stage::kQueued;
      return;
    case Admission::Verdict::kRefused:
      return Refuse(answer);
  }
}

void Exchange::Refuse(const Admission::Answer& answer) {
  Metrics& metrics = lane_.state().metrics;
  ErrorReply error{.status = 429, .retry_after_s = answer.retry_after_s};
  switch (answer.reason) {
    case Admission::Reason::kQueueFull:
      metrics.refused_queue.Increment();
      error.code = "queue_full";
      error.message = "the gateway's queue is full; try again later";
      break;
    case Admission::Reason::kRate:
      metrics.refused_limit.Increment();
      error.code = "rate_limit_exceeded";
      error.message = "the gateway is at its rate limit; try again later";
      break;
    default:
      metrics.refused_key.Increment();
      error.code = "rate_limit_exceeded";
      error.message = answer.reason == Admission::Reason::kKeyConcurrency
                          ? "this API key has as many requests under way as it may"
                          : "this API key is over its rate; try again later";
  }
  FailWith(error, AttemptEnd::kOk);
}

void Exchange::OnAdmitted() {
  if (stage_ != Stage::kQueued) return;
  Attempt();
}

void Exchange::OnQueueTimeout() {
  if (stage_ != Stage::kQueued) return;
  ticket_ = 0;  // the queue has forgotten it
  lane_.state().metrics.queue_timeouts.Increment();
  FailWith({.status = 429,
            .code = "queue_timeout",
            .message = "the request waited too long for its turn; try again later",
            .retry_after_s = 1},
           AttemptEnd::kOk);
}

void Exchange::Attempt() {
  if (stage_ == Stage::kFinished) return;  // a timer of this very turn
  stage_ = Stage::kAttempt;
  State& state = lane_.state();
  Router::Picked picked;
  std::optional<Lease> decode;
  std::shared_ptr<const Target> target;
  bool waits = false;
  {
    const Guard guard(state.mutex);
    const WaitingRoom::Pool pool = PoolOf(guard);
    picked = Choose(pool, decode, guard);
    if (picked.lease) {
      target = state.targets[picked.lease->worker];
      LeaveRoom(guard);
    } else if (picked.may_come && picked.failure == PickFailure::kNoWorker) {
      waits = TakePlace(pool, guard);
    }
  }
  if (waits) {
    stage_ = Stage::kInRoom;
    return;
  }
  if (!picked.lease) return NoWorker(picked);
  if (decode) return StartPair(std::move(*picked.lease), std::move(*decode));
  StartSingle(std::move(*picked.lease), std::move(target));
}

void Exchange::NoWorker(const Router::Picked& picked) {
  if (picked.failure == PickFailure::kUnknownModel) {
    std::string known;
    {
      std::lock_guard lock(lane_.state().mutex);
      for (const std::string& name : lane_.state().router.Models()) {
        known += (known.empty() ? "" : ", ") + name;
      }
    }
    return FailWith({.status = 404,
                     .code = "model_not_found",
                     .message = fmt::format("no worker serves the model \"{}\"; there is: {}",
                                            model_.substr(0, 200), known)},
                    AttemptEnd::kOk);
  }
  FailWith({.status = 503,
            .code = "no_healthy_workers",
            .message = "no worker can take the request now; try again later",
            .retry_after_s = picked.retry_after_s},
           AttemptEnd::kOk);
}

http::ClientRequest Exchange::RequestFor(const WorkerSpec& spec, const Target& target) {
  http::ClientRequest request{.method = method_, .target = target.base_path + target_};
  request.raw_fields = fields_;
  if (!spec.api_key.empty()) {
    request.raw_fields += "Authorization: Bearer " + spec.api_key + "\r\n";
  } else if (!client_authorization_.empty()) {
    request.raw_fields += "Authorization: " + client_authorization_ + "\r\n";
  }
  return request;
}

http::ClientRequest::SharedBody Exchange::BodyWith(std::string splice) const {
  if (splice.empty()) return {body_, {std::string_view(*body_)}};
  // The pieces of a body that several connections may still be writing: owned together.
  struct Owner {
    std::shared_ptr<const std::string> body;
    std::string splice;
  };
  auto owner = std::make_shared<const Owner>(Owner{body_, std::move(splice)});
  const std::string_view body = *owner->body;
  return {
      owner,
      {body.substr(0, body_fields_.insert_at), owner->splice, body.substr(body_fields_.insert_at)}};
}

http::ClientRequest::SharedBody Exchange::BodyFor(const WorkerSpec& spec) const {
  std::string splice;
  if (route_.kind == RouteKind::kInference && body_fields_.is_object) {
    splice = RankSplice({.rank = spec.dp_rank}, RankField::kSingle);
    if (body_fields_.empty && !splice.empty()) splice.pop_back();
  }
  return BodyWith(std::move(splice));
}

void Exchange::StartSingle(Lease lease, std::shared_ptr<const Target> target) {
  main_.lease = std::move(lease);
  if (target == nullptr) return OnFailed(Status(ErrorCode::kUnavailable, "the worker is gone"));
  http::ClientRequest request = RequestFor(*main_.lease->spec, *target);
  request.shared_body = BodyFor(*main_.lease->spec);
  if (rest_) {
    request.streamed_bytes =
        body_bytes_ ? *body_bytes_ - body_->size() : http::ClientRequest::kUnknownLength;
  }
  Send(main_, std::move(target), std::move(request), MainHandlers());
  ArmHedge();
}

void Exchange::Send(Leg& leg, std::shared_ptr<const Target> target, http::ClientRequest request,
                    http::ResponseHandlers handlers) {
  leg.client = lane_.ClientFor(leg.lease->worker, target);
  handlers.on_sent = [this, &leg](http::ResponseHandlers::Via via) {
    // A hedge may have taken the place of what it stood beside.
    Leg& place = &leg == &hedge_ && hedge_.fetch == 0 ? main_ : leg;
    place.sent_ns = lane_.now_ns();
    place.reused = via == http::ResponseHandlers::Via::kReused;
  };
  leg.fetch = leg.client->Fetch(std::move(request), std::move(handlers));
}

bool Exchange::TryAgain(AttemptEnd end) {
  if (hedge_.fetch != 0 && end != AttemptEnd::kOk) {  // the other attempt is on its way already
    tried_.push_back(main_.lease->worker);
    EndLeg(main_, end);
    main_ = std::exchange(hedge_, {});
    return true;
  }
  const RetryInput input{.end = end,
                         .retries_so_far = retries_,
                         .unsent_so_far = unsent_,
                         .client_has_bytes = begun_,
                         .body_is_whole = !upload_started_,
                         .safe_route = route_.safe,
                         .other_worker = main_.lease && main_.lease->others_left};
  const RetryOptions& options = lane_.state().options.retry;
  const RetryDecision decision = DecideRetry(options, input, lane_.rng());
  if (!decision.retry) {
    if (retries_ > 0 && end != AttemptEnd::kOk && end != AttemptEnd::kCancelled) {
      lane_.state().metrics.retries_exhausted.Increment();
    }
    return false;
  }
  if (main_.lease && end != AttemptEnd::kStale) tried_.push_back(main_.lease->worker);
  EndAttempt(end);
  ++(IsUnsent(end) ? unsent_ : retries_);
  lane_.state().metrics.retries.Increment();
  answer_fields_.Clear();
  held_body_.clear();
  boundary_ = EventBoundary();
  prefill_ok_ = pending_done_ = false;
  ForgetPrefillBody();
  if (decision.delay_ns == 0) {
    Attempt();
    return true;
  }
  stage_ = Stage::kWaiting;
  if (!retry_timer_) retry_timer_.emplace(lane_.loop(), [this] { Attempt(); });
  retry_timer_->Set(lane_.now_ns() + decision.delay_ns);
  return true;
}

void Exchange::EndLeg(Leg& leg, AttemptEnd end) {
  if (leg.fetch != 0) leg.client->Cancel(std::exchange(leg.fetch, 0));
  if (!leg.lease) return;
  worker_url_ = leg.lease->spec->url;
  leg.sent_ns = 0;
  leg.reused = leg.answered = false;
  State& state = lane_.state();
  bool look = false;
  {
    std::lock_guard lock(state.mutex);
    look = state.router.Finish(*leg.lease, end, lane_.now_ns());
  }
  leg.lease.reset();
  if (look) state.control.Ring();
}

void Exchange::EndAttempt(AttemptEnd end) {
  EndLeg(prefill_, prefill_ok_ ? AttemptEnd::kOk : AttemptEnd::kCancelled);
  EndLeg(hedge_, AttemptEnd::kCancelled);
  EndLeg(main_, end);
}

void Exchange::FailWith(const ErrorReply& error, AttemptEnd end) {
  final_status_ = error.status;
  if (begun_) {
    BreakStream(end);
  } else {
    SendErrorReply(writer_, error, request_id_);
  }
  Finish(end);
}

void Exchange::OnClientGone() {
  final_status_ = 499;
  lane_.state().metrics.requests_cancelled.Increment();
  Finish(AttemptEnd::kCancelled);
}

void Exchange::Abandon() {
  if (stage_ == Stage::kFinished) return;
  EndAttempt(AttemptEnd::kCancelled);
  stage_ = Stage::kFinished;
  const Guard guard(lane_.state().mutex);
  LeaveRoom(guard);
}

void Exchange::Finish(AttemptEnd end) {
  if (stage_ == Stage::kFinished) return;
  EndAttempt(end);
  const bool queued = stage_ == Stage::kQueued;
  stage_ = Stage::kFinished;
  State& state = lane_.state();
  std::vector<Admission::Ticket> started;
  if (place_ != 0) {
    const Guard guard(state.mutex);
    LeaveRoom(guard);
  }
  if (ticket_ != 0) {
    const int64_t output_tokens =
        std::max<int64_t>(num_events_, static_cast<int64_t>(bytes_out_ / 16));
    std::lock_guard lock(state.mutex);
    if (queued) state.waiters.erase(ticket_);
    // Granted meanwhile, while the word of it is on its way: then it is running.
    if (!queued || !state.admission.Cancel(ticket_)) {
      state.admission.Leave(ticket_, output_tokens, started);
    }
  }
  state.Start(started);
  const int64_t now_ns = lane_.now_ns();
  state.metrics.running.Add(-1);
  if (end != AttemptEnd::kCancelled) state.metrics.ForStatus(final_status_).Increment();
  state.metrics.duration_s.Observe(static_cast<double>(now_ns - arrived_ns_) * 1e-9);
  if (state.access_log != nullptr) {
    state.access_log->Add(
        {.request_id = request_id_,
         .method = method_,
         .path = path_,
         .model = model_,
         .worker = worker_url_,
         .key_id = key_index_ ? std::string_view(keys_->keys[*key_index_].id) : std::string_view(),
         .status = final_status_,
         .retries = retries_ + unsent_,
         .first_byte_ms =
             first_byte_ns_ == 0 ? 0.0 : static_cast<double>(first_byte_ns_ - arrived_ns_) * 1e-6,
         .total_ms = static_cast<double>(now_ns - arrived_ns_) * 1e-6,
         .bytes_in = bytes_in_,
         .bytes_out = bytes_out_,
         .end = EndName(end)});
  }
  lane_.Remove(id_);
}

}  // namespace hayate::gateway
