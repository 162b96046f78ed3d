#pragma once
// The bodies of a prefill/decode pair in SGLang's protocol: the client's own JSON with a rendezvous
// spliced in behind its opening brace, and the prompt's log-probabilities, which only the prefill
// leg knows, spliced into decode's answer. Nothing is parsed or rewritten.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "text/body_scan.h"

namespace hayate::gateway {

struct Rendezvous {
  std::string_view host;  // of the prefill worker; IPv6 in brackets
  int port = 0;           // 0: null, the worker's own default
};

// Which data-parallel rank is to serve a request, and for decode which one prefills it; -1: any.
struct RankChoice {
  int rank = -1;
  int prefill_rank = -1;
};

// The fields of that choice, each with its comma behind it. A pair's leg knows the field by another
// name. Empty when there is no choice.
enum class RankField : uint8_t { kSingle, kPairLeg };
std::string RankSplice(const RankChoice& choice, RankField field);

// How many rooms a request needs: one for each sequence of a batch or of n > 1.
size_t RoomsFor(const text::BodyFields& fields, bool chat);
inline constexpr size_t kMaxRooms = 4096;

// "\"bootstrap_host\":…,\"bootstrap_port\":…,\"bootstrap_room\":…," to stand behind '{' of a body
// that is not empty. One room makes plain values, several make arrays. Rooms are below 2^63.
std::string RendezvousSplice(const Rendezvous& rendezvous, std::span<const uint64_t> rooms,
                             bool arrays, bool empty_object);

// meta_info.input_token_logprobs of prefill's answer, by the sequence of a batch. An answer is one
// object or an array of them, or a stream of events with an "index" each, the last of which counts.
class PromptLogprobs {
 public:
  // Views into `prefill`, which outlives this.
  explicit PromptLogprobs(std::string_view prefill);

  bool empty() const { return lists_.empty(); }
  // Puts the lists before decode's own, in place: the k-th before the k-th.
  void MergeInto(std::string& answer) const;
  // Appends whole events with the lists put in, each by the event's index.
  void MergeEvents(std::string_view events, std::string& out) const;

 private:
  std::map<size_t, std::string_view> lists_;  // insides, without brackets; not empty
};

}  // namespace hayate::gateway
