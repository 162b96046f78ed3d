#pragma once
// The change of a model's weights on all ranks at once: each loads its shard of the new checkpoint,
// beside the old one or in its place; then all take theirs, or none does.

#include <barrier>
#include <memory>
#include <vector>

#include "base/status.h"
#include "exec/weight_places.h"
#include "models/model.h"
#include "models/registry.h"

namespace hayate::exec {

// Whether `wanted` can take the place of `served` in steps that are laid out already:
// kInvalidArgument says what differs.
Status CheckSameShape(const models::Model& served, const models::Model& wanted);

// Whether the tensors of `wanted` have the names, types and shapes of those of `served`, so that
// one loading is like the other: kInvalidArgument names what differs.
Status CheckSameTensors(const weights::Checkpoint& served, const weights::Checkpoint& wanted);

class WeightReplacement {
 public:
  // The checkpoint outlives the models that come of it.
  WeightReplacement(const weights::Checkpoint& checkpoint, int num_ranks)
      : checkpoint_(checkpoint), statuses_(static_cast<size_t>(num_ranks)), meet_(num_ranks) {}

  // The rank's new model, once all ranks have theirs; null, and the served one stays, where any of
  // them failed. Every rank calls it, on its thread.
  std::unique_ptr<models::Model> Load(int rank, const models::LoadOptions& options,
                                      const models::Model& served);
  // The same in the place of the served weights, whose checkpoint is `before`. Where any rank fails
  // all load that one again; a rank that cannot has no weights any more, and its device has failed.
  std::unique_ptr<models::Model> LoadInPlace(int rank, const models::LoadOptions& options,
                                             const models::Model& served,
                                             const weights::Checkpoint& before,
                                             WeightPlaces& places);
  // Every rank calls it once it has done away with the model that it does not keep; returns when
  // all have.
  void Leave() { meet_.arrive_and_wait(); }

  // After a rank has left: the first failure.
  Status outcome() const;

 private:
  const weights::Checkpoint& checkpoint_;
  std::vector<Status> statuses_;  // each written by its rank before it meets the others
  std::barrier<> meet_;
};

}  // namespace hayate::exec
