// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>

namespace lockstep::optim {

namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// @param is_wanted  bool(block, segment)
template <class IsWanted>
std::vector<at::Tensor> gradients_of(FlatParameters& parameters, const IsWanted& is_wanted) {
  std::vector<at::Tensor> gradients;
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) {
    for (std::size_t s = 0; s < parameters.blocks()[b].segments.size(); ++s) {
      const Segment& segment = parameters.blocks()[b].segments[s];
      const bool is_empty = segment.own_begin == segment.own_end;  // which has no largest element
      if (is_empty || !parameters.has_gradient(b, s) || !is_wanted(b, s)) continue;
      gradients.push_back(parameters.as_tensors()->flat_gradient(b, s));
    }
  }
  return gradients;
}

bool is_any(std::size_t, std::size_t) { return true; }

at::TensorOptions on_device(FlatParameters& parameters) {
  return parameters.as_tensors()->flat_parameter(0, 0).options().requires_grad(false);
}

/// Given ones, or those of a tensor whose last dimension lies closest.
Shape strides_of(const Shape& shape, Shape given) {
  if (!given.empty()) return given;
  std::int64_t count = 1;
  given.resize(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    given[i] = count;
    count *= shape[i];
  }
  return given;
}

at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double norm_type) {
  if (!(norm_type > 0)) throw std::invalid_argument("gradient_norm: norm_type must be positive");
  if (gradients.empty()) return {};
  std::vector<at::Tensor> norms;
  for (const at::Tensor& norm : at::_foreach_norm(gradients, norm_type)) norms.push_back(norm.to(at::kDouble));
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

/// @param norms  of what this rank owns; undefined: of nothing
/// @return       of what all ranks own, in one collective
std::vector<at::Tensor> norms_over_ranks(FlatParameters& parameters, const std::vector<at::Tensor>& norms,
                                         double norm_type) {
  TensorParameters& tensors = *parameters.as_tensors();
  const at::Tensor zero = at::zeros({}, on_device(parameters).dtype(at::kDouble));
  std::vector<at::Tensor> defined;
  for (const at::Tensor& norm : norms) defined.push_back(norm.defined() ? norm : zero);
  if (!tensors.is_divided()) return defined;
  at::Tensor all = at::stack(defined);
  if (std::isinf(norm_type)) {  // a maximum may pass over a NaN
    all = at::where(all.isfinite(), all, at::full_like(all, norm_type));
    tensors.maximum_over_ranks(all);
  } else {
    all = all.pow(norm_type);
    tensors.sum_over_ranks(all);
    all = all.pow(1 / norm_type);
  }
  return all.unbind();
}

void change_gradients(std::vector<at::Tensor>& gradients, const TensorChange& change, std::size_t group) {
  const at::Tensor factor = change.factors.empty() ? at::Tensor() : change.factors.at(group);
  if (factor.defined()) at::_foreach_mul_(gradients, factor.to(gradients.front().scalar_type()));
  if (change.limit == std::numeric_limits<double>::infinity()) return;
  at::_foreach_clamp_max_(gradients, change.limit);  // a NaN stays
  at::_foreach_clamp_min_(gradients, -change.limit);
}

// By LibTorch's fused kernels.

void update_sgd(const TensorUpdate& update) {
  const Options& options = *update.options;
  const double momentum = options.at("momentum");
  const std::vector<at::Tensor> none;
  at::_fused_sgd_(update.parameters, update.gradients, momentum != 0 ? update.states[0] : none,
                  options.at("weight_decay"), momentum, options.at("lr"), options.at("dampening"),
                  options.at("nesterov") != 0, options.at("maximize") != 0, /*is_first_step=*/update.step == 1, {},
                  optional(update.is_void));
}

/// @param fused  at::_fused_adam_ or at::_fused_adamw_, which differ in what weight decay does
template <class Fused>
void update_adam_by(const Fused& fused, const TensorUpdate& update) {
  const Options& options = *update.options;
  const bool is_amsgrad = options.at("amsgrad") != 0;
  const at::TensorOptions of_step = update.parameters.front().options().dtype(at::kFloat);
  const std::vector<at::Tensor> steps(update.parameters.size(),
                                      at::full({}, static_cast<double>(update.step), of_step));
  const std::vector<at::Tensor> none;
  fused(update.parameters, update.gradients, update.states[0], update.states[1], is_amsgrad ? update.states[2] : none,
        steps, options.at("lr"), options.at("beta1"), options.at("beta2"), options.at("weight_decay"),
        options.at("eps"), is_amsgrad, options.at("maximize") != 0, std::optional<at::Tensor>(),
        optional(update.is_void));
}

void update_adam(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adam_(arguments...); }, update);
}

