// /v1/score and /v1/rerank on the wire. Never streamed.

#include <algorithm>
#include <cmath>
#include <utility>

#include "api/answer_text.h"
#include "api/formatter.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

class ScoreFormatter final : public Formatter {
 public:
  explicit ScoreFormatter(const AnswerHead& head) : head_(head) {}

  void Open(const ChoiceView&, std::string&) override {}
  void Delta(const ChoiceView&, const ChoiceDelta&, const Usage&, std::string&) override {}
  void Close(const Usage&, std::string&) override {}

  void Gather(const ChoiceView& view, ChoiceDelta delta) override {
    if (scores_.size() <= view.index) scores_.resize(view.index + 1);
    for (const TokenLogprob& entry : delta.logprobs) {
      if (scores_[view.index].empty()) scores_[view.index] = ScoresOf(entry);
    }
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    scores_.resize(views.size());
    std::string out;
    JsonWriter json(out);
    if (head_.spec->dialect == Dialect::kRerank) {
      WriteRanking(json);
      return out;
    }
    json.BeginObject();
    json.Field("object", "scoring");
    json.Field("model", head_.model->name);
    json.Key("scores");
    json.BeginArray();
    for (const std::vector<double>& scores : scores_) {
      json.BeginArray();
      for (const double score : scores) json.Double(score);
      json.EndArray();
    }
    json.EndArray();
    json.Key("usage");
    WriteUsage(json, usage, *head_.model);
    json.EndObject();
    return out;
  }

 private:
  // Probabilities among all tokens, or among those asked for.
  std::vector<double> ScoresOf(const TokenLogprob& entry) const {
    std::vector<double> scores;
    for (const auto& [token, logprob] : entry.asked) {
      scores.push_back(std::exp(double{logprob}));
    }
    if (!head_.spec->scoring->softmax) return scores;
    // All of them may be next to impossible: the differences still count.
    double highest = -HUGE_VAL;
    for (const auto& [token, logprob] : entry.asked) highest = std::max(highest, double{logprob});
    double sum = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = std::exp(double{entry.asked[i].second} - highest);
      sum += scores[i];
    }
    for (double& score : scores) score /= sum;
    return scores;
  }

  void WriteRanking(JsonWriter& json) {
    const Scoring& scoring = *head_.spec->scoring;
    std::vector<std::pair<double, size_t>> ranking;  // score of "yes", document
    for (size_t i = 0; i < scores_.size(); ++i) {
      ranking.emplace_back(scores_[i].empty() ? 0.0 : scores_[i].front(), i);
    }
    std::ranges::stable_sort(ranking, std::greater<>(),
                             [](const auto& entry) { return entry.first; });
    if (scoring.top_n)
      ranking.resize(std::min(ranking.size(), static_cast<size_t>(*scoring.top_n)));
    json.BeginArray();
    for (const auto& [score, index] : ranking) {
      json.BeginObject();
      json.Field("score", score);
      if (scoring.return_documents) json.Field("document", scoring.documents[index]);
      json.Field("index", static_cast<int64_t>(index));
      json.EndObject();
    }
    json.EndArray();
  }

  AnswerHead head_;
  std::vector<std::vector<double>> scores_;  // by prompt; label by label
};

}  // namespace

std::unique_ptr<Formatter> MakeScoreFormatter(const AnswerHead& head) {
  return std::make_unique<ScoreFormatter>(head);
}

}  // namespace hayate::api
