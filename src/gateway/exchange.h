#pragma once
// One proxied request, from its head to the last byte of its answer. Owner: its Lane's thread.
//
//   Begin → (queued) → attempt ──answer──→ relaying → finished
//                       ↑ ↑ └─ failed, no byte relayed: DecideRetry ─→ wait ─┐
//                       │ └──────────────────────────────────────────────────┘
//                       └──→ no worker is there: the waiting room
//
// The head of an answer is held until its first byte (streams) or until it is whole (small bodies),
// so that a worker that dies in between costs a retry and not the request. An attempt has one leg,
// or two for a prefill/decode pair; then the answer is the decode leg's, held until prefill is
// done.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gateway/admission.h"
#include "gateway/error_reply.h"
#include "gateway/event_boundary.h"
#include "gateway/header_rules.h"
#include "gateway/pd_body.h"
#include "gateway/retry.h"
#include "gateway/route.h"
#include "gateway/router.h"
#include "gateway/waiting_room.h"
#include "http/client.h"
#include "http/event_loop.h"
#include "http/server.h"
#include "text/body_scan.h"

namespace hayate::gateway {

class Lane;
struct KeyTable;
struct Target;

class Exchange {
 public:
  Exchange(Lane& lane, uint64_t id, http::Request& request, http::ResponseWriter writer,
           const Route& route);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void Begin();
  void OnAdmitted();
  void OnQueueTimeout();
  void OnWorkerThere();
  // The process ends: everything is dropped, the connection cut.
  void Abandon();

 private:
  // One request to one worker.
  struct Leg {
    std::optional<Lease> lease;
    http::Client* client = nullptr;
    http::Client::RequestId fetch = 0;  // 0: none under way
    int64_t sent_ns = 0;                // 0: not yet
    bool reused = false;                // connection
    bool answered = false;              // its head came
  };
  enum class Stage : uint8_t { kNew, kQueued, kAttempt, kWaiting, kInRoom, kRelaying, kFinished };

  // exchange.cc: admission, attempts, the end.
  bool Authorise(const KeyTable& keys);
  void Enter();
  Priority ClassOf() const;
  void Refuse(const Admission::Answer& answer);
  void Attempt();
  void StartSingle(Lease lease, std::shared_ptr<const Target> target);
  void Send(Leg& leg, std::shared_ptr<const Target> target, http::ClientRequest request,
            http::ResponseHandlers handlers);
  http::ClientRequest RequestFor(const WorkerSpec& spec, const Target& target);
  // The held part of the body with `splice` behind its opening brace.
  http::ClientRequest::SharedBody BodyWith(std::string splice) const;
  // The same for a request to one worker.
  http::ClientRequest::SharedBody BodyFor(const WorkerSpec& spec) const;
  void NoWorker(const Router::Picked& picked);
  // Ends the attempt; true when another one is on its way.
  bool TryAgain(AttemptEnd end);
  void EndAttempt(AttemptEnd end);
  void EndLeg(Leg& leg, AttemptEnd end);
  void FailWith(const ErrorReply& error, AttemptEnd end);
  void OnClientGone();
  void Finish(AttemptEnd end);

  // exchange_wait.cc: the choice of workers, and the waiting room when there is none.
  using Guard = std::lock_guard<std::mutex>;  // of the State's mutex
  WaitingRoom::Pool PoolOf(const Guard& guard) const;
  // The only worker, or prefill's and then `decode` too.
  Router::Picked Choose(const WaitingRoom::Pool& pool, std::optional<Lease>& decode,
                        const Guard& guard);
  bool TakePlace(const WaitingRoom::Pool& pool, const Guard& guard);
  void LeaveRoom(const Guard& guard);
  void OnRoomTimeout();