void update_adamw(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adamw_(arguments...); }, update);
}

}  // namespace

TensorRule builtin_tensor_rule(std::string_view rule) {
  if (rule == "sgd") return update_sgd;
  if (rule == "adam") return update_adam;
  return rule == "adamw" ? update_adamw : nullptr;
}

at::Tensor gradient_norm_tensor(FlatParameters& parameters, double norm_type) {
  return norms_over_ranks(parameters, {norm_of(gradients_of(parameters, is_any), norm_type)}, norm_type).front();
}

std::vector<at::Tensor> gradient_norm_tensors(const Optimizer& optimizer, FlatParameters& parameters,
                                              double norm_type) {
  std::vector<at::Tensor> norms;
  std::vector<bool> have_gradients;  // the same on every rank
  for (std::size_t g = 0; g < optimizer.groups().size(); ++g) {
    bool has_gradient = false;
    const auto is_in_group = [&](std::size_t b, std::size_t s) { return optimizer.group_of(b, s) == g; };
    for (std::size_t b = 0; b < parameters.blocks().size(); ++b) {
      for (std::size_t s = 0; s < parameters.blocks()[b].segments.size(); ++s) {
        has_gradient = has_gradient || (is_in_group(b, s) && parameters.has_gradient(b, s));
      }
    }
    have_gradients.push_back(has_gradient);
    norms.push_back(norm_of(gradients_of(parameters, is_in_group), norm_type));
  }
  norms = norms_over_ranks(parameters, norms, norm_type);
  for (std::size_t g = 0; g < norms.size(); ++g) {
    if (!have_gradients[g]) norms[g] = at::Tensor();
  }
  return norms;
}

at::Tensor unscale_gradients(FlatParameters& parameters, double scale) {
  const torch::NoGradGuard no_grad;
  const at::TensorOptions options = on_device(parameters).dtype(at::kFloat);
  at::Tensor is_faulty = at::zeros({}, options);
  const at::Tensor inverse = at::full({}, 1 / scale, options);
  // By type, as the kernel wants it.
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& gradient : gradients_of(parameters, is_any))
    by_type[gradient.scalar_type()].push_back(gradient);
  for (auto& [type, alike] : by_type) at::_amp_foreach_non_finite_check_and_unscale_(alike, is_faulty, inverse);
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

/// What this rank owns of a parameter: with tensors of its shape if the rule is whole, else flat ones.
void Optimizer::add_to(TensorUpdate& update, std::size_t block, std::size_t segment, const at::Tensor& parameter,
                       const at::Tensor& gradient) const {
  const Segment& of = parameters_->blocks()[block].segments[segment];
  const auto shaped = [this, &of](const at::Tensor& flat) {
    return rule_->is_whole ? flat.as_strided(of.shape, strides_of(of.shape, of.strides)) : flat;
  };
  update.options = &groups_[group_of_[block][segment]].options;
  update.step = steps_[block][segment];
  update.parameters.push_back(shaped(parameter));
  update.gradients.push_back(shaped(gradient));
  update.states.resize(state_names_.size());
  const at::TensorOptions options = parameter.options().requires_grad(false);
  for (std::size_t slot = 0; slot < state_names_.size(); ++slot) {
    at::Tensor& state = update.states[slot].emplace_back();
    const std::optional<StateArray> array = state_of(block, segment, slot);
    if (!array) continue;
    const Shape shape = rule_->is_whole ? array->shape : Shape{of.own_end - of.own_begin};
    const Shape strides = strides_of(shape, rule_->is_whole ? array->strides : Shape());
    const std::int64_t first = rule_->is_whole ? 0 : of.own_begin * static_cast<std::int64_t>(size_of(array->dtype));
    state = at::from_blob(
        array->values + first, shape, strides, [](void*) {}, options, options.device());
  }
}

