#pragma once
// Which model to run and how: the part of the command line that serve, generate, chat and bench
// share.

#include <cstdint>
#include <string>

namespace hayate::app {

struct ModelOptions {
  std::string model_path;               // empty: the default model, fetched when it is not there
  std::string load_format = "auto";     // auto, dummy
  int threads = 0;                      // CPU ranks; 0: one a physical core
  std::string kv_cache_dtype = "auto";  // auto (f16), f32, f16, bf16, int8
  std::string precision = "fast";       // fast, exact
  int32_t context_length = 0;           // 0: the model's
  int32_t page_size = 32;               // tokens
  int32_t max_running_requests = 64;
  int32_t max_queued_requests = 1024;
  int32_t chunked_prefill_size = 512;
  int64_t max_total_tokens = 0;       // 0: as many as mem_fraction_static holds
  double mem_fraction_static = 0.25;  // of the memory that is available at start, for the KV pool
  std::string schedule_policy = "fcfs";
  bool disable_radix_cache = false;
};

}  // namespace hayate::app