  // exchange_answer.cc: from the worker to the client.
  http::ResponseHandlers MainHandlers();
  void OnHead(int status, http::HeaderView headers);
  void OnData(std::string_view bytes);
  void OnDone(const Status& status);
  void OnFailed(const Status& status);
  AttemptEnd EndOfFailure(const Leg& leg, const Status& status) const;
  void Relay(std::string_view bytes);
  void RelayEvents(std::string_view bytes);
  void BeginStream();
  void Complete();
  void BreakStream(AttemptEnd end);
  void HoldBack();
  size_t MaxHeldBytes() const;
  void OnFirstByte();

  // exchange_hedge.cc: a second attempt beside a slow one.
  void ArmHedge();
  void StartHedge();
  void PromoteHedge();
  void OnHedgeDone(const Status& status);

  // exchange_upload.cc: the rest of a large body.
  void OnMainDrained();
  void PauseUploadOver(size_t max_unsent);
  void OnUploadEnd(const Status& status);

  // exchange_pair.cc: prefill and decode.
  void StartPair(Lease prefill, Lease decode);
  void OnPrefillHead(int status, http::HeaderView headers);
  void OnPrefillDone(const Status& status);
  void PrefillFailed(AttemptEnd end);
  void ForgetPrefillBody();
  bool WaitsForPrefill() const { return prefill_.lease.has_value() && !prefill_ok_; }

  Lane& lane_;
  const uint64_t id_;
  const Route route_;
  http::ResponseWriter writer_;
  Stage stage_ = Stage::kNew;

  // The request.
  std::string method_;
  std::string path_;
  std::string target_;  // path and query
  std::string fields_;  // lines for the worker, without its key
  std::string client_authorization_;
  std::string x_api_key_;
  std::string request_id_;
  std::string sticky_;
  std::shared_ptr<const std::string> body_;
  std::optional<http::BodyStream> rest_;
  std::optional<uint64_t> body_bytes_;
  bool upload_started_ = false;
  bool upload_paused_ = false;
  text::BodyFields body_fields_;
  std::string model_;
  RouteKey key_;

  // Limits.
  std::shared_ptr<const KeyTable> keys_;
  std::optional<size_t> key_index_;
  std::optional<Priority> asked_priority_;
  Admission::Ticket ticket_ = 0;   // 0: not admitted
  WaitingRoom::Ticket place_ = 0;  // in the waiting room; 0: none
  std::optional<http::Timer> place_timer_;

  // The attempt.
  Leg main_;
  Leg prefill_;
  Leg hedge_;  // the first of it and main_ that answers becomes main_
  std::optional<http::Timer> hedge_timer_;
  bool hedged_ = false;  // once is enough
  bool prefill_ok_ = false;
  int prefill_status_ = 0;
  bool prefill_busy_ = false;
  std::string prefill_body_;
  std::optional<PromptLogprobs> prompt_logprobs_;  // views into it
  std::vector<WorkerId> tried_;
  int retries_ = 0;
  int unsent_ = 0;  // attempts that reached no worker
  std::optional<http::Timer> retry_timer_;

  // The answer.
  int status_ = 0;
  AttemptEnd answer_end_ = AttemptEnd::kOk;
  ResponseFields answer_fields_;
  std::optional<uint64_t> answer_bytes_;
  bool events_ = false;  // text/event-stream
  bool held_ = false;    // a small body, relayed when it is whole
  std::string held_body_;
  EventBoundary boundary_;
  std::string events_out_;     // scratch
  std::string merged_events_;  // scratch
  bool begun_ = false;         // the client has bytes
  bool held_back_ = false;     // the worker waits for the client
  bool pending_done_ = false;  // decode ended before prefill did

  // For metrics and the log.
  std::string worker_url_;
  int64_t arrived_ns_ = 0;
  int64_t first_byte_ns_ = 0;
  uint64_t bytes_in_ = 0;
  uint64_t bytes_out_ = 0;
  uint64_t num_events_ = 0;
  int final_status_ = 0;
};

}  // namespace hayate::gateway
