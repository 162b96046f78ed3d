// xgrammar's objects behind ours, its exceptions turned into Status. No other file but
// detail/text_parser.cc sees the library.

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "grammar/compiled_grammar.h"
#include "grammar/detail/counted_strings.h"
#include "grammar/detail/nesting.h"
#include "grammar/detail/repeat_counts.h"
#include "grammar/detail/schema_check.h"
#include "grammar/detail/structural_tag_check.h"
#include "grammar/detail/text_parser.h"
#include "grammar/detail/token_lengths.h"
#include "grammar/matcher.h"
#include "grammar/token_bytes.h"

namespace {

// What the library warns of while this thread compiles: mostly parts of the source that it would
// ignore. Its message hook knows no context, so the thread carries it.
thread_local std::vector<std::string>* warnings_of_this_thread = nullptr;

}  // namespace

namespace xgrammar {

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw XGrammarError(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level == kWarning && warnings_of_this_thread != nullptr) {
    warnings_of_this_thread->push_back(message);
  }
}

}  // namespace xgrammar

namespace hayate::grammar {

struct Vocabulary::Impl {
  xgrammar::TokenizerInfo info;
  detail::TokenLengths lengths;
};

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
  detail::CountedRules counted;
  bool has_parser = false;   // a TextParser takes it
  bool has_budgets = false;  // a part of it may take so many tokens and no more
};

// One of the two parses.
struct Matcher::Impl {
  std::unique_ptr<detail::TextParser> parser = nullptr;
  bool ended = false;  // of the parser: it took a stop token
  std::vector<int32_t> key = {};
  int32_t grammar_id = 0;  // in the cache; 0: not yet asked for

  // Where masks depend on more than a parser knows. They are not cached.
  std::optional<xgrammar::GrammarMatcher> matcher = std::nullopt;
  // A budget ends its part by the mask that is written where it runs out. A rollback forgets it.
  bool mask_forgotten = false;
  std::vector<uint32_t> scratch = {};
};

