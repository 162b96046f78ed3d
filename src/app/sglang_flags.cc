#include "app/sglang_flags.h"

namespace hayate::app {
namespace {

struct Advice {
  std::string_view flag;  // without dashes in front; "moe-*": all that begin so
  std::string_view says;  // after "Hayate "
};

// The first that fits counts: exact names stand before families.
constexpr Advice kAdvice[] = {
    // Done always, or chosen by itself.
    {"enable-mixed-chunk", "always mixes prefill into decode steps: leave it out"},
    {"disable-overlap-schedule", "always prepares a step ahead: leave it out"},
    {"enable-deterministic-inference", "has it as --deterministic, and on the CPU always"},
    {"random-seed", "takes a seed in each request"},
    {"sleep-on-idle", "always sleeps when idle: leave it out"},
    {"skip-server-warmup", "needs no warm-up request: leave it out"},
    {"enable-ssl-refresh", "follows changed certificates always: leave it out"},
    {"enable-p2p-check", "checks peer access always: leave it out"},
    {"disable-custom-all-reduce", "chooses its all-reduce by size: leave it out"},
    {"disable-cuda-graph-padding", "pads to few sizes always: leave it out"},
    {"enable-metrics-for-all-schedulers", "counts in one place: --enable-metrics is all"},
    {"enable-priority-scheduling", "has it as --schedule-policy priority"},
    {"tokenizer-worker-num", "has threads: --http-threads"},
    {"detokenizer-worker-num", "detokenises on --http-threads"},
    {"num-continuous-decode-steps", "needs no such interval: leave it out"},
    {"scheduler-recv-interval", "needs no such interval: leave it out"},
    {"decode-log-interval", "shows its steps in /metrics and hayate trace"},
    {"dtype", "keeps the checkpoint's; --precision and --quantization change how it computes"},
    {"tokenizer-mode", "has one tokenizer, of its own: leave it out"},
    {"tokenizer-backend", "has one tokenizer, of its own: leave it out"},
    {"enable-streaming-session", "opens sessions by /open_session: leave it out"},
    {"enable-http2", "speaks HTTP/1.1; put a proxy in front for HTTP/2"},
    {"enable-trace", "writes spans with --trace-file"},
    {"otlp-traces-endpoint", "writes spans with --trace-file, for a collector to read"},
    {"log-requests", "writes a line a request with --access-log"},
    {"log-requests-*", "writes a line a request with --access-log"},
    {"uvicorn-access-log-exclude-prefixes", "writes a line a request with --access-log"},
    {"max-prefill-tokens", "has one bound of a step: --chunked-prefill-size"},
    {"prefill-max-requests", "has one bound of a step: --chunked-prefill-size"},
    {"cuda-graph-max-bs-decode", "has it as --cuda-graph-max-bs"},
    {"cuda-graph-bs", "has it as --cuda-graph-max-bs"},
    {"cuda-graph-*", "has --cuda-graph-max-bs and --disable-cuda-graph"},
    {"disable-decode-cuda-graph", "has it as --disable-cuda-graph"},
    {"disable-prefill-cuda-graph", "captures decode steps alone: leave it out"},
    {"attention-backend", "chooses its kernels by device and shape: leave it out"},
    {"prefill-attention-backend", "chooses its kernels by device and shape: leave it out"},
    {"decode-attention-backend", "chooses its kernels by device and shape: leave it out"},
    {"sampling-backend", "chooses its kernels by device and shape: leave it out"},
    {"moe-runner-backend", "chooses its kernels by device and shape: leave it out"},
    {"fp8-gemm-*", "chooses its kernels by device and shape: leave it out"},
    {"fp4-gemm-*", "chooses its kernels by device and shape: leave it out"},
    {"bf16-gemm-*", "chooses its kernels by device and shape: leave it out"},
    {"triton-attention-*", "chooses its kernels by device and shape: leave it out"},
    {"flashinfer-*", "chooses its kernels by device and shape: leave it out"},
    {"disable-flashinfer-*", "chooses its kernels by device and shape: leave it out"},
    {"dsa-*", "chooses its kernels by device and shape: leave it out"},
    {"linear-attn-*", "chooses its kernels by device and shape: leave it out"},
    {"mamba-*", "sizes state caches by itself: leave it out"},
    // There is none.
    {"trust-remote-code", "runs no code of a checkpoint: its model families are built in"},
    {"revision", "reads local files: --model-path names them"},
    {"download-dir", "reads local files: --model-path names them"},
    {"model-impl", "has one implementation of each family: leave it out"},
    {"json-model-override-args", "reads config.json as it stands; edit a copy of it"},
    {"is-embedding", "serves /v1/embeddings of every model: leave it out"},
    {"enable-torch-compile", "compiles ahead of time: leave it out"},
    {"torch-compile-*", "compiles ahead of time: leave it out"},
    {"torchao-config", "has --quantization"},
    {"fastapi-root-path", "serves at the root; strip the prefix in the proxy"},
    {"file-storage-path", "stores no files: leave it out"},
    {"swa-full-tokens-ratio", "sizes window pools by itself: leave it out"},
    {"radix-eviction-policy", "evicts the least recently used: leave it out"},
    {"retraction-policy", "retracts the last in serving order: leave it out"},
    {"schedule-conservativeness", "adapts its reserve by itself: leave it out"},
    {"watchdog-timeout", "ends on a device failure by itself: leave it out"},
    {"soft-watchdog-timeout", "ends on a device failure by itself: leave it out"},
    {"crash-dump-folder", "keeps no requests; hayate trace shows the last steps"},
    {"enable-torch-*", "does not use torch: leave it out"},
    {"enable-memory-saver", "cannot give its memory back while it runs"},
    {"enable-custom-logit-processor", "runs no code of a request"},
    {"enable-return-hidden-states", "gives no hidden states; see /v1/embeddings"},
    {"enable-lora", "has no LoRA adapters"},
    {"lora-*", "has no LoRA adapters"},
    {"max-lora-*", "has no LoRA adapters"},
    {"max-loaded-loras", "has no LoRA adapters"},
    {"max-loras-*", "has no LoRA adapters"},
    {"enable-hierarchical-cache", "caches prefixes in the device's memory alone"},
    {"hicache-*", "caches prefixes in the device's memory alone"},
    {"enable-lmcache", "caches prefixes in the device's memory alone"},
    {"enable-multimodal", "takes text alone"},
    {"mm-*", "takes text alone"},
    {"limit-mm-data-per-request", "takes text alone"},
    {"speculative-*", "has no such option of speculative decoding"},
    {"disaggregation-*", "has no such option of prefill/decode pairs"},
    {"cpu-offload-gb", "keeps all weights on the device; --tp-size shares them"},
    {"kt-*", "keeps all weights on one kind of device"},
    {"deepep-*", "chooses its exchange by itself: leave it out"},
    {"eplb-*", "places experts once, at the start"},
    {"enable-eplb", "places experts once, at the start"},
    {"moe-*", "has no such option of expert parallelism"},
    {"ep-*", "has no such option of expert parallelism"},
    {"bucket-*", "has fixed buckets in its histograms"},
    {"prompt-tokens-buckets", "has fixed buckets in its histograms"},
    {"generation-tokens-buckets", "has fixed buckets in its histograms"},
};

bool Fits(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

std::string AdviceOnSglangFlag(std::string_view flag) {
  if (!flag.starts_with("--")) return "";
  const std::string_view name = flag.substr(2, flag.find('=') - 2);
  for (const Advice& advice : kAdvice) {
    if (Fits(advice.flag, name)) return "it is SGLang's: Hayate " + std::string(advice.says);
  }
  return "";
}

}  // namespace hayate::app
