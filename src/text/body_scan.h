#pragma once
// What routing needs to know of a JSON request body, found in place: nothing is parsed into a tree,
// copied or unescaped, and long strings are skipped at memory speed. Whoever serves the request
// judges the body; of a malformed one there is what could be found.

#include <cstdint>
#include <string>
#include <string_view>

namespace hayate::text {

// Views into the scanned bytes. Of a repeated key the last one counts, as for most parsers.
struct BodyFields {
  bool is_object = false;  // starts with '{'
  bool complete = false;   // the object ended, and only blanks follow
  size_t insert_at = 0;    // just behind '{'
  bool empty = false;      // "{}"

  std::string_view model;  // undecoded; empty: absent, or not a string
  // The raw value that starts the worker's prompt: messages, prompt, text, input_ids or input. Cut
  // off where the scanned bytes end. Two prompts with a common beginning have values with one.
  std::string_view prompt;
  // Of the raw values, with their names, that come before the prompt for the model (tools, system,
  // instructions) or divide its cache (lora_path, cache_salt, extra_key). Order does not matter.
  uint64_t context_hash = 0;
  bool stream = false;
  bool return_logprob = false;
  int64_t max_tokens = -1;  // whichever of the names was there; -1: none
  int64_t n = 1;
  int64_t batch = 0;  // elements of `prompt` when it is a list of prompts; 0: one prompt
};

// `bytes` may be the beginning of a body; then `complete` is false.
BodyFields ScanBody(std::string_view bytes);

// The decoded form of a string found above: most need no copy. `storage` holds it otherwise.
std::string_view Unescape(std::string_view raw, std::string& storage);

// Where the JSON string that starts at `begin` (behind its quote) ends: the index of the closing
// quote, or bytes.size().
size_t FindStringEnd(std::string_view bytes, size_t begin);

}  // namespace hayate::text
