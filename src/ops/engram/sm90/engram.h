#pragma once
// Engram on a CUDA device. The tables lie in pinned memory of the host: a row travels over the bus
// when a token asks for it.

#include "ops/engram/engram.h"

namespace hayate::ops::sm90 {

void EngramRemember(Stream stream, const EngramHistory& history, const int32_t* token_ids,
                    const int32_t* token_map);
void EngramGather(Stream stream, const EngramGatherArgs& args);
void EngramGate(Stream stream, const EngramGateArgs& args);

}  // namespace hayate::ops::sm90
