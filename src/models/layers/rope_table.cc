#include "models/layers/rope_table.h"

namespace hayate::models {

Result<RopeTable> PlaceFrequencies(Device& device, const ops::RopeFrequencies& frequencies) {
  const size_t bytes = frequencies.inv_freq.size() * sizeof(float);
  RopeTable table = {.attention_factor = frequencies.attention_factor};
  ASSIGN_OR_RETURN(table.inv_freq, Buffer::Allocate(device, bytes));
  device.Upload(table.inv_freq.data(), frequencies.inv_freq.data(), bytes);
  return table;
}

}  // namespace hayate::models
