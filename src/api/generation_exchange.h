#pragma once
// One HTTP exchange that generates text: from prepared prompts to the last byte. Submits a request
// a choice, turns their events into the dialect's bytes, cancels what nobody waits for any more.
// Owner: the http thread of the exchange; its ExchangeTable holds it.

#include <memory>
#include <string>
#include <vector>

#include "api/choice.h"
#include "api/formatter.h"
#include "api/live_requests.h"
#include "api/prepare.h"
#include "api/request_log.h"
#include "api/session_table.h"
#include "base/rng.h"
#include "core/token_event.h"
#include "engine/client.h"
#include "http/response_writer.h"

namespace hayate::api {

class GenerationExchange {
 public:
  struct Parts {
    std::shared_ptr<RequestRecord> record;  // for the logs; null: nobody asks
    SessionTable* sessions;
    std::shared_ptr<const GenerationSpec> spec;
    const ServedModel* model;
    engine::Client* client;
    LiveRequests* live;
    ResponseStore* responses;  // of Dialect::kResponses
    int32_t outbox;            // of this thread
    int64_t created;           // Unix seconds
    uint64_t call_seed;        // random
  };
  GenerationExchange(Parts parts, std::string id, http::ResponseWriter writer);
  // Cancels what still runs.
  ~GenerationExchange();

  // Submits everything. `on_submitted(request, choice)` learns which events will come. False when
  // the exchange is over (an error was sent).
  template <typename OnSubmitted>
  bool Start(PreparedGeneration prepared, Rng& seeds, OnSubmitted on_submitted) {
    if (!ClaimNames()) return false;
    prompts_ = std::move(prepared.prompts);
    grammar_ = std::move(prepared.grammar);
    MakeChoices();
    const uint64_t fresh_seed = seeds.NextU64();
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (!SubmitChoice(i, fresh_seed)) return false;
      on_submitted(requests_[i], i);
    }
    return true;
  }

  // From here on the answer is made whether or not its client stays: what it has to say goes to the
  // store. A client that follows no stream is given `receipt` and dismissed.
  void Detach(std::string_view receipt);
  bool detached() const { return detached_; }

  // The prompts could not be prepared, or there was no room for the work.
  void Fail(const Status& status);

  // One event of choice `index`. Bytes wait for Flush.
  void OnEvent(size_t index, TokenEvent& event);
  // Writes what gathered; true once the exchange is complete.
  bool Flush();

  http::ResponseWriter& writer() { return writer_; }

 private:
  bool ClaimNames();
  void MakeChoices();
  // `fresh_seed` serves requests that name none.
  bool SubmitChoice(size_t index, uint64_t fresh_seed);
  bool EndsWithError(const ChoiceDelta& delta) const;
  // Adds a choice's next piece to the stream, or keeps it until its event is due.
  void Stream(size_t index, ChoiceDelta delta);
  // What waits for its event, before the stream ends too soon.
  void StreamHeld();
  Usage CountUsage() const;
  ChoiceView View(size_t index);
  // The choices of a whole answer: all, or the best of each prompt.
  std::vector<ChoiceView> ShownViews();
  void CancelRest();
  // What the logs say of it, before the answer goes out.
  void Note();
  // The session's turn is over: it may be gone on from.
  void EndTurn();

  Parts parts_;
  std::string id_;
  std::vector<std::string> names_;  // id_, then one a prompt where prompts have their own
  http::ResponseWriter writer_;
  std::unique_ptr<Formatter> formatter_;
  std::vector<PreparedPrompt> prompts_;
  std::shared_ptr<const grammar::CompiledGrammar> grammar_;  // null: answers are free
  std::vector<Choice> choices_;                              // prompt p's choice c at p × n + c
  std::vector<RequestId> requests_;                          // submitted, by choice
  // What the stream has not told yet, by choice; begun: something was told.
  struct Held {
    ChoiceDelta delta;
    bool begun = false;
  };
  std::vector<Held> held_;
  size_t num_ended_ = 0;
  std::vector<TokenId> turn_output_;  // of a session's turn
  bool turn_ended_ = false;
  bool names_claimed_ = false;
  bool streaming_ = false;  // the head is out
  bool over_ = false;
  bool detached_ = false;
  std::string out_;  // bytes for the next Flush
};

}  // namespace hayate::api
