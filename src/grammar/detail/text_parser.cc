// Sees xgrammar's internals: its Earley parser and the states of one, and the compiler's masks.

#include "grammar/detail/text_parser.h"

#include <compiled_grammar_impl.h>
#include <earley_parser.h>
#include <tokenizer_info_impl.h>
#include <xgrammar/compiler.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace hayate::grammar::detail {
namespace {

using xgrammar::ParserState;

bool TestBit(std::span<const uint32_t> bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

void WriteBit(std::span<uint32_t> bits, int32_t id, bool value) {
  uint32_t& word = bits[static_cast<size_t>(id) / 32];
  const uint32_t bit = uint32_t{1} << (id % 32);
  word = value ? word | bit : word & ~bit;
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

}  // namespace

// A row for each byte that was taken, the first for none: the states that read the next byte, and
// how many characters there were so far. A counted rule began at a row, and what a state of it has
// seen is the difference.
class TextParser::Parser : public xgrammar::EarleyParser {
 public:
  Parser(const xgrammar::CompiledGrammar& compiled, const CountedRules& counted,
         const TokenLengths& lengths)
      : EarleyParser(compiled.GetGrammar()),
        compiled_(*compiled.ImplPtr()),
        counted_(counted),
        lengths_(lengths),
        words_(lengths.all().size()) {}

  bool Take(uint8_t byte);
  void Pop(int32_t rows);
  void WriteMask(std::span<uint32_t> bits);
  bool WriteKey(std::vector<int32_t>& key);

 private:
  // Told apart from a state, which begins with a rule's id ≥ −1.
  static constexpr int32_t kRoot = -2;
  static constexpr int32_t kWaiting = -3;

  struct Row {
    int32_t characters = 0;  // of the whole text, an escape of a JSON string is one
    bool escaped = false;    // the last byte is a backslash that begins an escape
  };
  // What a counted string may still take.
  struct Room {
    int32_t least;  // characters without which it does not end
    int32_t most;
  };

  bool counts() const { return !counted_.bounds.empty(); }
  std::optional<Room> RoomOf(const ParserState& state) const;
  // The byte leads the state out of its bounds.
  bool Forbids(const ParserState& state, uint8_t byte) const;
  // Advance for the states that do not forbid the byte.
  bool AdvanceWithinBounds(uint8_t byte);

  void AllowedBy(const ParserState& state);
  void DoubtCounted(const ParserState& state);
  void Doubt(int32_t id);
  // Of the tokens in doubt those that the state takes.
  void TryDoubtful(const ParserState& state, std::span<uint32_t> bits);

  void WriteState(const ParserState& state, std::vector<int32_t>& key);

  const xgrammar::CompiledGrammar::Impl& compiled_;
  const CountedRules& counted_;
  const TokenLengths& lengths_;
  std::vector<Row> rows_{Row{}};  // only while the grammar counts

  std::vector<uint32_t> words_;    // of a mask: what one state allows for certain
  std::vector<int32_t> doubtful_;  // indices of the sorted vocabulary: what has to be tried
  std::vector<std::pair<int32_t, int32_t>> occurrences_;  // of rules: id, row where it began
};

std::optional<TextParser::Parser::Room> TextParser::Parser::RoomOf(const ParserState& state) const {
  if (!counts() || state.rule_id < 0) return std::nullopt;
  const auto& bounds = counted_.bounds[static_cast<size_t>(state.rule_id)];
  if (!bounds) return std::nullopt;
  const size_t begin = static_cast<size_t>(std::max(0, state.rule_start_pos));
  const int32_t seen = rows_.back().characters - rows_[begin].characters;
  return Room{std::max(0, bounds->least - seen), std::max(0, bounds->most - seen)};
}

bool TextParser::Parser::Forbids(const ParserState& state, uint8_t byte) const {
  if (rows_.back().escaped || (byte & 0xC0) == 0x80) return false;
  const std::optional<Room> room = RoomOf(state);
  if (!room) return false;
  return byte == '"' ? room->least > 0 : room->most == 0;
}

bool TextParser::Parser::AdvanceWithinBounds(uint8_t byte) {
  const std::vector<ParserState> states = GetLatestScanableStates();
  std::vector<ParserState> kept;
  std::copy_if(states.begin(), states.end(), std::back_inserter(kept),
               [&](const ParserState& state) { return !Forbids(state, byte); });
  if (kept.size() == states.size()) return EarleyParser::Advance(byte);
  if (kept.empty()) return false;
  // The row stays as it was for whoever comes back to it.
  scanable_state_history_.PopBack(1);
  scanable_state_history_.PushBack(kept);
  const bool taken = EarleyParser::Advance(byte);
  const std::vector<ParserState> next = GetLatestScanableStates();
  scanable_state_history_.PopBack(taken ? 2 : 1);
  scanable_state_history_.PushBack(states);
  if (taken) scanable_state_history_.PushBack(next);
  return taken;
}

bool TextParser::Parser::Take(uint8_t byte) {
  if (!counts()) return EarleyParser::Advance(byte);
  if (!AdvanceWithinBounds(byte)) return false;
  const Row last = rows_.back();
  const bool begins = !last.escaped && (byte & 0xC0) != 0x80;
  rows_.push_back({last.characters + (begins ? 1 : 0), !last.escaped && byte == '\\'});
  return true;
}

void TextParser::Parser::Pop(int32_t rows) {
  if (rows == 0) return;
  PopLastStates(rows);
  if (counts()) rows_.resize(rows_.size() - static_cast<size_t>(rows));
}

void TextParser::Parser::Doubt(int32_t id) {
  doubtful_.push_back(
      compiled_.tokenizer_info->GetTokenIdToSortedVocabIndex()[static_cast<size_t>(id)]);
}

// The compiler's mask of a state knows no bounds. A token within one string is judged by its
// length; one that may leave a string and begin another is tried.
void TextParser::Parser::DoubtCounted(const ParserState& state) {
  const std::optional<Room> room = RoomOf(state);
  if (!room) {
    for (const int32_t id : lengths_.Openers(counted_.least_room)) {
      if (!TestBit(words_, id)) continue;
      WriteBit(words_, id, false);
      Doubt(id);
    }
    return;
  }
  const StringPlace place = rows_.back().escaped ? StringPlace::kEscaped : StringPlace::kPlain;
  lengths_.KeepWithin(place, room->most, words_);
  for (const int32_t id : lengths_.Closers(place)) {
    if (!TestBit(words_, id)) continue;
    const TokenLengths::Span& span = lengths_.SpanOf(place, id);
    const bool fits = span.characters >= room->least && span.characters <= room->most;
    if (fits && !span.quotes_follow) continue;
    WriteBit(words_, id, false);
    if (fits) Doubt(id);
  }
}

void TextParser::Parser::AllowedBy(const ParserState& state) {
  using Store = xgrammar::AdaptiveTokenMask::StoreType;
  const auto found = compiled_.adaptive_token_mask_cache.find(state);
  if (found == compiled_.adaptive_token_mask_cache.end()) {
    throw xgrammar::XGrammarError("a state without a mask");
  }
  const xgrammar::AdaptiveTokenMask& mask = found->second;
  const auto& tokens = compiled_.tokenizer_info.GetSortedDecodedVocab();
  const auto id_at = [&](int32_t index) { return tokens[static_cast<size_t>(index)].first; };
  doubtful_ = mask.uncertain_indices;
  switch (mask.store_type) {
    case Store::kAccepted:
      std::fill(words_.begin(), words_.end(), 0);
      for (const int32_t index : mask.accepted_indices) WriteBit(words_, id_at(index), true);
      break;
    case Store::kRejected:
      std::copy(lengths_.all().begin(), lengths_.all().end(), words_.begin());
      for (const int32_t index : mask.rejected_indices) WriteBit(words_, id_at(index), false);
      for (const int32_t index : mask.uncertain_indices) WriteBit(words_, id_at(index), false);
      break;
    case Store::kAcceptedBitset:
      // A bitset on our words, which takes over the other's.
      xgrammar::DynamicBitset(mask.accepted_bitset.Size(), words_.data()) = mask.accepted_bitset;
      break;
  }
  if (counts()) DoubtCounted(state);
}

void TextParser::Parser::TryDoubtful(const ParserState& state, std::span<uint32_t> bits) {
  const auto& tokens = compiled_.tokenizer_info.GetSortedDecodedVocab();
  std::sort(doubtful_.begin(), doubtful_.end());
  PushOneStateToCheck(state);
  if (counts()) rows_.push_back(Row(rows_.back()));
  // Tokens in order share beginnings: what the last one took of it is not taken again.
  std::string_view last;
  size_t taken = 0;
  for (const int32_t index : doubtful_) {
    const auto& [id, token] = tokens[static_cast<size_t>(index)];
    if (token.empty() || TestBit(bits, id)) continue;
    const size_t shared = CommonPrefix(last, token);
    if (shared > taken) continue;  // begins with what did not fit
    Pop(static_cast<int32_t>(taken - shared));
    taken = shared;
    last = token;
    while (taken < token.size() && Take(static_cast<uint8_t>(token[taken]))) ++taken;
    if (taken == token.size()) WriteBit(bits, id, true);
  }
  Pop(static_cast<int32_t>(taken) + 1);
}

void TextParser::Parser::WriteMask(std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  for (const ParserState& state : GetLatestScanableStates()) {
    AllowedBy(state);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= words_[i];
    if (!doubtful_.empty()) TryDoubtful(state, bits);
  }
  const bool complete = IsCompleted();
  for (const int32_t id : compiled_.tokenizer_info.GetStopTokenIds()) WriteBit(bits, id, complete);
}

// What can follow is decided by the states of the last row and, for each rule that one of them is
// in, by the states that wait for it to be completed, and so on up to the root. Rows are named by
// the order in which they are met, so the key does not depend on how long the text is.
bool TextParser::Parser::WriteKey(std::vector<int32_t>& key) {
  constexpr size_t kMaxWords = 2048;
  key.assign(1, IsCompleted() ? 1 : 0);
  occurrences_.clear();
  for (const auto& state : scanable_state_history_[scanable_state_history_.size() - 1]) {
    WriteState(state, key);
    const std::optional<Room> room = RoomOf(state);
    if (!room) continue;
    // More room than the longest token needs is as good as any.
    key.insert(key.end(), {std::min(room->least, lengths_.longest() + 1),
                           std::min(room->most, lengths_.longest())});
  }
  for (size_t i = 0; i < occurrences_.size(); ++i) {
    const auto [rule_id, row] = occurrences_[i];
    key.push_back(row == ParserState::kNoPrevInputPos ? kRoot : kWaiting);
    if (row == ParserState::kNoPrevInputPos) continue;
    for (const auto& [completed, parent] : rule_id_to_completable_states_[row]) {
      if (completed == rule_id) WriteState(parent, key);
    }
    if (key.size() > kMaxWords) return false;
  }
  return true;
}

void TextParser::Parser::WriteState(const ParserState& state, std::vector<int32_t>& key) {
  const std::pair<int32_t, int32_t> occurrence(state.rule_id, state.rule_start_pos);
  const auto at = std::find(occurrences_.begin(), occurrences_.end(), occurrence);
  const auto index = static_cast<int32_t>(at - occurrences_.begin());
  if (at == occurrences_.end()) occurrences_.push_back(occurrence);
  key.insert(key.end(), {state.rule_id, state.sequence_id, state.element_id, state.sub_element_id,
                         state.repeat_count, state.partial_codepoint,
                         state.active_temperature_rule_id, index});
}

CountedRules FindCountedRules(const xgrammar::CompiledGrammar& grammar, std::string_view mark) {
  CountedRules counted;
  if (mark.empty()) return counted;
  counted.least_room = std::numeric_limits<int32_t>::max();
  const xgrammar::Grammar rules = grammar.GetGrammar();
  const int32_t num_rules = rules->NumRules();
  bool any = false;
  for (int32_t i = 0; i < num_rules; ++i) {
    counted.bounds.push_back(BoundsOfRule(rules->GetRule(i).name, mark));
    if (!counted.bounds.back()) continue;
    any = true;
    counted.least_room = std::min(counted.least_room, counted.bounds.back()->most);
  }
  if (!any) counted.bounds.clear();
  return counted;
}

bool TextParser::Takes(const xgrammar::CompiledGrammar& grammar) {
  const xgrammar::Grammar rules = grammar.GetGrammar();
  for (int32_t i = 0; i < rules->NumRules(); ++i) {
    if (rules->GetRule(i).max_tokens >= 0 || rules->GetRule(i).max_chars >= 0) return false;
  }
  const auto is_token = [](const xgrammar::FSMEdge& edge) {
    return edge.IsToken() || edge.IsExcludeToken();
  };
  for (const auto& rule : rules->per_rule_fsms) {
    if (!rule.has_value()) continue;
    const auto& fsm = rule->GetFsm().GetFsm();
    for (int state = 0; state < fsm.NumStates(); ++state) {
      const auto edges = fsm.GetEdges(state);
      if (std::any_of(edges.begin(), edges.end(), is_token)) return false;
    }
  }
  return true;
}

TextParser::TextParser(const xgrammar::CompiledGrammar& grammar, const CountedRules& counted,
                       const TokenLengths& lengths)
    : parser_(std::make_unique<Parser>(grammar, counted, lengths)) {}
TextParser::~TextParser() = default;

bool TextParser::Advance(std::string_view text) {
  int32_t taken = 0;
  for (const char c : text) {
    if (!parser_->Take(static_cast<uint8_t>(c))) {
      parser_->Pop(taken);
      return false;
    }
    ++taken;
  }
  lengths_.push_back(taken);
  return true;
}

void TextParser::Rollback(int32_t steps) {
  int32_t bytes = 0;
  for (; steps > 0; --steps) {
    bytes += lengths_.back();
    lengths_.pop_back();
  }
  parser_->Pop(bytes);
}

bool TextParser::complete() const { return parser_->IsCompleted(); }
void TextParser::WriteMask(std::span<uint32_t> bits) { parser_->WriteMask(bits); }
bool TextParser::WriteKey(std::vector<int32_t>& key) { return parser_->WriteKey(key); }

}  // namespace hayate::grammar::detail
