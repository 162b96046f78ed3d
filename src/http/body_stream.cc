#include "http/body_stream.h"

#include <utility>

#include "http/detail/connection.h"
#include "http/detail/exchange.h"

namespace hayate::http {

BodyStream& BodyStream::operator=(BodyStream&& other) {
  Release();
  state_ = std::move(other.state_);
  return *this;
}

void BodyStream::Release() {
  if (state_ == nullptr) return;
  state_->on_data = nullptr;
  state_->on_piped = nullptr;
  state_->on_end = nullptr;
  state_->paused = true;
  state_.reset();
}

void BodyStream::Start(std::function<void(std::string_view)> on_data,
                       std::function<void(const Status&)> on_end) {
  state_->on_data = std::move(on_data);
  state_->on_end = std::move(on_end);
  Resume();
}

void BodyStream::PipeInto(std::shared_ptr<Pipe> pipe, std::function<void(size_t)> on_piped) {
  if (state_->connection == nullptr || !state_->connection->pipeable()) return;
  state_->pipe = std::move(pipe);
  state_->on_piped = std::move(on_piped);
}

void BodyStream::Pause() { state_->paused = true; }

void BodyStream::Resume() {
  state_->paused = false;
  if (state_->connection != nullptr) state_->connection->ResumeBody();
}

}  // namespace hayate::http
