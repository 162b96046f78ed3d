#pragma once
// What the machine offers: cores and memory.

#include <cstdint>
#include <string>

namespace hayate::app {

// Physical cores that this process may use (its affinity mask and cgroup quota count).
int NumPhysicalCores();
// Bytes that can be allocated without swapping: MemAvailable, or less under a cgroup limit.
int64_t AvailableMemoryBytes();
// "AMD EPYC 9554, 2 cores".
std::string CpuName();

}  // namespace hayate::app
