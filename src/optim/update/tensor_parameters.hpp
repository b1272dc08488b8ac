// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <limits>
#include <vector>

namespace lockstep::optim {

/// LibTorch's type of parameters, gradients and states.
inline at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return at::kDouble;
    case DType::bfloat16:
      return at::kBFloat16;
    case DType::float16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

/// FlatParameters as tensors.
class TensorParameters {
 public:
  virtual ~TensorParameters() = default;

  /// [own_end - own_begin] A view of this rank's part of a segment: all of it, unless is_divided.
  virtual at::Tensor flat_parameter(std::size_t block, std::size_t segment) = 0;
  /// Its averaged gradient, laid out like it; an update may change it. After finish_gradients, while has_gradient.
  virtual at::Tensor flat_gradient(std::size_t block, std::size_t segment) = 0;

  /// Whether other ranks own the other parts.
  virtual bool is_divided() const noexcept { return false; }
  /// If is_divided, put the sum, or the maximum, over all ranks instead of each element. Of the device of the
  /// parameters, float32 or float64. Collective.
  virtual void sum_over_ranks(const at::Tensor&) {}
  virtual void maximum_over_ranks(const at::Tensor&) {}
};

/// [count] A view of memory that outlives it, of the type and on the device of `like`.
at::Tensor flat_view(std::byte* values, std::int64_t count, const at::TensorOptions& like);
/// [own_end - own_begin] A view of this rank's part of a segment, on a CPU or a GPU.
at::Tensor flat_parameter(FlatParameters& parameters, std::size_t block, std::size_t segment);

/// The treatment of gradients on their way into an update by tensors, without the host knowing the numbers.
struct TensorChange {
  std::vector<at::Tensor> factors;  ///< [] of each group, multiplies every element; undefined: 1; none at all: 1
  double limit = std::numeric_limits<double>::infinity();  ///< then each is clamped to [-limit, limit]
  at::Tensor is_void;                                      ///< same as in TensorUpdate
};

/// Changes 16-bit gradients before they are measured.
struct GradientView {
  std::function<std::size_t(std::size_t block, std::size_t segment)> group_of;
  /// Changes float32 copies of gradients of a group in place.
  std::function<void(std::size_t group, std::vector<at::Tensor>& gradients)> change;
};

/// The same as gradient_norm, on the device of the gradients. [] float64. Collective where is_divided, as what follows.
/// @param view  null = gradients are measured as they are
at::Tensor gradient_norm_tensor(FlatParameters& parameters, double norm_type, const GradientView* view = nullptr);
/// The same for each group; undefined for one without gradients on any rank.
std::vector<at::Tensor> gradient_norm_tensors(const Optimizer& optimizer, FlatParameters& parameters, double norm_type);
/// Divides all gradients by `scale`, in place.
/// @return  [] float32: 1 where any was not finite on any rank, on their device
at::Tensor unscale_gradients(FlatParameters& parameters, double scale);
/// @param inverse  [] float32 on the device of the gradients: 1 / scale
at::Tensor unscale_gradients(FlatParameters& parameters, const at::Tensor& inverse);
/// The same as change_by, for the norm by which each group is clipped: none, if nothing is clipped by its norm. A norm
/// that is not finite makes the update void.
TensorChange change_by(const Clip& clip, const std::vector<at::Tensor>& norms);

}  // namespace lockstep::optim
