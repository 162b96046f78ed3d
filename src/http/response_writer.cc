#include "http/response_writer.h"

#include <utility>

#include "base/check.h"
#include "http/detail/connection.h"
#include "http/detail/exchange.h"
#include "http/detail/response_format.h"

namespace hayate::http {

ResponseWriter& ResponseWriter::operator=(ResponseWriter&& other) {
  Release();
  exchange_ = std::move(other.exchange_);
  return *this;
}

void ResponseWriter::Release() {
  if (exchange_ == nullptr) return;
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  exchange->on_close = nullptr;
  exchange->on_drained = nullptr;
  if (exchange->connection == nullptr) return;
  if (exchange->phase == Exchange::Phase::kUnanswered) {
    exchange->connection->SendUnanswered();
  } else {
    exchange->connection->Cut();
  }
}

void ResponseWriter::Send(const ResponseMeta& meta, std::string_view body) {
  CHECK(exchange_->phase == Exchange::Phase::kUnanswered) << "answered twice";
  exchange_->phase = Exchange::Phase::kFinished;
  if (exchange_->connection != nullptr) exchange_->connection->Send(meta, body);
}

void ResponseWriter::BeginStream(const ResponseMeta& meta) {
  CHECK(exchange_->phase == Exchange::Phase::kUnanswered) << "answered twice";
  exchange_->phase = Exchange::Phase::kStreaming;
  if (exchange_->connection != nullptr) exchange_->connection->BeginStream(meta);
}

void ResponseWriter::Write(std::string_view bytes) {
  CHECK(exchange_->phase == Exchange::Phase::kStreaming) << "Write outside a stream";
  if (exchange_->connection != nullptr) exchange_->connection->WriteStream(bytes);
}

void ResponseWriter::End() {
  CHECK(exchange_->phase == Exchange::Phase::kStreaming) << "End outside a stream";
  exchange_->phase = Exchange::Phase::kFinished;
  if (exchange_->connection != nullptr) exchange_->connection->EndStream();
}

void ResponseWriter::AddField(std::string_view name, std::string_view value) {
  AppendField(exchange_->fields, name, value);
}

void ResponseWriter::OnFinish(std::function<void(const Answered&)> callback) {
  exchange_->on_finish = std::move(callback);
}

bool ResponseWriter::closed() const { return exchange_->closed; }

void ResponseWriter::OnClose(std::function<void()> callback) {
  exchange_->on_close = std::move(callback);
}

void ResponseWriter::OnDrained(std::function<void()> callback) {
  exchange_->on_drained = std::move(callback);
}

size_t ResponseWriter::pending_bytes() const {
  return exchange_->connection == nullptr ? 0 : exchange_->connection->pending_bytes();
}

}  // namespace hayate::http
