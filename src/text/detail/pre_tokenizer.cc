#include "text/detail/pre_tokenizer.h"

#include "base/error.h"
#include "text/detail/normalizer.h"

namespace hayate::text {
namespace {

struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin == end; }
};

// Joins the alternating gaps and matches of a split into pieces, as the behaviour says.
template <typename Emit>
class Joiner {
 public:
  Joiner(SplitBehavior behavior, Emit emit) : behavior_(behavior), emit_(std::move(emit)) {}

  void Add(Range range, bool is_match) {
    if (range.empty()) return;
    if (behavior_ == SplitBehavior::kIsolated) return emit_(range);
    if (behavior_ == SplitBehavior::kRemoved) return is_match ? void() : emit_(range);
    if (!held_.empty() && Joins(is_match)) {
      held_.end = range.end;
    } else {
      Finish();
      held_ = range;
    }
    last_is_match_ = is_match;
  }
  void Finish() {
    if (!held_.empty()) emit_(held_);
    held_ = {};
  }

 private:
  // Whether a range belongs to the one before it.
  bool Joins(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious:
        return is_match && !last_is_match_;
      case SplitBehavior::kMergedWithNext:
        return !is_match && last_is_match_;
      default:
        return is_match == last_is_match_;
    }
  }

  SplitBehavior behavior_;
  Emit emit_;
  Range held_;
  bool last_is_match_ = false;
};

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerStep& step : steps) {
    std::optional<Regex> pattern;
    if (const auto* split = std::get_if<SplitText>(&step)) {
      ASSIGN_OR_RETURN(pattern, Regex::Compile(split->pattern));
    }
    pre_tokenizer.steps_.push_back({step, std::move(pattern)});
  }
  return pre_tokenizer;
}

Status PreTokenizer::Run(Stretch stretch, const RegexScratch& scratch, PieceSink& sink) const {
  Pass pass{scratch, sink};
  RunFrom(0, stretch, pass);
  if (!pass.too_many_steps) return OkStatus();
  return Error(ErrorCode::kInvalidArgument,
               "the pre-tokenizer's pattern backtracks too long on this text");
}

void PreTokenizer::RunFrom(size_t step, Stretch stretch, Pass& pass) const {
  if (stretch.text.empty()) return;
  if (step == steps_.size()) return pass.sink.Take(stretch.text);
  const PreTokenizerStep& rule = steps_[step].rule;
  if (std::holds_alternative<SplitText>(rule)) return RunSplit(step, stretch, pass);

  if (const auto* prefix = std::get_if<EnsurePrefix>(&rule)) {
    const bool wanted = prefix->when == PrefixWhen::kAlways || stretch.at_start;
    if (!wanted || stretch.text.starts_with(prefix->prefix))
      return RunFrom(step + 1, stretch, pass);
    const std::string prefixed = prefix->prefix + std::string(stretch.text);
    return RunFrom(step + 1, {prefixed, stretch.at_start}, pass);
  }
  std::string substituted(stretch.text);
  Substitute(std::get<SubstituteText>(rule), substituted);
  RunFrom(step + 1, {substituted, stretch.at_start}, pass);
}

void PreTokenizer::RunSplit(size_t step, Stretch stretch, Pass& pass) const {
  const auto& rule = std::get<SplitText>(steps_[step].rule);
  const std::string_view text = stretch.text;
  Joiner joiner(rule.behavior, [&](Range range) {
    RunFrom(
        step + 1,
        {text.substr(range.begin, range.end - range.begin), stretch.at_start && range.begin == 0},
        pass);
  });
  const bool matches_are_matches = rule.at == SplitAt::kMatches;
  size_t done = 0;
  while (done < text.size() && !pass.too_many_steps) {
    const Regex::Match match = steps_[step].pattern->Find(text, done, pass.scratch);
    pass.too_many_steps |= match.outcome == Regex::Outcome::kTooManySteps;
    if (match.outcome != Regex::Outcome::kMatch) break;
    joiner.Add({done, match.begin}, !matches_are_matches);
    joiner.Add({match.begin, match.end}, matches_are_matches);
    done = match.end;
  }
  joiner.Add({done, text.size()}, !matches_are_matches);
  joiner.Finish();
}

}  // namespace hayate::text
