#include "app/model_options.h"

#include "base/error.h"
#include "tensor/device.h"

namespace hayate::app {
namespace {

void Default(int32_t& value, int32_t fallback) {
  if (value == 0) value = fallback;
}

Status CheckGpus(const ModelOptions& options) {
  const int count = CountCudaDevices();
  const int64_t last = options.base_gpu_id + int64_t{options.gpu_id_step} * (options.tp_size - 1);
  if (last < count) return OkStatus();
  return Error(ErrorCode::kInvalidArgument,
               "--tp-size {} with --base-gpu-id {} and --gpu-id-step {} computes on GPU {}: there "
               "are {}; with --gpu-id-step 0 ranks share one",
               options.tp_size, options.base_gpu_id, options.gpu_id_step, last, count);
}

}  // namespace

Result<ModelOptions> WithDeviceDefaults(ModelOptions options) {
  if (options.tp_size > 1 && options.gpu_id_step == 0) PrepareToShareGpus();
  if (options.device == "auto") options.device = CountCudaDevices() > 0 ? "cuda" : "cpu";
  const bool cuda = options.device == "cuda";
  if (options.kv_cache_dtype == "auto") {
    options.kv_cache_dtype = !cuda ? "f16" : options.precision == "exact" ? "f32" : "bf16";
  }
  // Whether a model has the type is the model's to say; keys and values of int8 are the CPU's
  // alone.
  if (cuda && options.kv_cache_dtype == "int8") {
    return Error(ErrorCode::kInvalidArgument, "--kv-cache-dtype int8 is for --device cpu");
  }
  if (options.quantization != "none" && (!cuda || options.precision == "exact")) {
    return Error(ErrorCode::kInvalidArgument,
                 "--quantization {} is for --device cuda with --precision fast",
                 options.quantization);
  }
  if (cuda) RETURN_IF_ERROR(CheckGpus(options));
  if (!cuda && options.tp_size > 1 && options.threads > 0 && options.threads != options.tp_size) {
    return Error(ErrorCode::kInvalidArgument,
                 "--tp-size {} and --threads {}: a CPU rank is a thread, so they are one number",
                 options.tp_size, options.threads);
  }
  if (options.dp_size > 1 && !options.enable_dp_attention) {
    return Error(ErrorCode::kInvalidArgument,
                 "--dp-size {} needs --enable-dp-attention; whole replicas are processes of their "
                 "own behind hayate gateway",
                 options.dp_size);
  }
  Default(options.page_size, cuda ? 64 : 32);
  Default(options.max_running_requests, cuda ? 256 : 64);
  Default(options.chunked_prefill_size, cuda ? 8192 : 512);
  Default(options.mixed_chunk_size, cuda ? 256 : options.chunked_prefill_size);
  Default(options.cuda_graph_max_bs, options.max_running_requests);
  if (options.disable_cuda_graph) options.cuda_graph_max_bs = 0;
  if (options.mem_fraction_static == 0.0) options.mem_fraction_static = cuda ? 0.88 : 0.25;
  return options;
}

}  // namespace hayate::app
