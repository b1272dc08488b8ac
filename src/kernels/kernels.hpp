// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "core/numbers/processor_level.hpp"

// Which kernel computes what. Kernels are loops over plain numbers, without LibTorch. There are two kinds:
//
// Kernels that replace something of LibTorch, oneDNN or MKL. measured_ratios.hpp states for each level and vendor which
// of them are used. Where a kernel is not used, or its condition is not met, the library computes. The conditions on
// shapes and layouts are next to the calls, in src/models.
//
//   kernel            header                    if
//   attention         attention.hpp             float32, up to 1024 tokens, heads of 16 n features
//   depthwise         depthwise.hpp             float32, channels last, 8 n channels, 5x5 and 7x7
//   depthwise_3x3     depthwise.hpp             the same, 3x3
//   patch_product     convolution_products.hpp  float32, channels last, 8 n inputs, 4 n outputs
//   winograd          winograd.hpp              float32, channels last, 3x3, 16 n inputs and outputs
//   gelu              gelu.hpp                  float32, contiguous
//   gelu_gradient     gelu.hpp                  float32 or bfloat16, contiguous
//   gelu_step         gelu.hpp                  float32, behind a linear layer: both in the forward of training
//   batch_norm        batch_norm.hpp            float32 or bfloat16, channels last
//   outer_product     outer_product.hpp         float32, contiguous, up to 64 samples
//   frequency_products  frequency_products.hpp  float32: the products of spectral convolutions and of their gradients
//   rounded_products  (src/models)              products of bfloat16 under autocast, as float32
//   rounded_attention, rounded_depthwise        the same for what the kernels attention and depthwise compute
//   linear            (src/models)              y = x W^T + b of float32 by oneDNN instead of MKL, 128 rows or more
//   shallow_linear    (src/models)              the same with up to 128 inputs: the sum with b takes much of the time
//   linear_gelu       (src/models)              gelu(x W^T + b) by oneDNN in one pass, without gradients
//   linear_gradient   (src/models)              the gradient of x by oneDNN, 64 rows or more
//   linear_sum        (src/models)              z + s (x W^T + b) of evaluations likewise, with a reordered weight
//   packed_pixelwise  (src/models)              1x1 convolutions of evaluations by oneDNN with a reordered weight
//   dot_products      dot_products.hpp          y of float32, contiguous, a large weight and up to 15 rows
//   few_rows          (src/models)              y or the gradient of x by oneDNN, a large weight and few rows
//
// Kernels without a counterpart in these libraries are used at every level: borders.hpp, copies.hpp, field_values.hpp,
// finite_sums.hpp, optimizers.hpp, pixels.hpp, reduction.hpp, resize.hpp. So are the loops that lie next to what they
// belong to: those of optimizers (src/optim), of conversions (core/numbers/dtype.hpp) and of synchronized batch norms
// (src/parallel/sync). They have the same bits at every level.
namespace lockstep::kernels {

enum class Kernel {
  attention,
  depthwise,
  depthwise_3x3,
  patch_product,
  winograd,
  gelu,
  gelu_gradient,
  gelu_step,
  batch_norm,
  outer_product,
  rounded_products,
  rounded_attention,
  rounded_depthwise,
  linear,
  shallow_linear,
  linear_gelu,
  linear_sum,
  linear_gradient,
  packed_pixelwise,
  dot_products,
  few_rows,
  frequency_products,
};

/// A kernel and the levels at which it is used where nothing was measured: those from `first` to `last`, or none if
/// `last` is lower.
struct KernelRow {
  Kernel kernel;
  std::string_view name;
  ProcessorLevel first;
  ProcessorLevel last;
  bool is_vendors = false;  ///< ratios count only for the vendor on whose processors they were measured
};

#if defined(__x86_64__)
inline constexpr ProcessorLevel kFirstOfRoundedProducts = ProcessorLevel::generic;
#else
inline constexpr ProcessorLevel kFirstOfRoundedProducts = ProcessorLevel::avx2;  // not used: there is only generic
#endif

inline constexpr std::array<KernelRow, 22> kKernelRows = {{
    {Kernel::attention, "attention", ProcessorLevel::avx2, ProcessorLevel::avx2},
    {Kernel::depthwise, "depthwise", ProcessorLevel::avx2, ProcessorLevel::avx2},
    {Kernel::depthwise_3x3, "depthwise_3x3", ProcessorLevel::avx2, ProcessorLevel::avx2, true},
    {Kernel::patch_product, "patch_product", ProcessorLevel::avx2, ProcessorLevel::avx2},
    {Kernel::winograd, "winograd", ProcessorLevel::avx2, ProcessorLevel::avx2},
    {Kernel::gelu, "gelu", ProcessorLevel::avx2, ProcessorLevel::avx2},
    {Kernel::gelu_gradient, "gelu_gradient", ProcessorLevel::generic, ProcessorLevel::avx2},
    {Kernel::gelu_step, "gelu_step", ProcessorLevel::generic, ProcessorLevel::amx},
    {Kernel::batch_norm, "batch_norm", ProcessorLevel::generic, ProcessorLevel::amx},
    {Kernel::outer_product, "outer_product", ProcessorLevel::generic, ProcessorLevel::amx, true},
    {Kernel::rounded_products, "rounded_products", kFirstOfRoundedProducts, ProcessorLevel::avx2},
    {Kernel::rounded_attention, "rounded_attention", kFirstOfRoundedProducts, ProcessorLevel::avx2},
    {Kernel::rounded_depthwise, "rounded_depthwise", kFirstOfRoundedProducts, ProcessorLevel::avx2},
    {Kernel::linear, "linear", ProcessorLevel::generic, ProcessorLevel::amx, true},
    {Kernel::shallow_linear, "shallow_linear", ProcessorLevel::generic, ProcessorLevel::amx, true},
    {Kernel::linear_gelu, "linear_gelu", ProcessorLevel::avx2, ProcessorLevel::amx},
    {Kernel::linear_sum, "linear_sum", ProcessorLevel::avx2, ProcessorLevel::amx, true},
    {Kernel::linear_gradient, "linear_gradient", ProcessorLevel::generic, ProcessorLevel::amx, true},
    {Kernel::packed_pixelwise, "packed_pixelwise", ProcessorLevel::amx, ProcessorLevel::generic, true},
    {Kernel::dot_products, "dot_products", ProcessorLevel::amx, ProcessorLevel::generic, true},
    {Kernel::few_rows, "few_rows", ProcessorLevel::generic, ProcessorLevel::amx, true},
    {Kernel::frequency_products, "frequency_products", ProcessorLevel::generic, ProcessorLevel::amx},
}};

constexpr const KernelRow& row_of(Kernel kernel) { return kKernelRows[static_cast<std::size_t>(kernel)]; }
constexpr std::string_view name_of(Kernel kernel) { return row_of(kernel).name; }

/// A row of measured_ratios.hpp.
struct MeasuredRatio {
  Kernel kernel;
  ProcessorLevel level;
  ProcessorVendor vendor;  ///< amd or intel
  double ratio;            ///< Lockstep's time / the library's time
};

/// The row of a table that counts for a kernel: that of the vendor, or else, unless KernelRow::is_vendors, of another
/// vendor. Without a row of amx, that of avx512 counts there, which has the same instance of the kernel. Null if there
/// is none.
const MeasuredRatio* find_ratio(std::initializer_list<MeasuredRatio> table, Kernel kernel, ProcessorLevel level,
                                ProcessorVendor vendor);

/// Whether a kernel is used in place of a library: if the ratio that counts is below 1. Without any row, the levels of
/// its KernelRow count.
bool is_chosen(std::initializer_list<MeasuredRatio> table, Kernel kernel, ProcessorLevel level, ProcessorVendor vendor);

/// The table of measured_ratios.hpp. Empty on processors other than x86-64, where nothing was measured.
std::initializer_list<MeasuredRatio> measured_ratios();

/// Whether a kernel is used at the level in use, by the table or by a ScopedChoice. Costs a few nanoseconds.
bool is_used(Kernel kernel);

/// Chooses between a kernel and the library as long as it exists. For tests and benchmarks, which compare the two.
class ScopedChoice {
 public:
  ScopedChoice(Kernel kernel, bool is_used);
  ScopedChoice(const ScopedChoice&) = delete;
  ScopedChoice& operator=(const ScopedChoice&) = delete;
  ~ScopedChoice();

 private:
  Kernel kernel_;
  int before_;
};

}  // namespace lockstep::kernels
