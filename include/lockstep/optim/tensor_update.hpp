// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/rule.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

class LiveUpdate;

/// One update of P parameters with the same options, number of updates and type, as tensors: of each parameter the part
/// that this rank owns, flat; or, for a WholeRule, the complete parameter with its shape.
struct TensorUpdate {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  ///< do not change
  /// [slot][P], as many slots as the rule's state_names; undefined = none.
  std::vector<std::vector<at::Tensor>> states;
  std::vector<std::size_t> dims = {};  ///< [P] number of dimensions of each parameter
  const Options* options = nullptr;
  std::int64_t step = 0;  ///< updates of these parameters including this one, from 1
  at::Tensor is_void;     ///< [] float32: 1 = do not change anything; undefined = 0
  /// [] float64: the 2-norm of all gradients as one vector, over all ranks; undefined unless Needs::gradient_norm.
  at::Tensor gradient_norm = {};
  /// The functions of a captured step that give the numbers that change from step to step; null = `options` and `step`
  /// do.
  const LiveUpdate* live = nullptr;
};

}  // namespace lockstep::optim
