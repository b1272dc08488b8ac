// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <memory>
#include <vector>

#include "parallel/reducers/bucket_reducer.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

/// A BucketReducer for each part of the parameters, so that the parts can have backward passes of their own. Each has
/// collectives of its own, because a backward pass can mix the buckets of parts.
class SeparateReducer : public Reducer, public AdaptiveReducer {
 public:
  /// Allocates the buckets. Collective.
  /// @param parameters   in registration order, with their parts
  /// @param collectives  of several ranks
  /// @param world        the same ranks; outlives the reducer
  SeparateReducer(const std::vector<NamedParameter>& parameters, const ReducerOptions& options,
                  mpi::Collectives& collectives, const mpi::Communicator& world);

  void prepare(Synchronization mode) override {
    for (const ChildReducer& part : parts_) part.reducer->prepare(mode);
  }
  void finish() override {
    for (const ChildReducer& part : parts_) part.reducer->finish();
  }
  void prepare_part(std::size_t part, Synchronization mode) override { parts_.at(part).reducer->prepare(mode); }
  void finish_part(std::size_t part) override { parts_.at(part).reducer->finish(); }
  bool watches_outputs() const noexcept override { return parts_.front().reducer->watches_outputs(); }
  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs) override;
  void check_last_step() override {
    for (const ChildReducer& part : parts_) part.reducer->check_last_step();
  }
  void reset(GivenUp what) override {
    for (const ChildReducer& part : parts_) part.reducer->reset(what);
  }
  BucketReport report() const override;
  BucketLayout learned_layout() const override;
  bool restore_layout(const BucketLayout& layout) override;

 private:
  struct ChildReducer {
    std::unique_ptr<mpi::Collectives> collectives;
    std::vector<std::size_t> members;  // numbers of parameters
    std::unique_ptr<BucketReducer> reducer;
  };
  struct SeparatePosition {
    std::size_t part = 0;
    std::size_t place = 0;  // among its members
  };

  std::vector<ChildReducer> parts_;
  std::vector<SeparatePosition> positions_;  // position of each parameter
};

}  // namespace lockstep::parallel
