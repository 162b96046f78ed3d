#pragma once
// Graphs that are given up before their device ends.

#include "tensor/device.h"

namespace hayate {

// Frees a graph that is not running, of a device that MakeCudaDevice or MakeCpuDevice gave. A null
// one is nothing. The rank's thread.
void DiscardGraph(Device& device, Graph graph);

}  // namespace hayate
