#pragma once
// The bodies of a prefill/decode pair in SGLang's protocol: the client's own JSON with a rendezvous
// spliced in behind its opening brace, and the prompt's log-probabilities, which only the prefill
// leg knows, spliced into decode's answer. Nothing is parsed or rewritten.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gateway/body_scan.h"

namespace hayate::gateway {

struct Rendezvous {
  std::string_view host;  // of the prefill worker; IPv6 in brackets
  int port = 0;           // 0: null, the worker's own default
};

// How many rooms a request needs: one for each sequence of a batch or of n > 1.
size_t RoomsFor(const BodyFields& fields, bool chat);
inline constexpr size_t kMaxRooms = 4096;

// "\"bootstrap_host\":…,\"bootstrap_port\":…,\"bootstrap_room\":…," to stand behind '{' of a body
// that is not empty. One room makes plain values, several make arrays. Rooms are below 2^63.
std::string RendezvousSplice(const Rendezvous& rendezvous, std::span<const uint64_t> rooms,
                             bool arrays, bool empty_object);

// Puts prefill's meta_info.input_token_logprobs before decode's, in place. False, and nothing is
// changed, when either has none.
bool MergeInputLogprobs(std::string_view prefill, std::string& decode);

}  // namespace hayate::gateway
