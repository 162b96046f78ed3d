// The rest of a body that was too large to hold, from the client to the worker.

#include <utility>

#include "gateway/lane.h"

namespace hayate::gateway {
namespace {

constexpr size_t kMaxUnsentUpload = 256 << 10;
// What is in the pipe is to leave it before more comes in.
constexpr size_t kMaxUnsentPiped = 0;

}  // namespace

void Exchange::OnMainDrained() {
  if (!rest_) return;
  if (upload_started_) {
    if (!upload_paused_) return;
    upload_paused_ = false;
    rest_->Resume();
    return;
  }
  // From here on bytes are gone for good: no other worker can be tried.
  upload_started_ = true;
  if (auto pipe = main_.client->UploadPipe(main_.fetch)) {
    rest_->PipeInto(std::move(pipe), [this](size_t num_bytes) {
      bytes_in_ += num_bytes;
      if (main_.fetch == 0) return;
      main_.client->WritePiped(main_.fetch);
      PauseUploadOver(kMaxUnsentPiped);
    });
  }
  rest_->Start(
      [this](std::string_view bytes) {
        bytes_in_ += bytes.size();
        if (main_.fetch == 0) return;
        main_.client->Write(main_.fetch, bytes);
        PauseUploadOver(kMaxUnsentUpload);
      },
      [this](const Status& status) { OnUploadEnd(status); });
}

void Exchange::PauseUploadOver(size_t max_unsent) {
  if (upload_paused_ || main_.client->pending_bytes(main_.fetch) <= max_unsent) return;
  upload_paused_ = true;
  rest_->Pause();
}

void Exchange::OnUploadEnd(const Status& status) {
  if (status.ok()) {
    if (main_.fetch != 0) main_.client->EndBody(main_.fetch);
    return;
  }
  int code = 400;
  if (status.code() == ErrorCode::kPayloadTooLarge) code = 413;
  if (status.code() == ErrorCode::kDeadlineExceeded) code = 408;
  FailWith({.status = code, .code = "invalid_body", .message = status.message()},
           AttemptEnd::kCancelled);
}

}  // namespace hayate::gateway
