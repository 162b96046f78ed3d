// From the worker to the client. The rest of Exchange is in exchange.cc.

#include <charconv>
#include <utility>

#include "base/error.h"
#include "gateway/lane.h"

namespace hayate::gateway {
namespace {

// A body up to here is relayed when it is whole.
constexpr uint64_t kMaxHeldBytes = 256 << 10;
// The same when a prompt's log-probabilities are to be put in.
constexpr uint64_t kMaxMergedBytes = 64 << 20;
// Beyond it the worker waits until the client has taken everything.
constexpr size_t kMaxUnsentBytes = 256 << 10;
constexpr int64_t kCrossingNs = 1'000'000'000;

std::optional<uint64_t> LengthOf(http::HeaderView headers) {
  const auto text = headers.Find("content-length");
  if (!text) return std::nullopt;
  uint64_t length = 0;
  std::from_chars(text->data(), text->data() + text->size(), length);
  return length;
}

ErrorReply ReplyFor(AttemptEnd end, std::string_view what) {
  if (end == AttemptEnd::kTimeout) {
    return {.status = 504,
            .code = "upstream_timeout",
            .message = fmt::format("the worker did not answer in time ({})", what)};
  }
  if (end == AttemptEnd::kNoConnection) {
    return {.status = 502,
            .code = "upstream_unreachable",
            .message = fmt::format("the worker cannot be reached ({})", what)};
  }
  return {.status = 502,
          .code = "upstream_body_incomplete",
          .message = fmt::format("the worker failed while it answered ({})", what)};
}

}  // namespace

http::ResponseHandlers Exchange::MainHandlers() {
  http::ResponseHandlers handlers;
  handlers.on_head = [this](int status, http::HeaderView headers) { OnHead(status, headers); };
  handlers.on_data = [this](std::string_view bytes) { OnData(bytes); };
  handlers.on_done = [this](const Status& status) { OnDone(status); };
  if (rest_) handlers.on_drained = [this] { OnMainDrained(); };
  return handlers;
}

void Exchange::OnHead(int status, http::HeaderView headers) {
  main_.answered = true;
  const AttemptEnd end = EndOfStatus(status, headers.Find("retry-after").has_value());
  if (end != AttemptEnd::kOk && TryAgain(end)) return;
  EndLeg(hedge_, AttemptEnd::kCancelled);
  status_ = status;
  answer_end_ = end;
  answer_fields_.Assign(headers, lane_.state().options.headers, request_id_);
  answer_bytes_ = LengthOf(headers);
  const std::string_view type = headers.Find("content-type").value_or("");
  events_ = status == 200 && type.starts_with("text/event-stream");
  held_ = !events_ && (method_ == "HEAD" || answer_bytes_.value_or(0) <= MaxHeldBytes());
  if (!WaitsForPrefill()) return;
  if (status >= 400) {
    // Decode refused: prefill would wait for it in vain.
    EndLeg(prefill_, AttemptEnd::kCancelled);
  } else {
    main_.client->Pause(main_.fetch);
  }
}

size_t Exchange::MaxHeldBytes() const {
  const bool merges = body_fields_.return_logprob && (prefill_.lease || prompt_logprobs_);
  return merges ? kMaxMergedBytes : kMaxHeldBytes;
}

void Exchange::OnFirstByte() {
  first_byte_ns_ = lane_.now_ns();
  State& state = lane_.state();
  state.metrics.first_byte_s.Observe(static_cast<double>(first_byte_ns_ - arrived_ns_) * 1e-9);
  if (!main_.lease || !events_) return;
  std::lock_guard lock(state.mutex);
  state.router.OnFirstByte(*main_.lease);
}

void Exchange::OnData(std::string_view bytes) {
  if (WaitsForPrefill()) {
    // What was read with the head; the rest waits in the kernel.
    held_body_.append(bytes);
    return;
  }
  Relay(bytes);
}

void Exchange::Relay(std::string_view bytes) {
  if (first_byte_ns_ == 0) OnFirstByte();
  bytes_out_ += bytes.size();
  if (events_) return RelayEvents(bytes);
  if (held_) {
    held_body_.append(bytes);
    if (held_body_.size() <= MaxHeldBytes()) return;
    held_ = false;
    BeginStream();
    writer_.Write(std::exchange(held_body_, {}));
  } else {
    if (!begun_) BeginStream();
    writer_.Write(bytes);
  }
  HoldBack();
}

void Exchange::RelayEvents(std::string_view bytes) {
  events_out_.clear();
  boundary_.Take(bytes, events_out_);
  if (events_out_.empty()) return;
  if (!begun_) BeginStream();
  ++num_events_;
  if (prompt_logprobs_) {
    merged_events_.clear();
    prompt_logprobs_->MergeEvents(events_out_, merged_events_);
    merged_events_.swap(events_out_);
  }
  writer_.Write(events_out_);
  HoldBack();
}

void Exchange::BeginStream() {
  begun_ = true;
  stage_ = Stage::kRelaying;
  final_status_ = status_;
  const std::vector<http::Header> headers = answer_fields_.View();
  writer_.BeginStream({.status = status_,
                       .headers = headers,
                       .content_length = events_ ? std::nullopt : answer_bytes_});
}

// A slow client slows its own stream alone: its worker's connection is no longer read.
void Exchange::HoldBack() {
  if (held_back_ || main_.fetch == 0 || writer_.pending_bytes() <= kMaxUnsentBytes) return;
  held_back_ = true;
  main_.client->Pause(main_.fetch);
  writer_.OnDrained([this] {
    held_back_ = false;
    if (main_.fetch != 0) main_.client->Resume(main_.fetch);
  });
}

void Exchange::OnDone(const Status& status) {
  main_.fetch = 0;
  if (!status.ok()) return OnFailed(status);
  if (WaitsForPrefill()) {
    pending_done_ = true;
    return;
  }
  Complete();
}

void Exchange::Complete() {
  if (first_byte_ns_ == 0) OnFirstByte();
  if (events_) {
    const std::string tail = boundary_.TakeHeld();
    if (!begun_) BeginStream();
    writer_.Write(tail);
    writer_.End();
  } else if (held_) {
    if (prompt_logprobs_) prompt_logprobs_->MergeInto(held_body_);
    final_status_ = status_;
    const std::vector<http::Header> headers = answer_fields_.View();
    writer_.Send({.status = status_, .headers = headers, .content_length = answer_bytes_},
                 held_body_);
  } else {
    if (!begun_) BeginStream();
    writer_.End();
  }
  Finish(answer_end_);
}

AttemptEnd Exchange::EndOfFailure(const Leg& leg, const Status& status) const {
  if (leg.sent_ns == 0) return AttemptEnd::kNoConnection;
  if (status.code() == ErrorCode::kDeadlineExceeded) return AttemptEnd::kTimeout;
  // Its hang-up and the request crossed on the wire; later the worker has broken its word.
  const bool crossed = lane_.now_ns() - leg.sent_ns < kCrossingNs;
  if (leg.reused && !leg.answered && crossed && status.code() == ErrorCode::kUnavailable) {
    return AttemptEnd::kStale;
  }
  return AttemptEnd::kBroken;
}

void Exchange::OnFailed(const Status& status) {
  const AttemptEnd end = EndOfFailure(main_, status);
  if (TryAgain(end)) return;
  FailWith(ReplyFor(end, status.message()), end);
}

// Mid-answer: a stream says so in an event, anything else is cut so that it cannot pass for whole.
void Exchange::BreakStream(AttemptEnd end) {
  if (!events_) {
    writer_ = http::ResponseWriter(nullptr);
    return;
  }
  lane_.state().metrics.broken_streams.Increment();
  ErrorReply error = ReplyFor(end, "the answer is incomplete; send the request again");
  std::string out(boundary_.Closing());
  out += ErrorEvent(error, route_.dialect);
  writer_.Write(out);
  writer_.End();
}

}  // namespace hayate::gateway
