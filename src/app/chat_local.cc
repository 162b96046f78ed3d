// The model in this process as a chat partner.

#include <random>
#include <utility>

#include "app/chat_partner.h"

namespace hayate::app {
namespace {

constexpr float kDefaultTemperature = 0.6f;
constexpr float kDefaultTopP = 0.95f;
constexpr int32_t kDefaultMaxTokens = 4096;

class LocalPartner final : public ChatPartner {
 public:
  LocalPartner(std::unique_ptr<LocalAnswer> local, const ChatSampling& sampling)
      : local_(std::move(local)), sampling_(sampling) {}

  Result<AnswerStats> Reply(const Conversation& conversation,
                            const std::function<void(std::string_view)>& on_text) override {
    ASSIGN_OR_RETURN(const std::string prompt, local_->RenderChat(conversation));
    SamplingParams params;
    params.temperature = static_cast<float>(sampling_.temperature.value_or(kDefaultTemperature));
    params.top_p = static_cast<float>(sampling_.top_p.value_or(kDefaultTopP));
    params.max_new_tokens = sampling_.max_tokens.value_or(kDefaultMaxTokens);
    params.seed =
        sampling_.seed ? static_cast<uint64_t>(*sampling_.seed) : uint64_t{std::random_device{}()};
    return local_->Answer(prompt, std::move(params), on_text);
  }

  void Stop() override { local_->Stop(); }

 private:
  std::unique_ptr<LocalAnswer> local_;
  const ChatSampling sampling_;
};

}  // namespace

Result<std::unique_ptr<ChatPartner>> MakeLocalPartner(const ModelOptions& model,
                                                      const ChatSampling& sampling) {
  ASSIGN_OR_RETURN(auto local, LocalAnswer::Create(model));
  return std::unique_ptr<ChatPartner>(std::make_unique<LocalPartner>(std::move(local), sampling));
}

}  // namespace hayate::app
