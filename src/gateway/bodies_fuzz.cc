// Request bodies, streams and discovery answers as hostile bytes: what is found stays inside them,
// prefixes agree with wholes, splices keep every byte, and nothing depends on how a stream is cut.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "gateway/api_keys.h"
#include "gateway/discovery.h"
#include "gateway/event_boundary.h"
#include "gateway/kube_store.h"
#include "gateway/own_routes.h"
#include "gateway/pd_body.h"
#include "gateway/worker_facts.h"
#include "text/body_scan.h"

namespace hayate::gateway {
namespace {

using text::BodyFields;
using text::ScanBody;
using text::Unescape;

void CheckInside(std::string_view whole, std::string_view part) {
  if (part.empty()) return;
  CHECK(part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void Scan(std::string_view body) {
  // A copy of exact size, so that a read past the end is caught.
  const std::string text(body);
  const BodyFields fields = ScanBody(text);
  CheckInside(text, fields.model);
  CheckInside(text, fields.prompt);
  CHECK_LE(fields.insert_at, text.size());
  CHECK(!fields.complete || fields.is_object);
  std::string storage;
  CHECK_LE(Unescape(fields.model, storage).size(), fields.model.size());
  const std::vector<uint64_t> rooms(RoomsFor(fields, true) % 8 + 1, 7);
  const std::string splice =
      RendezvousSplice({.host = "h", .port = 1}, rooms, rooms.size() > 1, fields.empty);
  CHECK(splice.starts_with("\"bootstrap_host\""));
  std::string merged = text;
  const PromptLogprobs logprobs(std::string_view(text).substr(0, text.size() / 2));
  logprobs.MergeInto(merged);
  CHECK(merged.size() > text.size() || merged == text);
  std::string events;
  logprobs.MergeEvents(text, events);
  CHECK(events.size() > text.size() || events == text);
}

void Stream(std::string_view bytes, size_t step) {
  EventBoundary boundary;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += step) {
    boundary.Take(bytes.substr(at, step), out);
    CHECK(boundary.Closing() != "" || LastEventEnd(out) == out.size());
  }
  CHECK(out + boundary.TakeHeld() == bytes);
}

void Documents(std::string_view text) {
  (void)ParseApiKeys(text);
  (void)ParseWorkerFile(text);
  (void)ParseWorkerSpec(text);
  WorkerFacts facts;
  ReadServerInfo(text, facts);
  ReadModelList(text, facts);
  (void)ReadLoads(text, -1, 1);
  (void)ReadLoads(text, 1, 1);
  (void)ReadCacheChanges(text);
  const KubeOptions options;
  KubeStore store(options, WorkerRole::kRegular);
  (void)store.ApplyList(text);
  (void)store.ApplyEvent(text);
  (void)store.WatchPath("a=b");
}

}  // namespace
}  // namespace hayate::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  hayate::gateway::Scan(text);
  hayate::gateway::Stream(text, size % 7 + 1);
  hayate::gateway::Documents(text);
  return 0;
}
