// A prefill/decode pair: the same request to both, one answer.

#include <utility>

#include "gateway/lane.h"
#include "gateway/pd_body.h"

namespace hayate::gateway {
namespace {

// Of prefill's answer: log-probabilities of a long prompt.
constexpr size_t kMaxPrefillBody = 64 << 20;

}  // namespace

void Exchange::StartPair(Lease prefill, Lease decode) {
  prefill_.lease = std::move(prefill);
  main_.lease = std::move(decode);
  std::shared_ptr<const Target> prefill_target;
  std::shared_ptr<const Target> decode_target;
  {
    std::lock_guard lock(lane_.state().mutex);
    prefill_target = lane_.state().targets[prefill_.lease->worker];
    decode_target = lane_.state().targets[main_.lease->worker];
  }
  if (prefill_target == nullptr || decode_target == nullptr) {
    return OnFailed(Status(ErrorCode::kUnavailable, "the worker is gone"));
  }
  if (!body_fields_.is_object || rest_) {
    return FailWith({.status = 400,
                     .code = "bad_request",
                     .message = "a prefill/decode pair needs a whole JSON object as body"},
                    AttemptEnd::kCancelled);
  }
  std::vector<uint64_t> rooms(RoomsFor(body_fields_, path_ == "/v1/chat/completions"));
  for (uint64_t& room : rooms) room = lane_.rng().NextU64() >> 1;
  const http::Endpoint& host = prefill_target->endpoint;
  const std::string shown =
      host.host.find(':') == std::string::npos ? host.host : "[" + host.host + "]";
  const bool arrays = rooms.size() > 1 || body_fields_.batch > 0;
  const std::string splice =
      RendezvousSplice({.host = shown, .port = prefill_.lease->spec->bootstrap_port}, rooms, arrays,
                       body_fields_.empty);
  const int prefill_rank = prefill_.lease->spec->dp_rank;
  const int decode_rank = main_.lease->spec->dp_rank;

  http::ClientRequest request = RequestFor(*prefill_.lease->spec, *prefill_target);
  request.shared_body = BodyWith(RankSplice({.rank = prefill_rank}, RankField::kPairLeg) + splice);
  http::ResponseHandlers handlers;
  handlers.on_head = [this](int status, http::HeaderView headers) {
    OnPrefillHead(status, headers);
  };
  handlers.on_data = [this](std::string_view bytes) {
    if (prefill_body_.size() + bytes.size() <= kMaxPrefillBody) prefill_body_.append(bytes);
  };
  handlers.on_done = [this](const Status& status) { OnPrefillDone(status); };
  Send(prefill_, std::move(prefill_target), std::move(request), std::move(handlers));

  request = RequestFor(*main_.lease->spec, *decode_target);
  request.shared_body = BodyWith(
      RankSplice({.rank = decode_rank, .prefill_rank = prefill_rank}, RankField::kPairLeg) +
      splice);
  Send(main_, std::move(decode_target), std::move(request), MainHandlers());
}

void Exchange::OnPrefillHead(int status, http::HeaderView headers) {
  prefill_.answered = true;
  prefill_status_ = status;
  prefill_busy_ = headers.Find("retry-after").has_value();
}

void Exchange::OnPrefillDone(const Status& status) {
  prefill_.fetch = 0;
  if (!status.ok()) return PrefillFailed(EndOfFailure(prefill_, status));
  if (prefill_status_ >= 300) return PrefillFailed(EndOfStatus(prefill_status_, prefill_busy_));
  EndLeg(prefill_, AttemptEnd::kOk);
  prefill_ok_ = true;
  if (body_fields_.return_logprob) prompt_logprobs_.emplace(prefill_body_);
  if (!body_fields_.return_logprob || prompt_logprobs_->empty()) ForgetPrefillBody();
  const std::string early = std::exchange(held_body_, {});
  if (!early.empty()) Relay(early);
  if (pending_done_) return Complete();
  if (main_.answered && main_.fetch != 0) main_.client->Resume(main_.fetch);
}

void Exchange::ForgetPrefillBody() {
  prompt_logprobs_.reset();
  prefill_body_.clear();
}

// Decode waits for a cache that will never come: it is cancelled with its partner.
void Exchange::PrefillFailed(AttemptEnd end) {
  const int status = prefill_status_;
  const std::string body = prefill_body_;
  // Each leg is charged with its own end; TryAgain would charge decode.
  tried_.push_back(prefill_.lease->worker);
  EndLeg(prefill_, end);
  if (end == AttemptEnd::kOk) {
    // The request is at fault: prefill's answer says how.
    final_status_ = status;
    writer_.Send({.status = status, .content_type = "application/json"}, body);
    return Finish(AttemptEnd::kCancelled);
  }
  EndLeg(main_, AttemptEnd::kCancelled);
  if (TryAgain(end)) return;
  FailWith({.status = end == AttemptEnd::kTimeout ? 504 : 502,
            .code = "prefill_error",
            .message = "the prefill worker failed; decode was cancelled"},
           end);
}

}  // namespace hayate::gateway
