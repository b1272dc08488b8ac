// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/flat_parameters.hpp>
#include <lockstep/parallel/bucket_plan.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// A parameter of the model: its tensor and its full name.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// Owns the values of all trained parameters, in flat blocks of the buckets' layout, and is the only one to write them.
///
/// The model's parameters become views of the blocks; nothing may replace a parameter's storage afterwards. On CPU the
/// ranks of a host can share one copy: each rank then writes its own slice, and optimizer state exists once per host.
class ParameterStore : public optim::FlatParameters {
 public:
  /// Moves the parameters into blocks and gives all ranks the values of rank 0. Collective.
  ///
  /// @param parameters   in registration order; float32 or float64, on CPU
  /// @param buckets      from plan_buckets over the same parameters
  /// @param world        all ranks
  /// @param is_shared    one copy for the ranks of a host; the same on every rank
  /// @throws CommError   shared memory cannot be had, on every rank
  ParameterStore(std::vector<NamedParameter> parameters, const std::vector<Bucket>& buckets,
                 const mpi::Communicator& world, bool is_shared);
  ~ParameterStore() override;

  bool is_shared() const noexcept { return host_.size() > 1; }

  std::span<const optim::Block> blocks() const override { return blocks_; }
  void finish_gradients() override;
  const std::byte* gradient(std::size_t block, std::size_t segment) const override;
  void drop_gradients() override;
  void write(const std::function<void()>& body) override;
  double sum_over_slices(double value) const override;
  double max_over_slices(double value) const override;

  /// Like write, but one rank of each copy runs `body`, which may write any parameter whole. Collective.
  void write_whole(const std::function<void()>& body);

  /// What finish_gradients does: the wrapper connects the reducer here.
  void on_finish_gradients(std::function<void()> finish) { finish_gradients_ = std::move(finish); }

  /// The ranks that share this rank's copy (this rank alone when nothing is shared), in slice order.
  const mpi::Communicator& sharers() const noexcept { return host_; }
  std::size_t size() const noexcept { return parameters_.size(); }  ///< number of parameters
  const NamedParameter& parameter(std::size_t index) const { return parameters_.at(index); }
  /// Index of the parameter that is segment `segment` of block `block`.
  std::size_t index_of(std::size_t block, std::size_t segment) const { return index_.at(block).at(segment); }

 private:
  std::vector<NamedParameter> parameters_;
  std::vector<std::vector<std::size_t>> index_;  // [block][segment] -> registration order
  std::vector<optim::Block> blocks_;
  std::vector<std::shared_ptr<void>> memory_;
  mpi::Communicator host_;
  std::function<void()> finish_gradients_;
};

}  // namespace lockstep::parallel
