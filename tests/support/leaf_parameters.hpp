// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "support/flat_parameters_double.hpp"

namespace lockstep::testing {

/// Parameters that are leaves of a graph: their gradients are those that backward accumulates.
class LeafParameters : public FlatParametersDouble {
 public:
  LeafParameters(DType dtype, const std::vector<Parameter>& parameters) : FlatParametersDouble(dtype, parameters) {
    const auto type = dtype == DType::float64 ? torch::kFloat64 : torch::kFloat32;
    for (const optim::Segment& segment : blocks()[0].segments) {
      std::byte* const begin = blocks()[0].parameters + static_cast<std::size_t>(segment.offset) * size_of(dtype);
      leaves_.push_back(torch::from_blob(begin, segment.shape, type).requires_grad_());
    }
  }

  const at::Tensor& leaf(std::size_t i) const { return leaves_.at(i); }
  const std::byte* gradient(std::size_t, std::size_t segment) const override {
    const at::Tensor& gradient = leaves_[segment].grad();
    return gradient.defined() ? static_cast<const std::byte*>(gradient.const_data_ptr()) : nullptr;
  }
  void drop_gradients() override {
    for (const at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> leaves_;
};

}  // namespace lockstep::testing
