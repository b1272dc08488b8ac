// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <ATen/ops/relu.h>

#include <map>
#include <tuple>
#include <utility>

namespace lockstep::models {

/// While one lives, the parameters and buffers of models do not change on this thread. Convolutions without gradients
/// then keep their weights in the layout in which oneDNN multiplies them, together with the factors of the batch norm
/// behind them. Under autocast to bfloat16, they and linear layers also keep the rounded weights, where oneDNN
/// multiplies those. The innermost one counts.
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
  friend at::Tensor linear_sum_of_constants(const Linear&, const at::Tensor&, const at::Tensor&, const at::Tensor&);
  friend at::Tensor linear_of_constants(const at::Tensor&, const at::Tensor&, const at::Tensor&);

  std::map<std::tuple<const Conv2d*, const BatchNorm*, at::ScalarType>, Packed> convolutions_;
  std::map<std::pair<const Linear*, const void*>, Packed> sums_;  ///< second: address of the scale, which is applied
  std::map<const void*, at::Tensor> linear_;  ///< packed weights of linear layers, by the address of their values
  ConstantWeights* outer_;
};

/// relu(norm(conv(input)) + residual) in one pass over memory.
/// @param norm      in evaluation mode, or null
/// @param residual  undefined = none
/// @return          undefined if the weights can change, a tap is installed, or the input is not in channels-last
///                  layout on the CPU, or is neither float32 nor bfloat16 under autocast: the layers compute it one by
///                  one then
at::Tensor convolution_of_constants(const Conv2d& conv, const BatchNorm* norm, const at::Tensor& input,
                                    const at::Tensor& residual, bool has_relu);

/// residual + scale * layer(input) in one pass over memory.
/// @param input     [..., in]
/// @param residual  [..., out]
/// @param scale     [out], or undefined: a parameter of the model
/// @return          undefined if the weights can change, a tap is installed, or a tensor is not a contiguous float32
///                  one on the CPU, or where LibTorch is the faster one: the layers compute it one by one then
at::Tensor linear_sum_of_constants(const Linear& layer, const at::Tensor& input, const at::Tensor& residual,
                                   const at::Tensor& scale);

/// input weight^T + bias under autocast to bfloat16.
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
/// @return        undefined if the weight can change, or is not a trained float32 parameter (others may be computed
/// anew
///                for each forward), or without such an autocast: LibTorch computes it then
at::Tensor linear_of_constants(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// relu(norm(input) + residual), with fewer memory accesses for a BatchNorm. A tap sees the normalization alone.
/// @param norm      layer, or null
/// @param input     result of a layer, which may be overwritten
/// @param residual  undefined = none
inline at::Tensor norm_relu(Block* norm, const at::Tensor& input, const at::Tensor& residual = {}) {
  auto* const batch_norm = is_tapped() ? nullptr : dynamic_cast<BatchNorm*>(norm);
  if (batch_norm != nullptr) return batch_norm->forward_relu(input, residual);
  if (norm == nullptr && !residual.defined()) return at::relu(input);
  const at::Tensor output = norm == nullptr ? input : run(*norm, input);
  return (residual.defined() ? output.add_(residual) : output).relu_();
}

/// norm(conv(input)), in one pass over memory while weights are constant.
inline at::Tensor convolution_norm(Conv2d& conv, BatchNorm& norm, const at::Tensor& input) {
  const at::Tensor output = convolution_of_constants(conv, &norm, input, {}, /*has_relu=*/false);
  return output.defined() ? output : run(norm, run(conv, input));
}

/// relu(norm(conv(input)) + residual), likewise; see norm_relu.
inline at::Tensor convolution_norm_relu(Conv2d& conv, Block* norm, const at::Tensor& input,
                                        const at::Tensor& residual = {}) {
  auto* const batch_norm = dynamic_cast<BatchNorm*>(norm);
  if (batch_norm != nullptr || norm == nullptr) {
    const at::Tensor output = convolution_of_constants(conv, batch_norm, input, residual, /*has_relu=*/true);
    if (output.defined()) return output;
  }
  return norm_relu(norm, run(conv, input), residual);
}

}  // namespace lockstep::models
