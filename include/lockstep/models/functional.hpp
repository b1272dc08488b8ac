// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

// The computations of layers as functions, for weights that belong to another layer (a tied head). They compute the
// same as LibTorch's functions of these names, but faster, and backward writes to the gradient sink of a parameter of
// `linear`, `convolution` or `embedding`. Under autocast on a processor without instructions for numbers of 16 bits,
// products have factors rounded to 16 bits, but are computed in float32. Write models::linear to avoid ambiguity.
namespace lockstep::models {

/// y = x W^T + b
/// @param input   [..., in]
/// @param weight  [out, in]
/// @param bias    [out], or undefined
/// @return        [..., out]
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The rows of `weight` with the indices `tokens`.
/// @param tokens  [...] int64 or int32, in [0, count)
/// @param weight  [count, features]
/// @return        [..., features]
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight);

/// The sizes of a convolution, in both directions.
struct Convolution {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< zeros at each border
  std::int64_t groups = 1;
  bool is_transposed = false;
};

/// The convolution of images with a weight, transposed or not. Fastest for images with the channels innermost.
/// @param input   [N, in, H, W]
/// @param weight  [out, in / groups, kernel, kernel]; transposed [in, out / groups, kernel, kernel]
/// @param bias    [out], or undefined
/// @return        [N, out, H', W']
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                       const Convolution& geometry);

/// x Phi(x), with the normal distribution Phi.
at::Tensor gelu(const at::Tensor& input);

/// softmax(query key^T / sqrt(E)) value, for each head K.
/// @param query    [N, K, T, E]; key and value likewise, with T' tokens; views are read as they are
/// @param dropout  probability with which weights are set to zero
/// @param is_causal  each token sees only those before it and itself
/// @return         [N, K, T, E]
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout = 0,
                     bool is_causal = false);

/// The attention of the tokens of a sample to each other, from one projection of them.
/// @param qkv      [N, T, 3, K, E]: queries, keys and values
/// @param queries  tokens with an output, which are the first ones; in [1, T]
/// @return         [N, queries, K, E]
at::Tensor self_attention(const at::Tensor& qkv, std::int64_t queries);

/// N samples of C channels of H x W pixels.
struct NormInputs {
  const at::Tensor& input;     ///< [N, C, H, W]
  const at::Tensor& weight;    ///< [C] float32
  const at::Tensor& bias;      ///< [C] float32
  const at::Tensor& residual;  ///< [N, C, H, W], or undefined
  double eps;                  ///< added to the variance
  bool has_relu;
};

/// Whether batch_norm supports them: float32 or bfloat16 on the CPU, in channels-last layout.
bool is_for_batch_norm(const NormInputs& inputs);

/// relu(batch_norm(input) + residual) of a training batch; updates the running statistics. Equal to the sequence of
/// LibTorch's functions, with about half as many memory accesses.
/// @param running_mean  [C] float32
/// @param running_var   [C] float32: computed from unbiased variances
/// @param momentum      weight of this batch in the running statistics
at::Tensor batch_norm(const NormInputs& inputs, at::Tensor running_mean, at::Tensor running_var, double momentum);

/// The same with the running statistics instead of those of the batch, in one pass over memory, without gradients.
at::Tensor batch_norm_by_statistics(const NormInputs& inputs, const at::Tensor& running_mean,
                                    const at::Tensor& running_var);

/// During its lifetime, this thread computes matrix products and convolutions of float32 tensors in 16 bits, and
/// operations that need more range or precision (losses, norms, sums) in float32. Parameters and their gradients stay
/// in float32.
///
/// Do not run backward inside it: backward uses the types of forward. Can be nested.
class Autocast {
 public:
  /// @param type  bfloat16 or float16, if the device supports it
  /// @throws std::invalid_argument  another type
  Autocast(c10::DeviceType device, c10::ScalarType type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType type_before_;
};

}  // namespace lockstep::models
