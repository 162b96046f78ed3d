#pragma once
// Regular expressions of tokenizer files, which are written for Oniguruma, run on PCRE2's JIT.
// Classes like \p{L} are those of PCRE2's Unicode (14 in Debian 12; the reference library has 16):
// a character that is newer than that is in none of them.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

typedef struct pcre2_real_code_8 pcre2_code_8;
typedef struct pcre2_real_match_data_8 pcre2_match_data_8;

namespace hayate::text {

// Scratch memory of matches: one per thread or call, for any number of expressions.
class RegexScratch {
 public:
  RegexScratch();
  pcre2_match_data_8* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(pcre2_match_data_8* data) const;
  };
  std::unique_ptr<pcre2_match_data_8, Free> data_;
};

// Immutable; shared by all threads.
class Regex {
 public:
  // Fails with kInvalidArgument (the pattern and the offset at fault) or kUnsupported. A search
  // that takes more than `max_steps` gives up; 0: PCRE2's own limit.
  static Result<Regex> Compile(std::string_view pattern, int max_steps = 0);
  // The pattern that matches `literal` and nothing else.
  static std::string Escape(std::string_view literal);

  enum class Outcome { kMatch, kPartial, kNoMatch, kTooManySteps };
  struct Match {
    Outcome outcome;
    size_t begin = 0;
    size_t end = 0;
  };

  // The first non-empty match at or after `from`, in valid UTF-8. Looks behind `from`, as one
  // search through the subject would. kTooManySteps bounds patterns that backtrack without end.
  Match Find(std::string_view subject, size_t from, const RegexScratch& scratch) const;

  // The same in a text that goes on. Without a match, kPartial says from where on more text may
  // make one. `at_start`: the subject begins where the text does.
  Match FindOrWait(std::string_view subject, size_t from, bool at_start,
                   const RegexScratch& scratch) const;

 private:
  struct Free {
    void operator()(pcre2_code_8* code) const;
  };
  explicit Regex(pcre2_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_code_8, Free> code_;
};

}  // namespace hayate::text
