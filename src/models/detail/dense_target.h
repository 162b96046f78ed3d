#pragma once
// What an EAGLE-3 head uses of its target beside the states of some layers: the embedding.

#include "models/layers/embedding_table.h"
#include "models/model.h"

namespace hayate::models {

class DenseTarget : public Model {
 public:
  virtual const EmbeddingTable& embedding() const = 0;
};

}  // namespace hayate::models
