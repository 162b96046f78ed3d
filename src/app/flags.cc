#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "app/commands.h"
#include "app/sglang_flags.h"

namespace hayate::app {
namespace {

// Levenshtein distance.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

namespace {

void AddParallelFlags(CLI::App& command, ModelOptions& o) {
  const char* group = "Ranks";
  command
      .add_option("--dp-size,--dp,--data-parallel-size", o.dp_size,
                  "groups of ranks with sequences and KV pools of their own")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--enable-dp-attention", o.enable_dp_attention,
                "split the ranks into --dp-size groups for attention; experts lie on all")
      ->group(group);
  command
      .add_option("--ep-size,--ep,--expert-parallel-size", o.ep_size,
                  "ranks that rows travel to for their experts: 1 or --tp-size")
      ->check(CLI::Range(1, 256))
      ->group(group);
  command
      .add_option("--ep-num-redundant-experts", o.ep_num_redundant_experts,
                  "further copies of experts, of every layer")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--init-expert-location", o.init_expert_location,
                  "trivial, or a JSON file with physical_to_logical_map or logical_count")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--expert-distribution-file", o.expert_distribution_file,
                  "write how often each expert was chosen there at the end, for "
                  "--init-expert-location")
      ->group(group);
  command
      .add_flag("--enable-eplb", o.enable_eplb,
                "place experts anew while the server runs, by how often each was chosen")
      ->group(group);
  command
      .add_option("--eplb-rebalance-num-iterations", o.eplb_rebalance_num_iterations,
                  "steps between two placements")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--eplb-min-rebalancing-utilization-threshold",
                  o.eplb_min_rebalancing_utilization_threshold,
                  "experts stay where the mean load of a rank / the fullest's is above this")
      ->check(NumberBetween(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--fail-rank-at-step", o.fail_rank_at_step,
                  "for drills: the last rank fails at this step, and the server with it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(group);
}

}  // namespace

