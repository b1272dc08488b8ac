// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include "optim/update/tensor_parameters.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::testing {

/// CPU memory that is treated as a GPU's: updates work on tensors, and the host does not see gradients.
class DeviceParametersDouble : public FlatParametersDouble, public optim::TensorParameters {
 public:
  using FlatParametersDouble::FlatParametersDouble;

  optim::TensorParameters* as_tensors() noexcept override { return this; }
  void visit_gradients(const std::function<void(const optim::GradientPiece&)>&, bool) override {
    ADD_FAILURE() << "the host does not see gradients";
  }
  at::Tensor flat_parameter(std::size_t, std::size_t segment) override {
    const optim::FlatBlock& block = blocks()[0];
    const optim::Segment& part = block.segments[segment];
    return over(block.parameters + static_cast<std::size_t>(part.offset) * size_of(block.dtype), part);
  }
  at::Tensor flat_gradient(std::size_t block, std::size_t segment) override {
    return over(const_cast<std::byte*>(gradient(block, segment)), blocks()[0].segments[segment]);
  }

 private:
  at::Tensor over(std::byte* values, const optim::Segment& segment) const {
    return at::from_blob(values, {segment.count}, optim::scalar_type_of(blocks()[0].dtype));
  }
};

}  // namespace lockstep::testing
