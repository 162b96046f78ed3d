#pragma once
// The launchers of ops/quantize/fp8_rows.h.

#include "ops/quantize/fp8_rows.h"

namespace hayate::ops::sm90 {

void QuantizeRows(Stream stream, const QuantizeRowsArgs& args);

}  // namespace hayate::ops::sm90
