#include "tensor/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace hayate {
namespace {

bool AmxUsable() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  if ((edx & kAll) != kAll) return false;
  // Linux keeps the 8 KiB of tile state from a process until it asks.
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuFeatures Detect() {
  CpuFeatures found;
  __builtin_cpu_init();
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
  found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
  found.avx512_bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16");
  found.amx_int8 = found.avx512_vnni && AmxUsable();

  const char* limit = std::getenv("HAYATE_CPU");
  if (limit == nullptr) return found;
  const std::string_view level = limit;
  if (level == "ref") return {};
  if (level == "avx2") return {.avx2 = found.avx2};
  if (level == "avx512") return {.avx2 = found.avx2, .avx512 = found.avx512};
  if (level == "vnni" || level == "bf16") found.amx_int8 = false;
  if (level == "vnni") found.avx512_bf16 = false;
  return found;
}

}  // namespace

const CpuFeatures& DetectCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string ToString(const CpuFeatures& features) {
  if (!features.avx2) return "plain";
  if (!features.avx512) return "avx2";
  std::string name = "avx512";
  if (features.avx512_vnni) name += "-vnni";
  if (features.avx512_bf16) name += "-bf16";
  if (features.amx_int8) name += "-amx";
  return name;
}

}  // namespace hayate
