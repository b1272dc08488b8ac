// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/flat_parameters.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "optim/update/tensor_parameters.hpp"
#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/ownership.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

class HostCopies;
class PartParameters;
class ShardRanks;
class Shards;
class StepRecorder;
class WriteGuard;

/// Owns the values of all trained parameters, in one flat block per dtype and part, and is the only one to write them.
/// The blocks lie on the device of the parameters.
///
/// The model's parameters become views of the blocks, in registration order; nothing may replace a parameter's storage
/// afterwards. On CPU the ranks of a host can share one copy: each rank then writes its own parts, and optimizer state
/// exists once per host. Who owns what follows the gradient buckets, so that each rank works on an even part of each.
///
/// Sharded, each rank owns a slice of every unit and has state for that alone: a block is this rank's slice of a unit.
/// The parameters are whole on every rank, or with stage 3 only between gather and release. Blocks and states lie on
/// the device of the parameters, or in the host's memory if they are offloaded. All ranks divide one copy of the state,
/// or the ranks of each host divide one: copies are equal, and one of them counts in sums over the ranks.
class ParameterStore : public optim::FlatParameters, public optim::LoneWriter, private optim::TensorParameters {
 public:
  /// Moves the parameters into blocks and gives all ranks the values of rank 0. Collective.
  ///
  /// @param parameters   in registration order, all on one device
  /// @param world        all ranks
  /// @param collectives  of the same ranks; outlives the store
  /// @param sharers      the ranks of one host that share a copy with this one; or this one alone, as it must be where
  ///                     parameters lie on a GPU
  /// @param is_as_on_gpu   for tests: updates work on tensors
  /// @param checks_writes  a write to a parameter outside of `write` ends the job with exit code 2, and states the
  ///                       parameter and with its stack. Costs system calls in every write; on CPU
  /// @throws CommError   shared memory cannot be had, on every rank
  ParameterStore(std::vector<NamedParameter> parameters, const mpi::Communicator& world, mpi::Collectives& collectives,
                 mpi::Communicator node_ranks, bool checks_writes = false, bool is_as_on_gpu = false);
  /// The sharded form.
  /// @param ranks  outlives the store
  /// @param units  of all parameters, divided among the ranks of a copy
  /// @param stage  1 to 3, see Sharding
  ParameterStore(std::vector<NamedParameter> parameters, const mpi::Communicator& world, const ShardRanks& ranks,
                 std::vector<Unit> units, const Sharding& sharding);
  ~ParameterStore() override;

  bool is_shared() const noexcept { return host_.size() > 1; }
  /// The slices, where parameters are sharded; else null.
  Shards* shards() noexcept { return shards_.get(); }
  const Shards* shards() const noexcept { return shards_.get(); }
  /// The number of copies of the state that the ranks hold where it is sharded; else 1.
  int copies() const noexcept;

  /// The gradients come from here, for the same parameters; it outlives the store's use.
  void connect(Reducer& reducer);
  /// Gives each rank that shares a copy its parts of new buckets.
  void follow_buckets(const std::vector<Bucket>& buckets);
  /// States `recorder` from now on what visits and meetings take; it outlives the store. Call before follow_buckets.
  void record_into(StepRecorder& recorder) { recorder_ = &recorder; }

  /// The parameters of one part, see DdpOptions::parts.
  PartParameters& part(std::size_t part) { return *parts_.at(part); }

  std::span<const optim::FlatBlock> blocks() const override { return blocks_; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void own_whole_parameters() override;
  bool is_divided() const noexcept override { return shards_ != nullptr && node_ranks_->world_size() > 1; }
  void finish_gradients() override;
  /// The answer of a parameter that is held: false.
  bool has_gradient(std::size_t block, std::size_t segment) const override;
  void visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) override;
  void drop_gradients() override { drop_gradients_of(std::nullopt); }
  optim::TensorParameters* as_tensors() noexcept override { return are_tensors_ ? this : nullptr; }
  void write(const std::function<void()>& body) override;
  void write_alone(const std::function<void()>& body) override;
  void sum_over_owners(std::span<double> values) const override;