/// Fills what this rank owns with the values that the rule's states begin with, if any of them is not 0.
void Optimizer::initialize_state() {
  if (rule_->initial_state == nullptr) return;
  bool is_zero = true;
  for (const ParamGroup& group : groups_) {
    for (std::size_t slot = 0; slot < rule_states_; ++slot) {
      is_zero = is_zero && rule_->initial_state(group.options, slot) == 0;
    }
  }
  if (is_zero) return;  // memory is allocated zeroed
  const bool is_on_device = parameters_->as_tensors() != nullptr;
  const at::Device device = is_on_device ? on_device(*parameters_).device() : at::Device(at::kCPU);
  const auto fill = [&](std::size_t b, std::size_t s, std::size_t slot) {
    const Segment& segment = parameters_->blocks()[b].segments[s];
    const std::optional<StateArray> array = state_of(b, s, slot);
    if (!array || segment.own_begin == segment.own_end) return;
    const bool is_like_parameter = rule_->state_shape == nullptr;
    const std::int64_t begin = is_like_parameter ? segment.own_begin : 0;
    const std::int64_t end = is_like_parameter ? segment.own_end : c10::multiply_integers(array->shape);
    const auto bytes = static_cast<std::int64_t>(size_of(array->dtype));
    const auto options = at::device(device).dtype(array->dtype == DType::float64 ? at::kDouble : at::kFloat);
    at::from_blob(
        array->values + begin * bytes, {end - begin}, [](void*) {}, options, device)
        .fill_(rule_->initial_state(options_of(b, s), slot));
  };
  const torch::NoGradGuard no_grad;
  parameters_->write([&] {  // the owners of the other parts read this one when they save a checkpoint
    for (std::size_t b = 0; b < parameters_->blocks().size(); ++b) {
      for (std::size_t s = 0; s < parameters_->blocks()[b].segments.size(); ++s) {
        for (std::size_t slot = 0; slot < rule_states_; ++slot) fill(b, s, slot);
      }
    }
  });
}

/// step of a rule that is whole. One parameter at a time: no more than one gradient is held beside the parameters, and
/// none that comes in one piece.
void Optimizer::step_whole(Changes changes) {
  const torch::NoGradGuard no_grad;
  parameters_->finish_gradients();
  count_step();
  parameters_->write([&] {
    at::Tensor gradient;
    visit_pieces(changes, [&](const GradientPiece& piece) {
      const Block& block = parameters_->blocks()[piece.block];
      const Segment& segment = block.segments[piece.segment];
      const at::ScalarType type = block.dtype == DType::float64 ? at::kDouble : at::kFloat;
      const auto bytes = static_cast<std::int64_t>(size_of(block.dtype));
      const bool is_whole = piece.count == segment.count;
      if (is_whole) {
        gradient = at::from_blob(const_cast<std::byte*>(piece.values), {segment.count}, type);
      } else {
        if (piece.begin == 0) gradient = at::empty({segment.count}, type);
        std::memcpy(static_cast<std::byte*>(gradient.mutable_data_ptr()) + piece.begin * bytes, piece.values,
                    static_cast<std::size_t>(piece.count * bytes));
      }
      if (piece.begin + piece.count < segment.count) return;
      TensorUpdate update;
      add_to(update, piece.block, piece.segment,
             at::from_blob(block.parameters + segment.offset * bytes, {segment.count}, type), gradient);
      rule_->update_tensors(update);
    });
  });
}

void Optimizer::step_tensors(const TensorChange& change) {
  const TensorRule form = rule_->update_tensors != nullptr ? rule_->update_tensors : builtin_tensor_rule(rule_->name);
  if (form == nullptr) {
    throw ConfigError("optim.name: " + rule_->name + " has no form for GPUs; take another, or run.device=cpu");
  }
  const torch::NoGradGuard no_grad;
  parameters_->finish_gradients();
  count_step();
  // By block, group and number of updates.
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, TensorUpdate> updates;
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    was_counted_[b].assign(steps_[b].size(), 0);
    for (std::size_t s = 0; s < steps_[b].size(); ++s) {
      if (!parameters_->has_gradient(b, s)) continue;
      was_counted_[b][s] = 1;
      const Segment& segment = parameters_->blocks()[b].segments[s];
      if (segment.own_begin == segment.own_end && segment.count > 0) continue;  // another rank's
      TensorUpdate& update = updates[{b, group_of_[b][s], steps_[b][s]}];
      update.is_void = change.is_void;
      add_to(update, b, s, parameters_->as_tensors()->flat_parameter(b, s),
             parameters_->as_tensors()->flat_gradient(b, s));
    }
  }
  parameters_->write([&] {
    for (auto& [key, update] : updates) {
      change_gradients(update.gradients, change, std::get<1>(key));
      form(update);
    }
  });
}

void Optimizer::uncount_step() {
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    for (std::size_t s = 0; s < was_counted_[b].size(); ++s) steps_[b][s] -= was_counted_[b][s];
  }
}

}  // namespace lockstep::optim
