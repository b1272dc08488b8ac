// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake_gpu/kernels/facts.hpp"

namespace lockstep::fake_gpu {

/// Size, strides and type of a tensor.
struct TensorLayout {
  bool is_defined = false;
  std::vector<std::int64_t> sizes = {};
  std::vector<std::int64_t> strides = {};
  at::ScalarType type = at::kFloat;
};

/// The result that a call returns, before its values are known.
struct TensorOutcome {
  std::vector<std::vector<TensorLayout>> results = {};  ///< layouts of each new result; several for a list
  std::vector<std::vector<TensorLayout>> outputs = {};  ///< layouts of each `out=` argument
};

/// Outcomes of one operator. The first call with arguments of some sizes, strides, types and options runs its kernel
/// for CPUs on zeros; LibTorch has no formulas of shapes for all operators. An exception of that call is one of the
/// operator, about its arguments.
class Outcomes {
 public:
  std::shared_ptr<const TensorOutcome> of(const Facts& facts, const Stack& arguments);

 private:
  std::mutex mutex_ = {};
  std::unordered_map<std::string, std::shared_ptr<const TensorOutcome>> known_ = {};
};

}  // namespace lockstep::fake_gpu
