#include "text/detail/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "text/detail/byte_alphabet.h"
#include "text/detail/utf8.h"

namespace hayate::text {
namespace {

// Up to here, scanning all pairs for the best one beats a heap.
constexpr size_t kMaxShortSymbols = 48;

std::vector<std::string> Spellings(const BpeSpec& spec) {
  if (!spec.byte_level) return spec.tokens;
  std::vector<std::string> spellings;
  spellings.reserve(spec.tokens.size());
  for (const std::string& token : spec.tokens) {
    spellings.push_back(BytesOfSpelling(token).value_or(""));
  }
  return spellings;
}

Status CheckIds(const BpeSpec& spec) {
  const auto known = [&spec](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < spec.tokens.size();
  };
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const MergeRule& rule = spec.merges[i];
    if (!known(rule.left) || !known(rule.right) || !known(rule.result) || rule.rank < 0 ||
        rule.rank == INT32_MAX) {
      return Error(ErrorCode::kInvalidArgument,
                   "merge {}: ids {} + {} -> {} at rank {} are outside the vocabulary of {}", i,
                   rule.left, rule.right, rule.result, rule.rank, spec.tokens.size());
    }
  }
  if (spec.unk_id && !known(*spec.unk_id)) {
    return Error(ErrorCode::kInvalidArgument, "unknown token {} is outside the vocabulary of {}",
                 *spec.unk_id, spec.tokens.size());
  }
  return OkStatus();
}

}  // namespace

Result<Bpe> Bpe::Create(const BpeSpec& spec, std::string_view space_marker) {
  RETURN_IF_ERROR(CheckIds(spec));
  Bpe bpe(spec, Spellings(spec));
  const bool marks_words = !spec.byte_level && !space_marker.empty() &&
                           bpe.tokens_.Find(space_marker) != kNoToken &&
                           !bpe.MergesAcross(spec, space_marker);
  if (marks_words) bpe.word_marker_ = space_marker;

  BpeScratch scratch;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < bpe.spellings_.size(); ++id) {
    const std::string& spelling = bpe.spellings_[id];
    if (spelling.empty()) continue;
    const int32_t first_id = bpe.tokens_.Find(spelling);
    ids.clear();
    if (!spec.ignore_merges) bpe.EncodeWord(spelling, scratch, ids);
    if (spec.ignore_merges || (ids.size() == 1 && ids[0] == first_id)) {
      bpe.whole_pieces_.Insert(spelling, first_id);
    }
  }
  return bpe;
}

Bpe::Bpe(const BpeSpec& spec, std::vector<std::string> spellings)
    : spellings_(std::move(spellings)),
      tokens_(spellings_.size()),
      whole_pieces_(spellings_.size()),
      merges_(spec.merges),
      byte_level_(spec.byte_level),
      byte_fallback_(spec.byte_fallback && !spec.byte_level),
      fuse_unk_(spec.fuse_unk),
      unk_id_(spec.unk_id.value_or(kNoToken)) {
  for (size_t id = 0; id < spellings_.size(); ++id) {
    if (!spellings_[id].empty()) tokens_.Insert(spellings_[id], static_cast<int32_t>(id));
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = tokens_.Find(byte_level_ ? std::string(1, static_cast<char>(byte))
                                               : fmt::format("<0x{:02X}>", byte));
  }
}

bool Bpe::MergesAcross(const BpeSpec& spec, std::string_view marker) const {
  return std::any_of(spec.merges.begin(), spec.merges.end(), [&](const MergeRule& rule) {
    return !spelling(rule.left).ends_with(marker) && spelling(rule.right).starts_with(marker);
  });
}

void Bpe::Encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (word_marker_.empty()) return EncodeWord(piece, scratch, out);
  // A word ends where a marker follows something else than a marker.
  const size_t marker_size = word_marker_.size();
  size_t word = 0;
  size_t previous_end = 0;  // of the marker seen last
  for (size_t hit = piece.find(word_marker_); hit != std::string_view::npos;
       hit = piece.find(word_marker_, previous_end)) {
    if (hit > word && hit != previous_end) {
      EncodeWord(piece.substr(word, hit - word), scratch, out);
      word = hit;
    }
    previous_end = hit + marker_size;
  }
  EncodeWord(piece.substr(word), scratch, out);
}

void Bpe::EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (const int32_t id = whole_pieces_.Find(word); id != kNoToken) return out.push_back(id);
  scratch.ids.clear();
  AppendCharacters(word, scratch.ids);
  if (scratch.ids.size() <= kMaxShortSymbols) {
    MergeShort(scratch.ids, out);
  } else {
    MergeLong(scratch, out);
  }
}

void Bpe::AppendCharacters(std::string_view word, std::vector<int32_t>& ids) const {
  bool after_unk = false;
  const auto append = [&](std::string_view character) {
    const size_t before = ids.size();
    AppendCharacter(character, ids);
    if (ids.size() > before) {
      after_unk = false;
    } else if (unk_id_ != kNoToken) {
      // Without an unknown token the character is lost, as in the reference library.
      if (!after_unk || !fuse_unk_) ids.push_back(unk_id_);
      after_unk = true;
    }
  };
  for (size_t i = 0; i < word.size();) {
    const size_t length = byte_level_ ? 1 : Utf8Length(static_cast<unsigned char>(word[i]));
    append(word.substr(i, length));
    i += length;
  }
}

void Bpe::AppendCharacter(std::string_view character, std::vector<int32_t>& ids) const {
  const auto byte_id = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  const int32_t id = byte_level_ ? byte_id(character[0]) : tokens_.Find(character);
  if (id != kNoToken) return ids.push_back(id);
  const auto missing = [&](char byte) { return byte_id(byte) == kNoToken; };
  if (!byte_fallback_ || std::any_of(character.begin(), character.end(), missing)) return;
  for (const char byte : character) ids.push_back(byte_id(byte));
}

void Bpe::MergeShort(std::vector<int32_t>& ids, std::vector<int32_t>& out) const {
  // merges[i] is what ids[i] and ids[i + 1] may become.
  std::array<MergeTable::Merge, kMaxShortSymbols> merges;
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.Find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == INT32_MAX) break;
    ids[best] = merges[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i - 1] = merges[i];
    }
    --count;
    if (best > 0) merges[best - 1] = merges_.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = merges_.Find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

void Bpe::MergeLong(BpeScratch& scratch, std::vector<int32_t>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.key > b.key;
  };
  const auto candidate = [&](int32_t position) -> BpeScratch::Candidate {
    const auto& left = symbols[static_cast<size_t>(position)];
    const MergeTable::Merge merge =
        left.next < 0 ? MergeTable::Merge{}
                      : merges_.Find(left.id, symbols[static_cast<size_t>(left.next)].id);
    return {uint64_t{static_cast<uint32_t>(merge.rank)} << 32 | static_cast<uint32_t>(position),
            merge.result};
  };

  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const auto found = candidate(i); found.result != kNoToken) heap.push_back(found);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t position) {
    const auto found = candidate(position);
    if (found.result == kNoToken) return;
    heap.push_back(found);
    std::push_heap(heap.begin(), heap.end(), later);
  };

  while (!heap.empty()) {
    const BpeScratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const auto position = static_cast<int32_t>(top.key & 0xFFFFFFFF);
    auto& left = symbols[static_cast<size_t>(position)];
    // Stale: one of the two has merged with another neighbour since.
    if (left.id == kNoToken || left.next < 0 || candidate(position).result != top.result) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    left.id = top.result;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    if (left.previous >= 0) push(left.previous);
    push(position);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace hayate::text
