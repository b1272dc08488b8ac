// SPDX-License-Identifier: BSD-3-Clause
// Steps of rules that update whole tensors.
#include <lockstep/optim/tensor_update.hpp>

#include <c10/util/strides.h>
#include <torch/types.h>

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_parameters.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

/// Given ones, or those of a tensor whose last dimension lies closest.
Shape strides_of(const Shape& shape, const Shape& given) {
  if (!given.empty()) return given;
  const at::DimVector strides = c10::contiguous_strides(shape);
  return {strides.begin(), strides.end()};
}

void change_gradients(std::vector<at::Tensor>& gradients, const TensorChange& change, std::size_t group) {
  const at::Tensor factor = change.factors.empty() ? at::Tensor() : change.factors.at(group);
  if (factor.defined()) at::_foreach_mul_(gradients, factor.to(gradients.front().scalar_type()));
  if (change.limit == std::numeric_limits<double>::infinity()) return;
  at::_foreach_clamp_max_(gradients, change.limit);  // a NaN stays
  at::_foreach_clamp_min_(gradients, -change.limit);
}

bool begins_at_zero(const Rule& rule, const std::vector<ParamGroup>& groups, std::size_t states) {
  if (rule.initial_state == nullptr) return true;
  bool is_zero = true;
  for (const ParamGroup& group : groups) {
    for (std::size_t slot = 0; slot < states; ++slot) {
      is_zero = is_zero && rule.initial_state(group.options, slot) == 0;
    }
  }
  return is_zero;
}

/// Collects the pieces of a parameter, which come in their order, in one tensor.
class WholeGradient {
 public:
  /// @return  [count] the whole gradient, once its last piece has come; else undefined
  const at::Tensor& take(const GradientPiece& piece, const Segment& segment, at::ScalarType type) {
    const bool is_whole = piece.count == segment.count;
    if (is_whole) {
      gradient_ = at::from_blob(const_cast<std::byte*>(piece.values), {segment.count}, type);
      return gradient_;
    }
    if (piece.begin == 0) gradient_ = at::empty({segment.count}, type);
    const auto bytes = static_cast<std::int64_t>(gradient_.element_size());
    std::memcpy(static_cast<std::byte*>(gradient_.mutable_data_ptr()) + piece.begin * bytes, piece.values,
                static_cast<std::size_t>(piece.count * bytes));
    return piece.begin + piece.count < segment.count ? nothing_ : gradient_;
  }

 private:
  at::Tensor gradient_;
  const at::Tensor nothing_{};
};

}  // namespace

/// Making a tensor over given memory costs the host more than finding one.
struct Optimizer::StateViews {
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::int64_t, std::int64_t>;
  std::map<Key, at::Tensor> all;  // key: block, segment, slot and the elements that this rank owns; undefined = none
};

/// The part that this rank owns of a parameter: with tensors of its shape if the rule is whole, else flat ones.
void Optimizer::add_to(TensorUpdate& update, std::size_t block, std::size_t segment, const at::Tensor& parameter,
                       const at::Tensor& gradient) const {
  const Segment& part = parameters_->blocks()[block].segments[segment];
  const bool is_whole = rule_->is_whole();
  const auto shaped = [&](const at::Tensor& flat) {
    return is_whole ? flat.as_strided(part.shape, strides_of(part.shape, part.strides)) : flat;
  };
  update.options = &options_of(block, segment);
  update.step = steps_[block][segment];
  update.parameters.push_back(shaped(parameter));
  update.dims.push_back(part.shape.size());
  update.gradients.push_back(shaped(gradient));
  update.states.resize(rule_states_);  // a master is the parameter
  const at::TensorOptions options = parameter.options().requires_grad(false);
  const auto view_of = [&](const StateArray& array) {
    const Shape shape = is_whole ? array.shape : Shape{part.own_end - part.own_begin};
    const Shape strides = strides_of(shape, is_whole ? array.strides : Shape());
    const std::int64_t first = is_whole ? 0 : part.own_begin * static_cast<std::int64_t>(size_of(array.dtype));
    return at::from_blob(
        array.values + first, shape, strides, [](void*) {}, options, options.device());
  };
  for (std::size_t slot = 0; slot < rule_states_; ++slot) {
    const auto [kept, is_new] = state_views_->all.try_emplace({block, segment, slot, part.own_begin, part.own_end});
    if (is_new) {
      const std::optional<StateArray> array = state_of(block, segment, slot);
      if (array) kept->second = view_of(*array);
    }
    update.states[slot].push_back(kept->second);
  }
}

/// Fills what this rank owns with the values that the rule's states begin with, if any of them is not 0.
void Optimizer::initialize_state() {
  state_views_ = std::make_shared<StateViews>();
  if (begins_at_zero(*rule_, groups_, rule_states_)) return;  // memory is allocated zeroed
  TensorParameters* const tensors = parameters_->as_tensors();
  const at::Device device = tensors != nullptr ? tensors->flat_parameter(0, 0).device() : at::Device(at::kCPU);
  const auto fill = [&](std::size_t b, std::size_t s, std::size_t slot) {
    const Segment& segment = parameters_->blocks()[b].segments[s];
    const std::optional<StateArray> array = state_of(b, s, slot);
    if (!array || segment.own_begin == segment.own_end) return;
    const bool is_like_parameter = rule_->state_shape() == nullptr;
    const std::int64_t begin = is_like_parameter ? segment.own_begin : 0;
    const std::int64_t end = is_like_parameter ? segment.own_end : c10::multiply_integers(array->shape);
    const auto bytes = static_cast<std::int64_t>(size_of(array->dtype));
    const auto options = at::device(device).dtype(scalar_type_of(array->dtype));
    flat_view(array->values + begin * bytes, end - begin, options).fill_(rule_->initial_state(options_of(b, s), slot));
  };
  const torch::NoGradGuard no_grad;
  parameters_->write([&] {  // the owners of the other parts read this one when they save a checkpoint
    for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < rule_states_; ++slot) fill(b, s, slot);
    });
  });
}