  // The same for one part or one block. With sliced gradients, the parts are updated before any of them drops its own.
  void finish_gradients_of(std::size_t part);
  void visit_block(std::size_t block, const std::function<void(const optim::GradientPiece&)>& visit, bool is_last);
  /// @param part  none = all parts
  void drop_gradients_of(std::optional<std::size_t> part);

  /// Like write, but one rank of each copy runs `body`, which may write any parameter whole. Collective.
  void write_whole(const std::function<void()>& body);
  /// Runs `body` while all parameters are whole. Collective.
  void read_whole(const std::function<void()>& body);
  /// The place where blocks and states lie.
  at::Device device() const noexcept { return device_; }
  std::span<std::byte> bytes_of_block(std::size_t block) const;  ///< its parameters
  /// Values that lie like the segments of a block, each of its parameter's shape. Where blocks are slices those of all
  /// ranks are put together, in memory of their own: collective; else they are views.
  /// @param of_block  as allocate gave it, or bytes_of_block, or a state of the optimizer
  /// @param dtype     of its elements
  std::vector<at::Tensor> segments_of(std::size_t block, std::span<std::byte> of_block, DType dtype);
  /// If parameters are divided among ranks: gives all ranks the values that the owner of a segment has.
  /// Collective.
  /// @param values  without gaps, on the device of the parameters
  void broadcast_from_owner(std::size_t block, std::size_t segment, const at::Tensor& values);

  /// The ranks that share this rank's copy (this rank alone when nothing is shared).
  const mpi::Communicator& node_ranks() const noexcept { return host_; }
  std::size_t size() const noexcept { return parameters_.size(); }  ///< number of parameters
  const NamedParameter& parameter(std::size_t index) const { return parameters_.at(index); }
  /// From here on updates skip the parameter, as if no rank had a gradient for it: it keeps its values and its moments,
  /// and is in no norm. Holds are counted. On every rank alike, between steps; not collective.
  void hold(std::size_t index) { ++holds_.at(index); }
  /// Ends one hold.
  void let_go(std::size_t index) { --holds_.at(index); }
  bool is_held(std::size_t index) const { return holds_.at(index) > 0; }
  /// Index of the parameter that is segment `segment` of block `block`.
  std::size_t index_of(std::size_t block, std::size_t segment) const { return index_.at(block).at(segment); }

 private:
  bool is_on_gpu() const noexcept { return device_.is_cuda(); }
  /// Whether gradients wait to be visited in slices.
  bool is_sliced() const noexcept { return slices_ != nullptr && slices_->is_sliced(); }
  at::Tensor flat_parameter(std::size_t block, std::size_t segment) override;
  at::Tensor flat_gradient(std::size_t block, std::size_t segment) override;
  void sum_over_ranks(const at::Tensor& values) override;
  void maximum_over_ranks(const at::Tensor& values) override;
  void add_block(const std::vector<std::size_t>& members);
  /// The gradient, of the dtype and strides of its parameter.
  at::Tensor aligned_gradient(std::size_t block, std::size_t segment) const;
  /// Gives every rank that shares a copy its parts.
  void divide(const std::vector<Bucket>& buckets);
  void make_parts();
  void visit_all(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last);
  void visit_whole(std::size_t block, std::size_t segment,
                   const std::function<void(const optim::GradientPiece&)>& visit);
  /// Whether whole gradients lie on a GPU and updates are done on the host.
  bool has_gradients_elsewhere() const noexcept { return device_.is_cpu() && parameters_.front().tensor.is_cuda(); }
  /// Starts to copy the gradients of a block to the host, once until its last visit.
  void send_gradients(std::size_t block);
  /// The gradients of a block no longer need to be kept.
  void forget_sent_gradients(std::size_t block);
  void meet() const;
  /// Writes what this rank holds, where parameters are sharded. The device may still wait for what is offloaded.
  void write_slices(const std::function<void()>& body);

