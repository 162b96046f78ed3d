#pragma once
// How a streamed generation is asked for and read back in each dialect that a load test speaks.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/workload.h"
#include "http/client.h"

namespace hayate::bench {

enum class StreamDialect {
  kCompletions,  // POST /v1/completions
  kChat,         // POST /v1/chat/completions; text prompts only
  kGenerate,     // POST /generate, SGLang's own
};

// The dialect of an SGLang backend name: "openai" and "sglang-oai" are completions,
// "sglang-oai-chat" chat, "sglang" generate. kInvalidArgument lists the names.
Result<StreamDialect> ParseBackend(std::string_view backend);
// All names of ParseBackend.
std::vector<std::string> BackendNames();

struct DialectOptions {
  StreamDialect dialect = StreamDialect::kCompletions;
  std::string base_path;  // before "/v1/…"; no slash at its end
  std::string model;
  std::string api_key;  // none when empty
  bool ignore_eos = true;
  double temperature = 0.0;
  std::string extra_body;  // a JSON object whose members are added to every body, or empty
};

// kInvalidArgument unless `text` is a JSON object.
Status CheckExtraBody(std::string_view text);

http::ClientRequest MakeStreamRequest(const DialectOptions& options, const PlannedRequest& request);

// What one event of the stream says.
struct StreamEvent {
  bool has_text = false;  // carries generated text
  bool finished = false;  // [DONE], or a finish reason
  // Cumulative counts, where the event has them.
  std::optional<int32_t> prompt_tokens, completion_tokens, cached_tokens;
  std::string error;  // the server's message
};

class StreamEventReader {
 public:
  explicit StreamEventReader(StreamDialect dialect);
  ~StreamEventReader();
  // `data` of an SSE event. kDataLoss: not the JSON of the dialect.
  Result<StreamEvent> Read(std::string_view data);

 private:
  struct Impl;
  StreamDialect dialect_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayate::bench
