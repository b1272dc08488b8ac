// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/field_normalization.hpp"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "batch/byte_values.hpp"
#include "kernels/field_values.hpp"

// N samples, T steps of a target, C channels of a step.
namespace lockstep::models {

namespace {

/// One number for each channel of values [N, C, space...], in their type.
at::Tensor of_channels(const at::Tensor& numbers, const at::Tensor& values) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(values.dim()), 1);
  shape[1] = numbers.numel();
  return numbers.to(values.scalar_type()).view(shape);
}

/// (input - shift) / scale for each channel in one pass over the values.
/// @param input       [N, C, space...] float32, contiguous, on the CPU
/// @param fills_gaps  NaN becomes 0
at::Tensor standardized(const at::Tensor& input, const at::Tensor& shift, const at::Tensor& scale, bool fills_gaps) {
  constexpr std::int64_t kGrain = 1 << 15;  // values of a thread
  at::Tensor output = at::empty_like(input);
  const std::int64_t channels = input.size(1);
  const std::int64_t points = input.numel() / std::max<std::int64_t>(1, input.size(0) * channels);
  const auto* const from = input.const_data_ptr<float>();
  auto* const values = output.mutable_data_ptr<float>();
  const auto* const shifts = shift.const_data_ptr<float>();
  const auto* const scales = scale.const_data_ptr<float>();
  at::parallel_for(0, input.size(0) * channels, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, points)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int64_t c = row % channels;
                       kernels::standardize(points, from + row * points, shifts[c], scales[c], fills_gaps,
                                            values + row * points);
                     }
                   });
  return output;
}

at::Tensor with_zeros(const at::Tensor& values, const at::Tensor& is_kept) {
  return at::where(is_kept, values, at::zeros({}, values.options()));
}

}  // namespace

FieldNormalization::FieldNormalization(const FieldScaling& scaling, at::ScalarType dtype)
    : rates_(register_numbers("input_rates", scaling.input_rates, dtype)),
      input_shift_(register_numbers("input_shift", scaling.input_shift, dtype)),
      input_scale_(register_numbers("input_scale", scaling.input_scale, dtype)),
      target_shift_(register_numbers("target_shift", scaling.target_shift, dtype)),
      target_scale_(register_numbers("target_scale", scaling.target_scale, dtype)),
      newest_(torch::tensor(scaling.fed_back, at::kLong) + (scaling.input_steps - 1) * scaling.input_channels),
      scaling_(scaling) {}

at::Tensor FieldNormalization::register_numbers(const std::string& name, const std::vector<double>& numbers,
                                                at::ScalarType dtype) {
  if (numbers.empty()) return {};
  return register_buffer(name, torch::tensor(numbers, at::kDouble).to(dtype == at::kDouble ? at::kDouble : at::kFloat));
}

at::Tensor FieldNormalization::normalized(const at::Tensor& input) const {
  const bool is_plain = !rates_.defined() && input_shift_.defined() && input.is_cpu() && input.is_contiguous() &&
                        input.scalar_type() == at::kFloat && input_shift_.scalar_type() == at::kFloat &&
                        !torch::autograd::compute_requires_grad(input);
  if (is_plain) return standardized(input, input_shift_, input_scale_, scaling_.fills_gaps);
  at::Tensor x = input;
  if (rates_.defined()) {
    const at::Tensor rates = of_channels(rates_, x);
    x = at::where(rates.ne(0), -at::expm1(-rates * x), x);
  }
  if (input_shift_.defined()) x = (x - of_channels(input_shift_, x)) / of_channels(input_scale_, x);
  if (rates_.defined()) x = with_zeros(x, x.isfinite());
  if (scaling_.fills_gaps) x = with_zeros(x, x.isnan().logical_not());
  return x;
}

at::Tensor FieldNormalization::newest_of(const at::Tensor& input) const {
  return input.index_select(1, batch::kept_on(newest_, input.device()));
}

at::Tensor FieldNormalization::in_units(const at::Tensor& output, const at::Tensor& input) const {
  at::Tensor y = output;
  if (target_scale_.defined()) {
    y = y.to(target_scale_.scalar_type());  // autocast gives 16 bits
    y = y * of_channels(target_scale_, y) + of_channels(target_shift_, y);
  }
  if (!scaling_.adds_newest) return y;
  std::vector<std::int64_t> shape = y.sizes().vec();
  shape[1] /= scaling_.target_steps;
  shape.insert(shape.begin() + 1, scaling_.target_steps);
  at::Tensor steps = y.reshape(shape);
  if (scaling_.adds_steps) steps = steps.cumsum(1);
  return (steps + newest_of(input).to(y.scalar_type()).unsqueeze(1)).reshape(y.sizes());
}

at::Tensor FieldNormalization::scaled(const at::Tensor& values, const at::Tensor& input) const {
  at::Tensor y = values;
  if (scaling_.adds_steps) {
    const at::Tensor before = newest_of(input).to(y.scalar_type());
    const std::int64_t later = y.size(1) - before.size(1);
    y = y - (later == 0 ? before : at::cat({before, y.narrow(1, 0, later)}, 1));
  }
  if (!target_scale_.defined()) return y;
  const std::int64_t passes = y.size(1) / target_scale_.numel();
  return y / of_channels(passes == 1 ? target_scale_ : target_scale_.repeat({passes}), y);
}

/// One time step of what was predicted: [N, C, space...].
at::Tensor FieldNormalization::step_of(const std::vector<at::Tensor>& outputs, std::int64_t step) const {
  const at::Tensor& output = outputs[static_cast<std::size_t>(step / scaling_.target_steps)];
  const auto channels = static_cast<std::int64_t>(scaling_.fed_back.size());
  return output.narrow(1, step % scaling_.target_steps * channels, channels);
}

at::Tensor FieldNormalization::next_input(const at::Tensor& stored, const at::Tensor& before,
                                          const std::vector<at::Tensor>& outputs) const {
  const at::Tensor is_gap = newest_of(before).isnan();
  std::vector<at::Tensor> channels = stored.unbind(1);
  const std::int64_t predicted = std::ssize(outputs) * scaling_.target_steps;  // steps
  for (std::int64_t h = 0; h < scaling_.input_steps; ++h) {
    // Step 0 of the stored input is that many steps after step 0 of the first input.
    const std::int64_t step = h + predicted - scaling_.input_steps;
    if (step < 0) continue;
    const at::Tensor values =
        step_of(outputs, step).to(stored.scalar_type()).masked_fill(is_gap, std::numeric_limits<double>::quiet_NaN());
    for (std::size_t c = 0; c < scaling_.fed_back.size(); ++c) {
      channels[static_cast<std::size_t>(h * scaling_.input_channels + scaling_.fed_back[c])] =
          values.select(1, static_cast<std::int64_t>(c));
    }
  }
  return at::stack(channels, 1);
}

}  // namespace lockstep::models
