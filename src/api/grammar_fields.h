#pragma once
// The fields that say what an answer must look like: response_format, json_schema, regex, ebnf,
// structural_tag.

#include <optional>
#include <string_view>

#include "api/field_reader.h"
#include "grammar/grammar_source.h"

namespace hayate::api {

// At most one of them may ask for a grammar; `prefix` stands before their names in errors. Errors
// go to fields.status().
std::optional<grammar::GrammarSource> ReadGrammarFields(FieldReader& fields,
                                                        std::string_view prefix);

// One field of response_format's kind alone.
std::optional<grammar::GrammarSource> ReadFormatField(FieldReader& fields, const char* name,
                                                      std::string_view prefix);

}  // namespace hayate::api
