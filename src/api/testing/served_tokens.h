#pragma once
// The whole front end, sockets included, over the simulated engine, or over none: then tokens come
// when they are told to.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/exchange_table.h"
#include "api/service.h"
#include "api/testing/byte_model.h"
#include "base/clock.h"
#include "engine/testing/world.h"
#include "http/server.h"

namespace hayate::api::testing {

class ServedTokens {
 public:
  // Answers and prompts of at most `max_context` tokens.
  explicit ServedTokens(int32_t max_context = kMaxContext)
      : world_({.total_tokens = 8 * max_context,
                .max_context = max_context,
                .vocab_size = kVocabSize,
                .outbox_capacity = 1 << 20,
                .wake = [this] { table_.Signal(); }}),
        server_(std::move(*http::Server::Create({}))),
        table_(*server_->threads()[0], 1) {
    table_.SetOutbox(world_.outbox_);
    ServedModel model = ByteModel();
    model.max_context = max_context;
    service_ = std::make_unique<Service>(
        ServiceOptions{},
        Service::Parts{.model = std::move(model),
                       .client = world_.client_.get(),
                       .registry = &world_.registry_,
                       .step_log = &world_.step_log_,
                       .clock = &clock_,
                       .tables = {&table_},
                       .access = std::move(*AccessControl::Create({})),
                       .read_weights = [](const std::string&, int64_t) -> Result<std::string> {
                         return Status(ErrorCode::kNotFound, "there are no weights");
                       },
                       .update_weights =
                           [](const WeightUpdateRequest&) {
                             return Status(ErrorCode::kNotFound, "there are no weights");
                           }});
    (void)server_->Start([this](http::Request& request, http::ResponseWriter writer) {
      service_->Handle(request, std::move(writer));
    });
  }
  ~ServedTokens() { Close(); }
  void StartEngine() {
    world_.engine_->Start();
    engine_runs_ = true;
  }
  // Cuts every connection.
  void Close() {
    if (std::exchange(engine_runs_, false)) world_.engine_->Stop(0);
    (void)server_->Shutdown(std::chrono::milliseconds(0));
    service_->Stop();
  }

  uint16_t port() const { return server_->port(); }
  http::IoThread& thread() { return *server_->threads()[0]; }
  engine::Client& client() { return *world_.client_; }

  // Where the engine does not run: waits until so many requests have come, and keeps them.
  void Await(size_t num_requests) {
    engine::InboxBatch batch;
    while (requests_.size() < num_requests) {
      world_.inbox_.Wait(std::nullopt);
      world_.inbox_.Drain(batch);
      for (const Request& request : batch.requests) requests_.push_back(request.id);
    }
  }
  // A step: this token for every one of them.
  void Step(TokenId token) {
    for (const RequestId id : requests_) events_.push_back({.id = id, .tokens = {token}});
    std::vector<RequestId> refused;
    world_.outbox_.Push(events_, refused);
    CHECK(refused.empty()) << "the http thread is far behind";
  }

 private:
  engine::testing::World world_;
  SteadyClock clock_;
  std::unique_ptr<http::Server> server_;
  ExchangeTable table_;
  std::unique_ptr<Service> service_;
  bool engine_runs_ = false;
  std::vector<RequestId> requests_;
  std::vector<TokenEvent> events_;
};

}  // namespace hayate::api::testing