namespace {

// The library's words, of bearable length.
std::string Reason(std::string message) {
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  constexpr size_t kMaxReason = 400;
  if (message.size() > kMaxReason) message.resize(kMaxReason);
  return message;
}

std::string VariantMessage(const xgrammar::StructuralTagError& error) {
  return std::visit([](const auto& e) { return std::string(e.what()); }, error);
}

// Runs `work`, which may throw; what it throws or warns of becomes an error of `field`: a part of
// the source that would be ignored is an error, or answers would not satisfy it.
template <typename Work>
auto Guarded(const std::string& field, Work work) -> Result<decltype(work())> {
  std::vector<std::string> warnings;
  struct Scope {
    explicit Scope(std::vector<std::string>* sink) { warnings_of_this_thread = sink; }
    ~Scope() { warnings_of_this_thread = nullptr; }
  } scope(&warnings);
  try {
    auto result = work();
    if (!warnings.empty()) return InvalidField(field, "{}", Reason(warnings.front()));
    return result;
  } catch (const std::exception& e) {
    return InvalidField(field, "cannot be compiled: {}", Reason(e.what()));
  } catch (...) {
    return InvalidField(field, "cannot be compiled");
  }
}

// The same while matching, where no error is expected: `otherwise` stands for one.
template <typename T, typename Work>
T GuardedOr(T otherwise, Work work) {
  try {
    return work();
  } catch (const std::exception& e) {
    LOG_ERROR("grammar matcher: {}", Reason(e.what()));
  } catch (...) {
    LOG_ERROR("grammar matcher: unknown error");
  }
  return otherwise;
}

xgrammar::Grammar ParseStructuralTag(const std::string& text, const xgrammar::TokenizerInfo& info) {
  auto grammar = xgrammar::Grammar::FromStructuralTag(text, info);
  if (auto* error = std::get_if<xgrammar::StructuralTagError>(&grammar)) {
    throw xgrammar::XGrammarError(VariantMessage(*error));
  }
  return std::get<xgrammar::Grammar>(std::move(grammar));
}

// `mark`: of the strings that the schema counts. A negative max_blanks stands for any number.
xgrammar::Grammar ParseSchema(const std::string& schema, std::string_view mark, int max_blanks) {
  // Undeclared properties are left out unless the schema asks for them, as OpenAI's strict mode.
  const auto blanks = max_blanks < 0 ? std::nullopt : std::optional<int>(max_blanks);
  auto grammar =
      xgrammar::Grammar::FromJSONSchema(schema, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                        /*strict_mode=*/true, blanks);
  if (mark.empty() || schema.find(mark) == std::string::npos) return grammar;
  return xgrammar::Grammar::FromEBNF(detail::WithCountedRules(grammar.ToString(), mark));
}

// The source as the library reads it. What may throw runs guarded.
Result<xgrammar::Grammar> ParseSource(const GrammarSource& source, std::string_view mark,
                                      const xgrammar::TokenizerInfo& info) {
  switch (source.kind) {
    case GrammarKind::kJsonObject:
      return Guarded(source.field, [&] {
        return ParseSchema(R"({"type":"object","additionalProperties":true})", "",
                           kMaxJsonWhitespace);
      });
    case GrammarKind::kJsonSchema: {
      ASSIGN_OR_RETURN(const detail::CheckedSchema checked,
                       detail::CheckSchema(source.text, source.field, mark));
      return Guarded(source.field,
                     [&] { return ParseSchema(checked.text, mark, kMaxJsonWhitespace); });
    }
    case GrammarKind::kRegex: {
      RETURN_IF_ERROR(detail::CheckNesting(source.text, source.field));
      const int64_t repeats = detail::LargestRepeat(source.text);
      if (repeats > detail::kMaxRepeats) {
        return InvalidField(
            source.field, "repeats a part {} times; at most {} are supported, or any number (*, +)",
            repeats, detail::kMaxRepeats);
      }
      return Guarded(source.field, [&] { return xgrammar::Grammar::FromRegex(source.text); });
    }
    case GrammarKind::kEbnf:
      RETURN_IF_ERROR(detail::CheckNesting(source.text, source.field));
      return Guarded(source.field, [&] { return xgrammar::Grammar::FromEBNF(source.text); });
    case GrammarKind::kStructuralTag: {
      const auto rules_of = [&](const std::string& schema, int max_blanks) {
        return Guarded(source.field,
                       [&] { return ParseSchema(schema, mark, max_blanks).ToString(); });
      };
      ASSIGN_OR_RETURN(const std::string text,
                       detail::CheckStructuralTag(source.text, source.field, mark, rules_of));
      return Guarded(source.field, [&] { return ParseStructuralTag(text, info); });
    }
  }
  CHECK(false) << "unknown GrammarKind";
  return xgrammar::Grammar::BuiltinJSONGrammar();
}

struct Compiled {
  xgrammar::CompiledGrammar grammar;
  detail::CountedRules counted;
};

Result<Compiled> CompileSource(const GrammarSource& source, std::string_view mark,
                               const xgrammar::TokenizerInfo& info) {
  ASSIGN_OR_RETURN(const xgrammar::Grammar parsed, ParseSource(source, mark, info));
  auto grammar = Guarded(source.field, [&] {
    return xgrammar::GrammarCompiler(info, /*max_threads=*/1, /*cache_enabled=*/false)
        .CompileGrammar(parsed);
  });
  RETURN_IF_ERROR(grammar.status());
  detail::CountedRules counted = detail::FindCountedRules(*grammar, mark);
  return Compiled{*std::move(grammar), std::move(counted)};
}

DLTensor MaskTensor(std::span<uint32_t> bits, int64_t* shape) {
  *shape = static_cast<int64_t>(bits.size());
  DLTensor tensor{};
  tensor.data = bits.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = {kDLInt, 32, 1};
  tensor.shape = shape;
  return tensor;
}

}  // namespace

