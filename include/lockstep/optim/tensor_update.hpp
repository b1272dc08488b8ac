// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/rule.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// One update of parameters that have the same options, the same number of updates so far and one type, as tensors: P
/// parameters, of each what this rank owns, flat, or of its shape if the rule is whole.
struct TensorUpdate {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  ///< not to be changed
  std::vector<std::vector<at::Tensor>>
      states;  ///< [slot][P], as many slots as the rule's state_names; undefined = none
  const Options* options = nullptr;
  std::int64_t step = 0;  ///< updates of these parameters including this one, from 1
  at::Tensor is_void;     ///< [] float32: 1 where nothing shall change; undefined = change
};

}  // namespace lockstep::optim
