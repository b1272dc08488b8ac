// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "optim/update/tensor_parameters.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

struct Gradient {
  std::size_t block;
  std::size_t segment;
  at::Tensor values;

  bool is_half() const { return values.element_size() == 2; }
};

/// @param is_wanted  bool(block, segment)
template <class IsWanted>
std::vector<Gradient> gradients_of(FlatParameters& parameters, const IsWanted& is_wanted) {
  std::vector<Gradient> gradients;
  for_each_segment(parameters.blocks(), [&](std::size_t b, std::size_t s) {
    const Segment& segment = parameters.blocks()[b].segments[s];
    const bool is_empty = segment.own_begin == segment.own_end;  // which has no largest element
    if (is_empty || !parameters.has_gradient(b, s) || !is_wanted(b, s)) return;
    gradients.push_back({b, s, parameters.as_tensors()->flat_gradient(b, s)});
  });
  return gradients;
}

bool is_any(std::size_t, std::size_t) { return true; }

at::TensorOptions on_device(FlatParameters& parameters) {
  return parameters.as_tensors()->flat_parameter(0, 0).options().requires_grad(false);
}

/// [] float64: the p-norm of tensors of one type as one vector. Those of 16 bits are measured in float32.
at::Tensor norm_of_list(const std::vector<at::Tensor>& list, double p) {
  const at::ScalarType type = list.front().element_size() == 2 ? at::kFloat : list.front().scalar_type();
  if (p == 1 || p == 2 || std::isinf(p)) {  // GPUs compute these for all tensors at once
    return at::linalg_vector_norm(at::stack(at::_foreach_norm(list, p, type)).to(at::kDouble), p);
  }
  std::vector<at::Tensor> powers = TensorStack::of(list, type).parts();
  at::_foreach_abs_(powers);
  at::_foreach_pow_(powers, p);
  return at::stack(at::_foreach_norm(powers, 1)).to(at::kDouble).sum().pow(1 / p);
}

/// The norms of the parts in which gradients of 16 bits are changed and measured.
void add_norms(std::vector<at::Tensor>& norms, const std::vector<at::Tensor>& halves, double p,
               const std::function<void(std::vector<at::Tensor>&)>& change) {
  for (const std::vector<at::Tensor>& part : divided_for_stacks(halves)) {
    std::vector<at::Tensor> wide = TensorStack::of(part, at::kFloat).parts();
    change(wide);
    norms.push_back(norm_of_list(wide, p));
  }
}

at::Tensor norm_of(const std::vector<Gradient>& gradients, double norm_type, const GradientView* view = nullptr) {
  if (!(norm_type > 0)) throw std::invalid_argument("gradient_norm: norm_type must be positive");
  if (gradients.empty()) return {};
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  std::map<std::size_t, std::vector<at::Tensor>> viewed;  // key: group
  for (const Gradient& gradient : gradients) {
    const bool is_viewed = view != nullptr && gradient.is_half();
    (is_viewed ? viewed[view->group_of(gradient.block, gradient.segment)] : by_type[gradient.values.scalar_type()])
        .push_back(gradient.values);
  }
  std::vector<at::Tensor> norms;
  for (const auto& [type, list] : by_type) norms.push_back(norm_of_list(list, norm_type));
  for (const auto& [group, list] : viewed) {
    add_norms(norms, list, norm_type, [&](std::vector<at::Tensor>& wide) { view->change(group, wide); });
  }
  return norms.size() == 1 ? norms.front() : at::linalg_vector_norm(at::stack(norms), norm_type);
}

/// at::_amp_foreach_non_finite_check_and_unscale_ for bfloat16, which it does not support on every device.
void check_and_unscale(const std::vector<at::Tensor>& gradients, at::Tensor& is_faulty, const at::Tensor& inverse) {
  for (const std::vector<at::Tensor>& part : divided_for_stacks(gradients)) {
    const TensorStack wide = TensorStack::of(part, at::kFloat);
    at::_amp_foreach_non_finite_check_and_unscale_(wide.parts(), is_faulty, inverse);
    at::_foreach_copy_(part, wide.parts());
  }
}