Vocabulary::Vocabulary(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Vocabulary::~Vocabulary() = default;

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Create(const text::Tokenizer& tokenizer,
                                                             const Options& options) {
  const int32_t known = std::min(tokenizer.vocab_size(), options.vocab_size);
  std::vector<std::string> tokens(static_cast<size_t>(known));
  for (int32_t id = 0; id < known; ++id) {
    const auto& markers = options.marker_ids;
    const bool marker = std::find(markers.begin(), markers.end(), id) != markers.end();
    if (tokenizer.IsSpecial(id) && !marker) continue;  // no text: never allowed
    tokens[static_cast<size_t>(id)] = tokenizer.TokenBytes(id);
  }
  auto info = Guarded("vocabulary", [&] {
    return xgrammar::TokenizerInfo(tokens, xgrammar::VocabType::RAW, options.vocab_size,
                                   options.stop_ids);
  });
  RETURN_IF_ERROR(info.status());
  detail::TokenLengths lengths(info->GetSortedDecodedVocab(), info->GetVocabSize());
  return std::shared_ptr<const Vocabulary>(
      new Vocabulary(std::make_unique<const Impl>(Impl{*std::move(info), std::move(lengths)})));
}

int32_t Vocabulary::size() const { return impl_->info.GetVocabSize(); }

std::span<const int32_t> Vocabulary::stop_ids() const { return impl_->info.GetStopTokenIds(); }

std::string_view TokenBytes(const Vocabulary& vocabulary, int32_t id) {
  const std::vector<std::string>& tokens = vocabulary.impl().info.GetDecodedVocab();
  const auto index = static_cast<size_t>(id);
  return index < tokens.size() ? std::string_view(tokens[index]) : std::string_view();
}

CompiledGrammar::CompiledGrammar(std::shared_ptr<const Vocabulary> vocabulary,
                                 std::unique_ptr<const Impl> impl)
    : vocabulary_(std::move(vocabulary)), impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::Compile(
    std::shared_ptr<const Vocabulary> vocabulary, const GrammarSource& source) {
  if (source.text.size() > GrammarSource::kMaxBytes) {
    return InvalidField(source.field, "has {} bytes, at most {} are compiled", source.text.size(),
                        GrammarSource::kMaxBytes);
  }
  const Vocabulary::Impl& tokens = vocabulary->impl();
  const bool has_schemas =
      source.kind == GrammarKind::kJsonSchema || source.kind == GrammarKind::kStructuralTag;
  const std::string mark = has_schemas ? detail::MarkFor(source.text) : "";
  ASSIGN_OR_RETURN(Compiled compiled, CompileSource(source, mark, tokens.info));
  bool has_parser = detail::TextParser::Takes(compiled.grammar);
  if (!has_parser && !compiled.counted.bounds.empty()) {
    // Nobody would count: an automaton has to.
    ASSIGN_OR_RETURN(compiled, CompileSource(source, "", tokens.info));
    has_parser = detail::TextParser::Takes(compiled.grammar);
  }
  const bool has_budgets = source.kind == GrammarKind::kStructuralTag &&
                           source.text.find("max_tokens") != std::string::npos;
  auto grammar = std::shared_ptr<const CompiledGrammar>(new CompiledGrammar(
      std::move(vocabulary),
      std::make_unique<const Impl>(Impl{std::move(compiled.grammar), std::move(compiled.counted),
                                        has_parser, has_budgets})));
  // A grammar that accepts nothing would end every answer with an error.
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  if (matcher.FillMask(mask) == MaskKind::kNone) {
    return InvalidField(source.field, "no text satisfies it");
  }
  return grammar;
}

size_t CompiledGrammar::memory_bytes() const { return impl_->grammar.MemorySizeBytes(); }

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), impl_(std::make_unique<Impl>()) {
  const CompiledGrammar::Impl& compiled = grammar_->impl();
  if (compiled.has_parser) {
    impl_->parser = std::make_unique<detail::TextParser>(compiled.grammar, compiled.counted,
                                                         grammar_->vocabulary().impl().lengths);
  } else {
    impl_->matcher.emplace(compiled.grammar);
  }
}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

