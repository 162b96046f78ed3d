#include "ops/matmul/sm90/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <glob.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/align.h"
#include "base/log.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";
// Where pip and the toolkit put it, beside the loader's own path.
constexpr const char* kFolders[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda-13*/lib64",
    "/usr/local/lib/python3*/*-packages/nvidia/cu13/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/cublas/lib",
    "/usr/lib/python3*/*-packages/nvidia/cu13/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/cu13/lib",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/cu13/lib",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/cublas/lib",
};

void* OpenLibrary() {
  if (void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return library;
  void* library = nullptr;
  for (const char* folder : kFolders) {
    glob_t found{};
    const std::string pattern = std::string(folder) + "/" + kLibrary;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc && library == nullptr; ++i) {
        library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
      }
    }
    globfree(&found);
    if (library != nullptr) return library;
  }
  return nullptr;
}

// The functions of the library that this file calls.
struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  bool Load(void* library) {
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(create, "cublasLtCreate") && find(matmul, "cublasLtMatmul") &&
           find(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           find(desc_create, "cublasLtMatmulDescCreate") &&
           find(desc_destroy, "cublasLtMatmulDescDestroy") &&
           find(desc_set, "cublasLtMatmulDescSetAttribute") &&
           find(layout_create, "cublasLtMatrixLayoutCreate") &&
           find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           find(preference_create, "cublasLtMatmulPreferenceCreate") &&
           find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  }
};

// Null: not found. Stays loaded until the process ends.
const Functions* LoadedFunctions() {
  static const Functions* const loaded = []() -> const Functions* {
    static Functions functions;
    void* library = OpenLibrary();
    if (library != nullptr && functions.Load(library)) return &functions;
    std::string folders;
    for (const char* folder : kFolders)
      folders += std::string(folders.empty() ? "" : ", ") + folder;
    LOG_WARN("no {} on the loader's path nor in {}: bf16 products use this program's own kernels",
             kLibrary, folders);
    return nullptr;
  }();
  return loaded;
}

// The descriptions of one product; destroyed in any case.
class Problem {
 public:
  Problem(const Functions& functions, const GemmArgs& args, int64_t t) : f_(functions) {
    const cudaDataType_t out = args.out_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    // In cuBLAS's column-major terms: out [N, T] = Wᵀ [N, K] · x [K, T].
    const auto n = static_cast<uint64_t>(args.n), k = static_cast<uint64_t>(args.k);
    ok_ = f_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
          f_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) ==
              CUBLAS_STATUS_SUCCESS &&
          f_.layout_create(&w, CUDA_R_16BF, k, n, args.k) == CUBLAS_STATUS_SUCCESS &&
          f_.layout_create(&x, CUDA_R_16BF, k, static_cast<uint64_t>(t), args.k) ==
              CUBLAS_STATUS_SUCCESS &&
          f_.layout_create(&d, out, n, static_cast<uint64_t>(t), args.out_stride) ==
              CUBLAS_STATUS_SUCCESS;
  }
  ~Problem() {
    if (d != nullptr) f_.layout_destroy(d);
    if (x != nullptr) f_.layout_destroy(x);
    if (w != nullptr) f_.layout_destroy(w);
    if (desc != nullptr) f_.desc_destroy(desc);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  bool ok() const { return ok_; }
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, d = nullptr;

 private:
  const Functions& f_;
  bool ok_ = false;
};

class Plans final : public CublasLtPlans {
 public:
  Plans(const Functions& functions, cublasLtHandle_t handle) : f_(functions), handle_(handle) {}

  bool Run(Stream stream, const GemmArgs& args, void* workspace) override {
    const Problem problem(f_, args, args.t);
    if (!problem.ok()) return false;
    const cublasLtMatmulAlgo_t* algo = AlgoFor(args);
    if (algo == nullptr) return false;
    const float one = 1.0f, zero = 0.0f;
    const cublasStatus_t status = f_.matmul(
        handle_, problem.desc, &one, args.w, problem.w, args.x, problem.x, &zero, args.out,
        problem.d, args.out, problem.d, algo, workspace,
        static_cast<size_t>(kCublasLtWorkspaceBytes), static_cast<cudaStream_t>(stream.handle));
    return status == CUBLAS_STATUS_SUCCESS;
  }

 private:
  // Token counts that share a choice.
  static int64_t BucketOf(int64_t t) {
    return t <= 1024 ? AlignUp<int64_t>(t, 64) : AlignUp<int64_t>(t, 256);
  }

  // Null where there is none. A choice stays where it is.
  const cublasLtMatmulAlgo_t* AlgoFor(const GemmArgs& args) {
    const auto key = std::tuple(BucketOf(args.t), args.out_dtype, args.n, args.k, args.out_stride);
    const std::lock_guard lock(mutex_);
    const auto [entry, made] = algos_.try_emplace(key);
    Choice& choice = entry->second;
    if (made) choice.found = Ask(args, std::get<0>(key), &choice.algo);
    return choice.found ? &choice.algo : nullptr;
  }

  bool Ask(const GemmArgs& args, int64_t t, cublasLtMatmulAlgo_t* algo) const {
    const Problem problem(f_, args, t);
    cublasLtMatmulPreference_t preference = nullptr;
    if (!problem.ok() || f_.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return false;
    const size_t bytes = static_cast<size_t>(kCublasLtWorkspaceBytes);
    f_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        f_.heuristic(handle_, problem.desc, problem.w, problem.x, problem.d, problem.d, preference,
                     1, &result, &found);
    f_.preference_destroy(preference);
    *algo = result.algo;
    return status == CUBLAS_STATUS_SUCCESS && found == 1;
  }

  struct Choice {
    bool found = false;
    cublasLtMatmulAlgo_t algo{};
  };
  const Functions& f_;
  const cublasLtHandle_t handle_;  // of the device
  std::mutex mutex_;               // guards algos_
  std::map<std::tuple<int64_t, DType, int64_t, int64_t, int64_t>, Choice> algos_;
};

}  // namespace

std::shared_ptr<CublasLtPlans> CublasLtPlans::OfCurrentDevice() {
  const Functions* functions = LoadedFunctions();
  if (functions == nullptr) return nullptr;
  constexpr int kMaxDevices = 64;
  struct Devices {
    std::mutex mutex;
    std::shared_ptr<CublasLtPlans> plans[kMaxDevices];
  };
  static Devices devices;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMaxDevices) return nullptr;
  const std::lock_guard lock(devices.mutex);
  std::shared_ptr<CublasLtPlans>& plans = devices.plans[device];
  // A handle belongs to the device that is current when it is made.
  cublasLtHandle_t handle = nullptr;
  if (plans == nullptr && functions->create(&handle) == CUBLAS_STATUS_SUCCESS) {
    plans = std::make_shared<Plans>(*functions, handle);
  }
  return plans;
}

}  // namespace hayate::ops::sm90
