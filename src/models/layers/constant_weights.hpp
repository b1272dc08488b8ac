// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <map>
#include <utility>

namespace lockstep::models {

/// While one lives, the parameters and buffers of models do not change on this thread. Convolutions without gradients
/// then keep their weights in the layout in which oneDNN multiplies them, together with the factors of the batch norm
/// behind them. The innermost one counts.
class ConstantWeights {
 public:
  /// The weight of a convolution, multiplied by the factors of its batch norm, and the bias of both.
  struct Packed {
    at::Tensor weight;
    at::Tensor bias;  ///< undefined = none
  };

  ConstantWeights();
  ~ConstantWeights();
  ConstantWeights(const ConstantWeights&) = delete;
  ConstantWeights& operator=(const ConstantWeights&) = delete;

 private:
  friend at::Tensor convolution_of_constants(const Conv2d&, const BatchNorm*, const at::Tensor&, const at::Tensor&,
                                             bool);

  std::map<std::pair<const Conv2d*, const BatchNorm*>, Packed> packed_;
  ConstantWeights* outer_;
};

/// relu(norm(conv(input)) + residual) in one pass over memory.
/// @param norm      in evaluation mode, or null
/// @param residual  undefined = none
/// @return          undefined if the weights can change, a tap is installed, or the input is not float32 in
///                  channels-last layout on the CPU: the layers compute it one by one then
at::Tensor convolution_of_constants(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input,
                                    const at::Tensor& residual, bool has_relu);

}  // namespace lockstep::models
