#pragma once
// Byte-pair encoding of one piece of text. Immutable; shared by all threads.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/detail/token_table.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

// Buffers of Bpe::Encode, to be reused from piece to piece.
struct BpeScratch {
  struct Symbol {
    int32_t id;  // kNoToken once merged into its left neighbour
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint64_t key;  // rank << 32 | position: the smallest merges next
    int32_t result;
  };
  std::vector<int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class Bpe {
 public:
  // `space_marker` is the decoder's; "" when words are not marked.
  static Result<Bpe> Create(const BpeSpec& spec, std::string_view space_marker);

  // Appends the ids of `piece` (valid UTF-8, or bytes of it when byte-level).
  void Encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;

  // The token spelled exactly so (raw bytes when byte-level), or kNoToken.
  int32_t Find(std::string_view spelling) const { return tokens_.Find(spelling); }
  // The raw spelling of a token; empty if it has none in this alphabet.
  std::string_view spelling(int32_t id) const { return spellings_[static_cast<size_t>(id)]; }

 private:
  Bpe(const BpeSpec& spec, std::vector<std::string> spellings);

  void EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  // The tokens of single characters (bytes when byte-level), before any merge.
  void AppendCharacters(std::string_view word, std::vector<int32_t>& ids) const;
  void AppendCharacter(std::string_view character, std::vector<int32_t>& ids) const;
  // Appends what remains of ids after all merges. Short: O(n²) with tiny constants. Long: O(n log
  // n).
  void MergeShort(std::vector<int32_t>& ids, std::vector<int32_t>& out) const;
  void MergeLong(BpeScratch& scratch, std::vector<int32_t>& out) const;
  bool MergesAcross(const BpeSpec& spec, std::string_view marker) const;

  std::vector<std::string> spellings_;
  TokenTable tokens_;
  // Tokens that their own bytes encode to: a piece found here needs no merging.
  TokenTable whole_pieces_;
  MergeTable merges_;
  bool byte_level_;
  bool byte_fallback_;
  bool fuse_unk_;
  int32_t unk_id_;
  std::array<int32_t, 256>
      byte_ids_;  // byte-level: the token of each byte; else its fallback token
  // Not empty when no merge joins a word with the marker behind it: words are encoded one by one.
  std::string word_marker_;
};

}  // namespace hayate::text
