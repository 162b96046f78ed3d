#pragma once
// Which model to run and how: the part of the command line that serve, generate, chat and bench
// share.

#include <cstdint>
#include <string>

#include "app/speculation.h"
#include "base/status.h"

namespace hayate::app {

struct ModelOptions {
  std::string model_path;               // empty: the default model, fetched when it is not there
  std::string tokenizer_path;           // empty: the model's own
  std::string load_format = "auto";     // auto, dummy
  std::string device = "auto";          // auto (cuda where there is one), cpu, cuda
  int threads = 0;                      // CPU ranks; 0: one a physical core
  int tp_size = 1;                      // ranks that share the model: GPUs, or CPU cores
  int base_gpu_id = 0;                  // CUDA: of rank 0
  int gpu_id_step = 1;                  // CUDA: to the next rank's GPU; 0: they share one
  std::string kv_cache_dtype = "auto";  // auto, f32, f16, bf16, int8, fp8_e4m3
  std::string precision = "fast";       // fast, exact
  std::string quantization = "none";    // none, fp8
  bool deterministic = false;           // CUDA
  int32_t context_length = 0;           // 0: the model's
  int32_t page_size = 0;                // tokens; 0: the device's default, and so below
  int32_t max_running_requests = 0;
  int32_t max_queued_requests = 1024;
  int32_t chunked_prefill_size = 0;
  int32_t mixed_chunk_size = 0;
  int64_t max_total_tokens = 0;      // 0: as many as mem_fraction_static holds
  double mem_fraction_static = 0.0;  // CPU: of the memory that is available at start, for the KV
                                     // pool; CUDA: of the free device memory, for everything
  int32_t cuda_graph_max_bs = 0;
  bool disable_cuda_graph = false;
  std::string schedule_policy = "fcfs";
  bool disable_radix_cache = false;
  std::string swa_bounded_replay = "off";  // off, on, exact: models::WindowReuse
  SpeculationFlags speculation;

  // How the tp_size ranks share the work: groups of them with sequences of their own, and rows that
  // travel to the ranks of their experts.
  int dp_size = 1;
  bool enable_dp_attention = false;
  int ep_size = 0;  // 1 or tp_size; 0: as dp_size wants
  int ep_num_redundant_experts = 0;
  std::string init_expert_location = "trivial";  // or a JSON file
  std::string expert_distribution_file;          // written at the end; empty: not
  bool enable_eplb = false;                      // experts move while the server runs
  int64_t eplb_rebalance_num_iterations = 1000;  // steps between two moves
  double eplb_min_rebalancing_utilization_threshold = 1.0;
  int64_t fail_rank_at_step = 0;  // 0: never
};

// The same with the device chosen and its defaults filled in: nothing is "auto" or 0 any more but
// threads, context_length and max_total_tokens. kInvalidArgument names the flag that does not fit
// the device.
Result<ModelOptions> WithDeviceDefaults(ModelOptions options);

}  // namespace hayate::app
