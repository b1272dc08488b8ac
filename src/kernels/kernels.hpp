// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/numbers/processor_level.hpp"

// Which kernel computes what. Kernels are loops over plain numbers, without LibTorch. There are two kinds:
//
// Kernels that replace something of LibTorch, oneDNN or MKL. No such kernel is used at a level at which it has not been
// measured to be faster; where it is not used, or its condition is not met, the library computes. The conditions on
// shapes and layouts are next to the calls, in src/models.
//
//   kernel            header                    used at level  if
//   attention         attention.hpp             avx2           float32, up to 1024 tokens, heads of 16 n features
//   depthwise         convolution_products.hpp  avx2           float32, channels last, 8 n channels
//   patch_product     convolution_products.hpp  avx2           float32, channels last, 8 n inputs, 4 n outputs
//   winograd          winograd.hpp              avx2           float32, channels last, 3x3, 16 n inputs and outputs
//   gelu              gelu.hpp                  avx2           float32, contiguous
//   gelu_gradient     gelu.hpp                  generic, avx2  float32 or bfloat16, contiguous
//   batch_norm        batch_norm.hpp            every          float32 or bfloat16, channels last
//   outer_product     outer_product.hpp         every          float32, contiguous, up to 64 samples
//   rounded_products  (src/models)              generic, avx2  products of bfloat16 under autocast, as float32
//
// Kernels without a counterpart in these libraries are used at every level: finite_sums.hpp, optimizers.hpp,
// pixels.hpp, reduction.hpp, resize.hpp. So are the loops that lie next to what they belong to: those of optimizers
// (src/optim), of conversions (core/numbers/dtype.hpp) and of synchronized batch norms (src/parallel/sync). They have
// the same bits at every level.
namespace lockstep::kernels {

enum class Kernel {
  attention,
  depthwise,
  patch_product,
  winograd,
  gelu,
  gelu_gradient,
  batch_norm,
  outer_product,
  rounded_products,
};

/// Whether a kernel is used at a level, in place of a library.
constexpr bool is_used(Kernel kernel, ProcessorLevel level) {
  switch (kernel) {
    case Kernel::attention:
    case Kernel::depthwise:
    case Kernel::patch_product:
    case Kernel::winograd:
    case Kernel::gelu:
      return level == ProcessorLevel::avx2;
    case Kernel::gelu_gradient:
      return level <= ProcessorLevel::avx2;
    case Kernel::rounded_products:
#if defined(__x86_64__)
      return level <= ProcessorLevel::avx2;
#else
      return false;  // not measured
#endif
    case Kernel::batch_norm:
    case Kernel::outer_product:
      return true;
  }
  return false;
}

/// The same for the level in use.
inline bool is_used(Kernel kernel) { return is_used(kernel, processor_level()); }

}  // namespace lockstep::kernels