bool Matcher::Accept(int32_t token) {
  if (ended()) return false;
  if (impl_->mask_forgotten) {
    impl_->scratch.resize(grammar_->vocabulary().mask_words());
    FillMask(impl_->scratch);
  }
  return GuardedOr(false, [&] {
    if (impl_->parser == nullptr) return impl_->matcher->AcceptToken(token);
    const auto stops = grammar_->vocabulary().stop_ids();
    if (std::ranges::find(stops, token) != stops.end()) {
      impl_->ended = impl_->parser->complete() && impl_->parser->Advance("");
      return impl_->ended;
    }
    const std::string_view text = TokenBytes(grammar_->vocabulary(), token);
    return !text.empty() && impl_->parser->Advance(text);
  });
}

bool Matcher::AcceptText(const std::string& text) {
  if (ended()) return false;
  return GuardedOr(false, [&] {
    return impl_->parser == nullptr ? impl_->matcher->AcceptString(text)
                                    : impl_->parser->Advance(text);
  });
}

MaskKind Matcher::FillMask(std::span<uint32_t> bits) {
  DCHECK_EQ(bits.size(), grammar_->vocabulary().mask_words());
  return GuardedOr(MaskKind::kNone, [&] { return FillMaskUnguarded(bits); });
}

std::span<const int32_t> Matcher::Key(MaskCache& cache) {
  if (impl_->parser == nullptr) return {};
  if (impl_->grammar_id == 0) impl_->grammar_id = cache.IdOf(grammar_);
  const bool written = GuardedOr(false, [&] { return impl_->parser->WriteKey(impl_->key); });
  if (!written) return {};
  impl_->key.push_back(impl_->grammar_id);
  return impl_->key;
}

MaskKind Matcher::FillMask(std::span<uint32_t> bits, MaskCache& cache) {
  const std::span<const int32_t> key = Key(cache);
  if (key.empty()) return FillMask(bits);
  if (const MaskCache::Mask* mask = cache.Find(key)) {
    std::ranges::copy(mask->bits, bits.begin());
    return mask->kind;
  }
  const MaskKind kind = FillMask(bits);
  cache.Put(key, kind, bits);
  return kind;
}

MaskKind Matcher::FillMaskUnguarded(std::span<uint32_t> bits) {
  const int32_t size = grammar_->vocabulary().size();
  if (impl_->parser != nullptr) {
    impl_->parser->WriteMask(bits);
  } else {
    impl_->mask_forgotten = false;
    int64_t shape = 0;
    DLTensor tensor = MaskTensor(bits, &shape);
    const bool restricts = impl_->matcher->FillNextTokenBitmask(&tensor);
    if (!restricts) std::fill(bits.begin(), bits.end(), ~uint32_t{0});
    // The library leaves anything behind the vocabulary.
    if (size % 32 != 0) bits.back() &= (uint32_t{1} << (size % 32)) - 1;
  }
  size_t allowed = 0;
  for (const uint32_t word : bits) allowed += static_cast<size_t>(std::popcount(word));
  if (allowed == static_cast<size_t>(size)) return MaskKind::kAll;
  if (!complete()) return allowed > 0 ? MaskKind::kSome : MaskKind::kNone;
  return allowed <= grammar_->vocabulary().stop_ids().size() ? MaskKind::kOnlyStop
                                                             : MaskKind::kSome;
}

void Matcher::Rollback(int32_t steps) {
  if (steps == 0) return;
  impl_->mask_forgotten = impl_->matcher.has_value() && grammar_->impl().has_budgets;
  GuardedOr(false, [&] {
    impl_->ended = false;
    if (impl_->parser != nullptr) {
      impl_->parser->Rollback(steps);
    } else {
      impl_->matcher->Rollback(steps);
    }
    return true;
  });
}

bool Matcher::complete() const {
  return impl_->parser != nullptr ? impl_->parser->complete() : impl_->matcher->IsCompleted();
}

bool Matcher::ended() const {
  return impl_->parser != nullptr ? impl_->ended : impl_->matcher->IsTerminated();
}

}  // namespace hayate::grammar