/// @param norms  of what this rank owns; undefined = of nothing
/// @return       of what all ranks own, in one collective
std::vector<at::Tensor> norms_over_ranks(FlatParameters& parameters, const std::vector<at::Tensor>& norms,
                                         double norm_type) {
  TensorParameters& tensors = *parameters.as_tensors();
  const at::TensorOptions options = on_device(parameters).dtype(at::kDouble);
  std::vector<at::Tensor> defined;
  for (const at::Tensor& norm : norms) defined.push_back(norm.defined() ? norm : at::zeros({}, options));
  if (!tensors.is_divided()) return defined;
  at::Tensor all = at::stack(defined);
  if (std::isinf(norm_type)) {  // a maximum may skip a NaN
    all = at::where(all.isfinite(), all, at::full_like(all, norm_type));
    tensors.maximum_over_ranks(all);
  } else {
    all = all.pow(norm_type);
    tensors.sum_over_ranks(all);
    all = all.pow(1 / norm_type);
  }
  return all.unbind();
}

}  // namespace

at::Tensor flat_view(std::byte* values, std::int64_t count, const at::TensorOptions& like) {
  return at::from_blob(
      values, {count}, [](void*) {}, like.requires_grad(false), like.device());
}

at::Tensor flat_parameter(FlatParameters& parameters, std::size_t block, std::size_t segment) {
  if (parameters.as_tensors() != nullptr) return parameters.as_tensors()->flat_parameter(block, segment);
  const FlatBlock& flat_block = parameters.blocks()[block];
  const Segment& own = flat_block.segments[segment];
  const std::int64_t begin = (own.offset + own.own_begin) * static_cast<std::int64_t>(size_of(flat_block.dtype));
  return at::from_blob(flat_block.parameters + begin, {own.own_end - own.own_begin}, scalar_type_of(flat_block.dtype));
}

at::Tensor gradient_norm_tensor(FlatParameters& parameters, double norm_type, const GradientView* view) {
  return norms_over_ranks(parameters, {norm_of(gradients_of(parameters, is_any), norm_type, view)}, norm_type).front();
}

std::vector<at::Tensor> gradient_norm_tensors(const Optimizer& optimizer, FlatParameters& parameters,
                                              double norm_type) {
  std::vector<bool> have_gradients(optimizer.groups().size());  // equal on every rank
  for_each_segment(parameters.blocks(), [&](std::size_t b, std::size_t s) {
    if (parameters.has_gradient(b, s)) have_gradients[optimizer.group_of(b, s)] = true;
  });
  std::vector<at::Tensor> norms;
  for (std::size_t g = 0; g < have_gradients.size(); ++g) {
    const auto is_in_group = [&](std::size_t b, std::size_t s) { return optimizer.group_of(b, s) == g; };
    norms.push_back(norm_of(gradients_of(parameters, is_in_group), norm_type));
  }
  norms = norms_over_ranks(parameters, norms, norm_type);
  for (std::size_t g = 0; g < norms.size(); ++g) {
    if (!have_gradients[g]) norms[g] = at::Tensor();
  }
  return norms;
}

at::Tensor unscale_gradients(FlatParameters& parameters, double scale) {
  return unscale_gradients(parameters, at::full({}, 1 / scale, on_device(parameters).dtype(at::kFloat)));
}

at::Tensor unscale_gradients(FlatParameters& parameters, const at::Tensor& inverse) {
  const torch::NoGradGuard no_grad;
  at::Tensor is_faulty = at::zeros({}, on_device(parameters).dtype(at::kFloat));
  // Converts to the type of the kernel.
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const Gradient& gradient : gradients_of(parameters, is_any)) {
    by_type[gradient.values.scalar_type()].push_back(gradient.values);
  }
  for (auto& [type, alike] : by_type) {
    if (type == at::kBFloat16) {
      check_and_unscale(alike, is_faulty, inverse);
    } else {
      at::_amp_foreach_non_finite_check_and_unscale_(alike, is_faulty, inverse);
    }
  }
  parameters.as_tensors()->maximum_over_ranks(is_faulty);
  return is_faulty;
}

TensorChange change_by(const Clip& clip, const std::vector<at::Tensor>& norms) {
  TensorChange change;
  if (clip.max_value > 0) change.limit = clip.max_value;
  for (const at::Tensor& norm : norms) {
    change.factors.push_back(norm.defined() ? (clip.max_norm / (norm + 1e-6)).clamp_max(1.0) : norm);
    if (!norm.defined()) continue;
    const at::Tensor is_void = norm.isfinite().logical_not().to(at::kFloat);
    change.is_void = change.is_void.defined() ? at::maximum(change.is_void, is_void) : is_void;
  }
  return change;
}

}  // namespace lockstep::optim
