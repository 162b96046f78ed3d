#pragma once
// Masks by grammar and place in it. Filling a mask walks the tokens that end one part of the text
// and begin the next, many in a string of a JSON schema; most places are met again and again.
// Owner: one thread.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/mask_kind.h"

namespace hayate::grammar {

class MaskCache {
 public:
  struct Mask {
    MaskKind kind;
    std::vector<uint32_t> bits;
  };
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    size_t bytes = 0;
  };

  // Beyond max_bytes the masks that were not asked for the longest go.
  explicit MaskCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // A word of the grammar's keys: no other grammar has it, not even one that comes to lie in the
  // place of this one.
  int32_t IdOf(const std::shared_ptr<const CompiledGrammar>& grammar);
  // Null where it is not known. Valid until the next Put.
  const Mask* Find(std::span<const int32_t> key);
  void Put(std::span<const int32_t> key, MaskKind kind, std::span<const uint32_t> bits);

  const Stats& stats() const { return stats_; }

 private:
  struct Known {
    std::weak_ptr<const CompiledGrammar> grammar;
    int32_t id = 0;
  };
  struct Entry {
    std::string key;
    Mask mask;
  };
  static std::string_view BytesOf(std::span<const int32_t> key);
  static size_t BytesOf(const Entry& entry);

  const size_t max_bytes_;
  std::unordered_map<const CompiledGrammar*, Known> grammars_;
  int32_t last_id_ = 0;
  std::list<Entry> entries_;  // least recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // views of the entries
  Stats stats_;
};

}  // namespace hayate::grammar
