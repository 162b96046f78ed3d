#pragma once
// Who answers in a chat: a model in this process, or a server.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "app/local_answer.h"
#include "app/model_options.h"
#include "app/server_address.h"
#include "base/status.h"

namespace hayate::app {

// What the user asked for; the rest is the partner's choice.
struct ChatSampling {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> max_tokens;
  std::optional<int64_t> seed;
};

class ChatPartner {
 public:
  virtual ~ChatPartner() = default;
  // Blocks until the answer is complete; `on_text` gets it piece by piece on the calling thread.
  // kCancelled after Stop(): the pieces so far stand.
  virtual Result<AnswerStats> Reply(const Conversation& conversation,
                                    const std::function<void(std::string_view)>& on_text) = 0;
  // Any thread. Ends the answer under way.
  virtual void Stop() = 0;
};

Result<std::unique_ptr<ChatPartner>> MakeLocalPartner(const ModelOptions& model,
                                                      const ChatSampling& sampling);

struct RemotePartnerOptions {
  ServerAddress address;
  std::string api_key;
  std::string model;  // empty: the first that the server lists
  ChatSampling sampling;
};
Result<std::unique_ptr<ChatPartner>> MakeRemotePartner(const RemotePartnerOptions& options);

}  // namespace hayate::app