  std::vector<NamedParameter> parameters_;
  std::shared_ptr<void> claim_;  // while it lives, parameters_ count as wrapped
  std::vector<ParameterSpec> specs_;
  std::vector<int> holds_;                       // holds by parameter
  at::Device device_;                            // device of blocks and states
  bool are_tensors_;                             // updates work on tensors, which lie on a GPU
  std::vector<std::vector<std::size_t>> index_;  // [block][segment] -> registration order
  std::vector<optim::FlatBlock> blocks_;
  std::vector<std::shared_ptr<std::byte>> memory_;  // memory by block
  std::vector<std::unique_ptr<PartParameters>> parts_;
  bool owns_whole_ = false;  // each parameter has one owner
  bool checks_writes_;
  std::unique_ptr<WriteGuard> guard_;  // guard of all blocks, when writes are checked
  mpi::Communicator host_;
  const ShardRanks* shard_ranks_ = nullptr;           // null = parameters are not sharded
  mpi::Collectives* node_ranks_;                      // the same ranks as host_; where sharded, those of this copy
  std::unique_ptr<mpi::Collectives> own_node_ranks_;  // null = those of the gradients
  std::unique_ptr<Shards> shards_;                    // null = parameters are not sharded; blocks are their slices
  std::unique_ptr<HostCopies> host_gradients_;        // each block's; null unless they are elsewhere
  Reducer* reducer_ = nullptr;
  SlicedReducer* slices_ = nullptr;  // the same object; null = its gradients are always whole
  StepRecorder* recorder_ = nullptr;
};

/// A part of the parameters of a store, for an optimizer of its own: some of the store's blocks.
class PartParameters : public optim::FlatParameters, public optim::LoneWriter, private optim::TensorParameters {
 public:
  /// @param store   outlives this
  /// @param part    see DdpOptions::parts
  /// @param blocks  numbers of the blocks in the store
  PartParameters(ParameterStore& store, std::size_t part, std::vector<std::size_t> blocks);

  std::size_t part() const noexcept { return part_; }
  /// The number in the store of a block of this part.
  std::size_t in_store(std::size_t block) const { return numbers_.at(block); }
  /// Takes over from the store which elements this rank updates.
  void update_ownership();

  std::span<const optim::FlatBlock> blocks() const override { return blocks_; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return store_->allocate(bytes); }
  void own_whole_parameters() override { store_->own_whole_parameters(); }
  void finish_gradients() override { store_->finish_gradients_of(part_); }
  bool has_gradient(std::size_t block, std::size_t segment) const override {
    return store_->has_gradient(in_store(block), segment);
  }
  void visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) override;
  optim::TensorParameters* as_tensors() noexcept override { return store_->as_tensors() != nullptr ? this : nullptr; }
  void drop_gradients() override { store_->drop_gradients_of(part_); }
  void write(const std::function<void()>& body) override { store_->write(body); }
  void write_alone(const std::function<void()>& body) override { store_->write_alone(body); }
  void sum_over_owners(std::span<double> values) const override { store_->sum_over_owners(values); }

 private:
  bool is_divided() const noexcept override { return store_->is_divided(); }
  at::Tensor flat_parameter(std::size_t block, std::size_t segment) override {
    return store_->as_tensors()->flat_parameter(in_store(block), segment);
  }
  at::Tensor flat_gradient(std::size_t block, std::size_t segment) override {
    return store_->as_tensors()->flat_gradient(in_store(block), segment);
  }
  void sum_over_ranks(const at::Tensor& values) override { store_->as_tensors()->sum_over_ranks(values); }
  void maximum_over_ranks(const at::Tensor& values) override { store_->as_tensors()->maximum_over_ranks(values); }

  ParameterStore* store_;
  std::size_t part_;
  std::vector<std::size_t> numbers_;
  std::vector<optim::FlatBlock> blocks_;
};

}  // namespace lockstep::parallel
