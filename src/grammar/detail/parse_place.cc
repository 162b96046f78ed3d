// Sees xgrammar's internals: its Earley parser and the states of one.

#include "grammar/detail/parse_place.h"

#include <earley_parser.h>
#include <xgrammar/compiler.h>

#include <algorithm>
#include <utility>

namespace hayate::grammar::detail {

// What can follow is decided by the states of the last row and, for each rule that one of them is
// in, by the states that wait for it to be completed, and so on up to the root. Rows are named by
// the order in which they are met, so the key does not depend on how long the text is.
class ParsePlace::Parser : public xgrammar::EarleyParser {
 public:
  explicit Parser(const xgrammar::Grammar& grammar) : EarleyParser(grammar) {}

  bool has_budgets() const { return has_budget_rules_ || has_char_budget_rules_; }

  bool HasTokenEdges() const {
    const auto is_token = [](const xgrammar::FSMEdge& edge) {
      return edge.IsToken() || edge.IsExcludeToken();
    };
    for (const auto& rule : grammar_->per_rule_fsms) {
      if (!rule.has_value()) continue;
      const auto& fsm = rule->GetFsm().GetFsm();
      for (int state = 0; state < fsm.NumStates(); ++state) {
        const auto edges = fsm.GetEdges(state);
        if (std::any_of(edges.begin(), edges.end(), is_token)) return true;
      }
    }
    return false;
  }

  bool WriteKey(std::vector<int32_t>& key) {
    constexpr size_t kMaxWords = 2048;
    key.assign(1, IsCompleted() ? 1 : 0);
    occurrences_.clear();
    for (const auto& state : scanable_state_history_[scanable_state_history_.size() - 1]) {
      WriteState(state, key);
    }
    for (size_t i = 0; i < occurrences_.size(); ++i) {
      const auto [rule_id, row] = occurrences_[i];
      key.push_back(row == xgrammar::ParserState::kNoPrevInputPos ? kRoot : kWaiting);
      if (row == xgrammar::ParserState::kNoPrevInputPos) continue;
      for (const auto& [completed, parent] : rule_id_to_completable_states_[row]) {
        if (completed == rule_id) WriteState(parent, key);
      }
      if (key.size() > kMaxWords) return false;
    }
    return true;
  }

 private:
  // Told apart from a state, which begins with a rule's id ≥ −1.
  static constexpr int32_t kRoot = -2;
  static constexpr int32_t kWaiting = -3;

  void WriteState(const xgrammar::ParserState& state, std::vector<int32_t>& key) {
    const std::pair<int32_t, int32_t> occurrence(state.rule_id, state.rule_start_pos);
    const auto at = std::find(occurrences_.begin(), occurrences_.end(), occurrence);
    const auto index = static_cast<int32_t>(at - occurrences_.begin());
    if (at == occurrences_.end()) occurrences_.push_back(occurrence);
    key.insert(key.end(), {state.rule_id, state.sequence_id, state.element_id, state.sub_element_id,
                           state.repeat_count, state.partial_codepoint,
                           state.active_temperature_rule_id, index});
  }

  std::vector<std::pair<int32_t, int32_t>> occurrences_;  // of rules: id, row where it began
};

ParsePlace::ParsePlace(std::unique_ptr<Parser> parser) : parser_(std::move(parser)) {}
ParsePlace::~ParsePlace() = default;

std::unique_ptr<ParsePlace> ParsePlace::Create(const xgrammar::CompiledGrammar& grammar) {
  auto parser = std::make_unique<Parser>(grammar.GetGrammar());
  if (parser->has_budgets() || parser->HasTokenEdges()) return nullptr;
  return std::unique_ptr<ParsePlace>(new ParsePlace(std::move(parser)));
}

bool ParsePlace::Advance(std::string_view text) {
  int32_t taken = 0;
  for (const char c : text) {
    if (!parser_->Advance(static_cast<uint8_t>(c))) {
      parser_->PopLastStates(taken);
      return false;
    }
    ++taken;
  }
  lengths_.push_back(taken);
  return true;
}

void ParsePlace::Rollback(int32_t steps) {
  int32_t bytes = 0;
  for (; steps > 0; --steps) {
    bytes += lengths_.back();
    lengths_.pop_back();
  }
  parser_->PopLastStates(bytes);
}

bool ParsePlace::WriteKey(std::vector<int32_t>& key) { return parser_->WriteKey(key); }

}  // namespace hayate::grammar::detail
