// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "optim/update/tensor_parameters.hpp"

namespace lockstep::parallel {

class ParameterStore;

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
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void own_whole_parameters() override;
  void finish_gradients() override;
  bool has_gradient(std::size_t block, std::size_t segment) const override;
  void visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) override;
  optim::TensorParameters* as_tensors() noexcept override;
  void drop_gradients() override;
  void write(const std::function<void()>& body) override;
  void write_alone(const std::function<void()>& body) override;
  void sum_over_owners(std::span<double> values) const override;

 private:
  bool is_divided() const noexcept override;
  at::Tensor flat_parameter(std::size_t block, std::size_t segment) override;
  at::Tensor flat_gradient(std::size_t block, std::size_t segment) override;
  void sum_over_ranks(const at::Tensor& values) override;
  void maximum_over_ranks(const at::Tensor& values) override;

  ParameterStore* store_;
  std::size_t part_;
  std::vector<std::size_t> numbers_;
  std::vector<optim::FlatBlock> blocks_;
};

}  // namespace lockstep::parallel
