#include "app/machine.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace hayate::app {
namespace {

// The first number of a file, or `fallback` where there is none ("max").
int64_t NumberIn(const char* path, int64_t fallback) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : fallback;
}

// CPUs of the cgroup v2 quota, rounded up; a large number without one.
int CgroupCpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  int64_t quota = 0;
  int64_t period = 0;
  if (!(file >> quota >> period) || period <= 0) return std::numeric_limits<int>::max();
  return static_cast<int>(std::max<int64_t>(1, (quota + period - 1) / period));
}

int AllowedCores() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return 1;
  int cores = 1;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS);
    cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
    hwloc_bitmap_free(allowed);
  }
  hwloc_topology_destroy(topology);
  return cores;
}

}  // namespace

int NumPhysicalCores() { return std::max(1, std::min(AllowedCores(), CgroupCpus())); }

int64_t AvailableMemoryBytes() {
  int64_t available = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream fields(line);
    std::string key;
    int64_t kib = 0;
    if (fields >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max", kNoLimit);
  if (limit == kNoLimit) return available;
  return std::min(available, limit - NumberIn("/sys/fs/cgroup/memory.current", 0));
}

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) break;
    return line.substr(colon + 2) + ", " + std::to_string(NumPhysicalCores()) + " cores";
  }
  return std::to_string(NumPhysicalCores()) + " cores";
}

}  // namespace hayate::app