void AddModelFlags(CLI::App& command, ModelOptions& o) {
  const char* group = "Model";
  command
      .add_option("--model-path,--model,-m", o.model_path,
                  "GGUF file, safetensors file or model directory; the default model without it")
      ->group(group);
  command
      .add_option("--tokenizer-path", o.tokenizer_path,
                  "model whose tokenizer to use; the model's own without it")
      ->group(group);
  command
      .add_option("--load-format", o.load_format, "auto, or dummy: random weights of true shape")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--context-length", o.context_length, "longest prompt plus answer, tokens")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_option("--device", o.device, "cpu or cuda; auto takes cuda where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--threads,-t", o.threads, "CPU cores to compute on; 0: all physical cores")
      ->check(CLI::Range(0, 256))
      ->group(group);
  command
      .add_option("--tp-size,--tp,--tensor-parallel-size", o.tp_size,
                  "ranks that share the model: GPUs (up to 8) or CPU cores")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  command.add_option("--base-gpu-id", o.base_gpu_id, "GPU of the first rank (CUDA)")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--gpu-id-step", o.gpu_id_step,
                  "from one rank's GPU to the next one's; 0: up to 4 ranks share a GPU (CUDA)")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->group(group);
  AddParallelFlags(command, o);
  command
      .add_option("--precision", o.precision,
                  "fast: 8-bit (CPU) or bf16 (CUDA) activations; exact: fp32, slower")
      ->check(CLI::IsMember({"fast", "exact"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--quantization", o.quantization,
          "fp8: float weights become fp8 while they load, a scale per output feature (CUDA)")
      ->check(CLI::IsMember({"none", "fp8"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--deterministic", o.deterministic,
                "CUDA, dense models: an answer does not depend on what else is computed (the CPU's "
                "never does)")
      ->group(group);
  command
      .add_option("--kv-cache-dtype", o.kv_cache_dtype,
                  "auto (CPU f16, CUDA bf16), f32, f16, bf16, int8 (CPU), fp8_e4m3 (CUDA; latent "
                  "rows of DeepSeek V4)")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "int8", "fp8_e4m3"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--swa-bounded-replay", o.swa_bounded_replay,
                  "DeepSeek V4.1, instead of keeping windows with cached prefixes: on computes a "
                  "prefix's last window again, an approximation; exact as much as it takes")
      ->check(CLI::IsMember({"off", "on", "exact"}))
      ->capture_default_str()
      ->group(group);
}

void AddSchedulingFlags(CLI::App& command, ModelOptions& o) {
  const char* group = "Memory and scheduling";
  command
      .add_option("--mem-fraction-static", o.mem_fraction_static,
                  "CPU: share of the available memory for the KV pool (0.25); CUDA: share of the "
                  "free device memory for weights, KV pool and all else (0.88)")
      ->check(NumberBetween(0.01, 0.97))
      ->group(group);
  command.add_option("--max-total-tokens", o.max_total_tokens, "tokens of the KV pool")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_option("--page-size", o.page_size, "tokens of a KV page (CPU 32, CUDA 64)")
      ->check(CLI::Range(1, 1024))
      ->group(group);
  command
      .add_option("--max-running-requests", o.max_running_requests,
                  "requests computed at once (CPU 64, CUDA 256)")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  command
      .add_option("--max-queued-requests", o.max_queued_requests,
                  "requests that may wait; then 429")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--chunked-prefill-size", o.chunked_prefill_size,
                  "prompt tokens of one step (CPU 512, CUDA 8192)")
      ->check(CLI::Range(1, 131072))
      ->group(group);
  command
      .add_option("--mixed-chunk-size", o.mixed_chunk_size,
                  "prompt tokens of a step that decodes too; fewer where they nearly double its "
                  "time, up to four times as many where prompts pile up (CUDA 256; CPU no less "
                  "than others)")
      ->check(CLI::Range(1, 131072))
      ->group(group);
  command.add_option("--schedule-policy", o.schedule_policy, "fcfs, lpm or priority")
      ->check(CLI::IsMember({"fcfs", "lpm", "priority"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--cuda-graph-max-bs", o.cuda_graph_max_bs,
                  "largest batch whose decode steps are replayed as CUDA graphs (all)")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  command.add_flag("--disable-cuda-graph", o.disable_cuda_graph, "launch every kernel by itself")
      ->group(group);
  command.add_flag("--disable-radix-cache", o.disable_radix_cache, "share no prefixes")
      ->group(group);
  AddSpeculationFlags(command, o.speculation);
}

void AddSpeculationFlags(CLI::App& command, SpeculationFlags& o) {
  const char* group = "Speculative decoding";
  command
      .add_option("--speculative-algorithm", o.algorithm,
                  "where drafts come from: GRAMMAR (requests under a grammar: text that it "
                  "forces, and the request's own text; the default on a CPU), NGRAM (the same for "
                  "every request), STANDALONE (a small model), EAGLE3 (a head for the model), "
                  "NEXTN or EAGLE (the model's MTP layers), DSPARK; NONE")
      ->group(group);
  command
      .add_option("--speculative-num-draft-tokens", o.num_draft_tokens,
                  "most tokens that a step verifies for a request: its drafts and one more (NGRAM "
                  "12, STANDALONE 4, EAGLE3 4, NEXTN 2, DSPARK 6)")
      ->check(CLI::Range(2, 65))
      ->group(group);
  command
      .add_option("--speculative-num-steps", o.num_steps, "the same less one: drafts of a request")
      ->check(CLI::Range(1, 64))
      ->group(group);
  command
      .add_option("--speculative-draft-model-path", o.draft_model_path,
                  "STANDALONE: a model with the same vocabulary; EAGLE3: the head")
      ->group(group);
  command
      .add_option("--speculative-eagle-topk", o.eagle_topk,
                  "SGLang's guesses for a place; drafts are a chain, which is 1")
      ->group(group);
  command
      .add_option("--speculative-adaptive", o.adaptive,
                  "on: as many drafts as make tokens come fastest, by their chances and the "
                  "measured time of steps; off: all there are, for runs to compare")
      ->expected(0, 1)
      ->default_str("on")
      ->group(group);
  command
      .add_option("--speculative-forced-acceptance", o.forced_acceptance,
                  "for benches, answers are wrong: tokens that a verified row brings, on average")
      ->group(group);
}

CLI::Validator NumberBetween(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return fmt::format("{} is not a number between {} and {}", text, low, high);
  };
  return {check, fmt::format("in [{} - {}]", low, high)};
}

std::string SuggestFlag(const CLI::App& command, const std::string& flag) {
  if (std::string advice = AdviceOnSglangFlag(flag); !advice.empty()) return advice;
  const std::string name = flag.substr(0, flag.find('='));
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      const std::string candidate = "--" + long_name;
      const size_t distance = EditDistance(name, candidate);
      if (distance < best_distance) {
        best = candidate;
        best_distance = distance;
      }
    }
  }
  return best.empty() ? "" : "did you mean " + best + "?";
}

}  // namespace hayate::app