/// One parameter at a time: at most one gradient is stored in addition to the parameters.
void Optimizer::step_by(const WholeRule& rule, Changes changes) {
  const torch::NoGradGuard no_grad;
  parameters_->finish_gradients();
  count_step();
  parameters_->write([&] {
    WholeGradient whole;
    visit_pieces(changes, [&](const GradientPiece& piece) {
      const FlatBlock& block = parameters_->blocks()[piece.block];
      const Segment& segment = block.segments[piece.segment];
      const at::ScalarType type = block.dtype == DType::float64 ? at::kDouble : at::kFloat;
      const at::Tensor& gradient = whole.take(piece, segment, type);
      if (!gradient.defined()) return;
      const at::Tensor parameter = flat_parameter(*parameters_, piece.block, piece.segment);
      std::optional<TensorStack> wide;
      if (block.is_half()) wide = widened(piece.block, {piece.segment}, {parameter});
      TensorUpdate update;
      add_to(update, piece.block, piece.segment, wide ? wide->parts().front() : parameter, gradient);
      rule.update(update);
      if (wide) narrow(piece.block, {piece.segment}, *wide, {parameter});
    });
  });
}

void Optimizer::step_tensors(const TensorChange& change, LiveNumbers* live) {
  if (live != nullptr && half_.rounds_stochastically) {
    throw std::runtime_error("the random numbers of stochastic rounding are chosen by the CPU");
  }
  const torch::NoGradGuard no_grad;
  parameters_->finish_gradients();
  count_step();
  // The key by block, group and number of updates.
  using Key = std::tuple<std::size_t, std::size_t, std::int64_t>;
  std::map<Key, TensorUpdate> updates;
  std::map<Key, std::vector<std::size_t>> halves;  // segments
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    was_counted_[b][s] = parameters_->has_gradient(b, s) ? 1 : 0;
    if (was_counted_[b][s] == 0) return;
    const Segment& segment = parameters_->blocks()[b].segments[s];
    if (segment.own_begin == segment.own_end && segment.count > 0) return;  // another rank's
    const Key key = {b, group_of_[b][s], steps_[b][s]};
    if (parameters_->blocks()[b].is_half()) {
      halves[key].push_back(s);
    } else {
      add_to(updates[key], b, s, parameters_->as_tensors()->flat_parameter(b, s),
             parameters_->as_tensors()->flat_gradient(b, s));
    }
  });
  parameters_->write([&] {
    for (auto& [key, update] : updates) change_gradients(update.gradients, change, std::get<1>(key));
    TensorUpdate common;
    common.is_void = change.is_void;
    const GradientView changed = {
        .group_of = [this](std::size_t b, std::size_t s) { return group_of_[b][s]; },
        .change = [&](std::size_t group, std::vector<at::Tensor>& wide) { change_gradients(wide, change, group); }};
    if (needs().gradient_norm) common.gradient_norm = gradient_norm_tensor(*parameters_, 2, &changed);
    for (auto& [key, update] : updates) {
      update.is_void = common.is_void;
      update.gradient_norm = common.gradient_norm;
      apply(update, std::get<0>(key), live);
    }
    for (const auto& [key, segments] : halves) {
      const std::size_t block = std::get<0>(key);
      const std::size_t group = std::get<1>(key);
      step_halves(block, segments, common, [&](TensorUpdate& update) {
        change_gradients(update.gradients, change, group);
        apply(update, block, live);
      });
    }
  });
  if (live != nullptr) recorded_ = was_counted_;
}

/// @param live  not null: what the rule does is recorded, with numbers that later launches read
void Optimizer::apply(TensorUpdate& update, std::size_t block, LiveNumbers* live) const {
  if (live == nullptr) return update_tensors(*rule_, update);
  std::size_t segment = 0;  // any that has these options and this count
  while (was_counted_[block][segment] == 0 || &options_of(block, segment) != update.options ||
         steps_[block][segment] != update.step) {
    ++segment;
  }
  const LiveUpdate numbers(*live, options_of(block, segment), steps_[block][segment]);
  numbers.fix_options();
  const std::size_t declared = live->size();
  update.live = &numbers;
  update_tensors(*rule_, update);
  update.live = nullptr;
  if (live->size() == declared) {
    throw std::runtime_error("the optimizer " + rule_->name + " reads its learning rate from the host");
  }
}

void Optimizer::count_recorded_step() {
  was_counted_ = recorded_;
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    if (rule_->counts_every_step || recorded_[b][s] != 0) ++steps_[b][s];
  });
}

void Optimizer::uncount_step(const std::vector<std::vector<char>>& counted) {
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    if (rule_->counts_every_step || counted[b][s] != 0) --steps_[b][s];
  });
}

}  // namespace lockstep::optim
