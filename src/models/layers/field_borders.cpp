// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/field_borders.hpp"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "kernels/borders.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/recorded.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kGrainValues = 32768;  // below it a second thread costs more than it saves

/// @return  none = the borders are zero
std::optional<kernels::BorderSources> border_sources(AxisPadding padding, std::int64_t points) {
  switch (padding) {
    case AxisPadding::circular:
      return kernels::BorderSources{points - 1, 0};
    case AxisPadding::replicate:
      return kernels::BorderSources{0, points - 1};
    case AxisPadding::reflect:
      return kernels::BorderSources{1, points - 2};
    case AxisPadding::zero:
      break;
  }
  return std::nullopt;
}

// --- the plain form, for every type and device ---

/// An axis of a field that has borders there.
struct Borders {
  Borders(const at::Tensor& with_borders, std::size_t axis, AxisPadding padding)
      : field(with_borders),
        dim(static_cast<std::int64_t>(axis) + kFirstAxis),
        points(field.size(dim) - 2),
        before(field.narrow(dim, 0, 1)),
        behind(field.narrow(dim, points + 1, 1)),
        sources(border_sources(padding, points)) {}

  at::Tensor source(std::int64_t point) const { return field.narrow(dim, point + 1, 1); }

  at::Tensor field;
  std::int64_t dim;
  std::int64_t points;
  at::Tensor before;
  at::Tensor behind;
  std::optional<kernels::BorderSources> sources;
};

at::Tensor inside_of(const at::Tensor& with_borders) {
  at::Tensor inside = with_borders;
  for (std::int64_t dim = kFirstAxis; dim < inside.dim(); ++dim) inside = inside.narrow(dim, 1, inside.size(dim) - 2);
  return inside;
}

void fill_with_borders(const at::Tensor& field, const std::vector<std::int64_t>& paddings, const at::Tensor& output) {
  inside_of(output).copy_(field);
  for (std::size_t axis = 0; axis < paddings.size(); ++axis) {
    const Borders borders(output, axis, AxisPadding(paddings[axis]));
    if (borders.sources) {
      borders.before.copy_(borders.source(borders.sources->before));
      borders.behind.copy_(borders.source(borders.sources->behind));
    } else {
      borders.before.zero_();
      borders.behind.zero_();
    }
  }
}

/// The gradient of the field, where `axis` and later axes have borders.
at::Tensor folded(const at::Tensor& gradient, const std::vector<std::int64_t>& paddings, std::size_t axis) {
  if (axis == paddings.size()) return gradient.clone(gradient.suggest_memory_format());
  const Borders borders(gradient, axis, AxisPadding(paddings[axis]));
  const at::Tensor result = folded(gradient.narrow(borders.dim, 1, borders.points), paddings, axis + 1);
  if (!borders.sources) return result;
  const auto add = [&](std::int64_t point, const at::Tensor& border) {
    result.narrow(borders.dim, point, 1).add_(folded(border, paddings, axis + 1));
  };
  add(borders.sources->before, borders.before);
  add(borders.sources->behind, borders.behind);
  return result;
}

// --- kernels for float32 on the CPU, with the same bits ---

/// A field as the kernels see it.
struct PlainField {
  std::int64_t fields;
  kernels::BorderedField field;
};

/// @param tensor  without borders, or with `added` more points on each axis
/// @return        none if there is no kernel for its type, device or layout
std::optional<PlainField> plain_field(const at::Tensor& tensor, const std::vector<std::int64_t>& paddings,
                                      std::int64_t added) {
  if (!tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat) return std::nullopt;
  const bool is_last = is_channels_last_float(tensor);
  if (!is_last && !tensor.is_contiguous()) return std::nullopt;
  PlainField plain{.fields = tensor.size(0) * (is_last ? 1 : tensor.size(1)), .field = {}};
  plain.field.values = is_last ? tensor.size(1) : 1;
  for (std::size_t axis = 0; axis < paddings.size(); ++axis) {
    const std::int64_t points = tensor.size(static_cast<std::int64_t>(axis) + kFirstAxis) - added;
    plain.field.axes.push_back({points, border_sources(AxisPadding(paddings[axis]), points)});
  }
  return plain;
}

using BordersKernel = void (*)(const kernels::BorderedField& field, std::int64_t fields, const float* source,
                               float* target);

void run_on_fields(BordersKernel kernel, const PlainField& plain, const at::Tensor& source, const at::Tensor& target) {
  const KernelRecord record("lockstep::borders");
  const auto* const fields = source.const_data_ptr<float>();
  auto* const results = target.mutable_data_ptr<float>();
  const std::int64_t source_size = source.numel() / std::max<std::int64_t>(plain.fields, 1);
  const std::int64_t target_size = target.numel() / std::max<std::int64_t>(plain.fields, 1);
  const std::int64_t grain = std::max<std::int64_t>(kGrainValues / std::max<std::int64_t>(target_size, 1), 1);
  at::parallel_for(0, plain.fields, grain, [&](std::int64_t begin, std::int64_t end) {
    kernel(plain.field, end - begin, fields + begin * source_size, results + begin * target_size);
  });
}

/// A field with borders. Its gradient adds that of each border to the points which the border repeats; the gradients of
/// slices, which autograd would add, have the size of the whole field for each border.
struct WithBorders : torch::autograd::Function<WithBorders> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& field,
                            const std::vector<std::int64_t>& paddings) {
    context->saved_data["paddings"] = paddings;
    std::vector<std::int64_t> sizes = field.sizes().vec();
    for (std::size_t axis = 0; axis < paddings.size(); ++axis) sizes[axis + kFirstAxis] += 2;
    at::Tensor output = at::empty(sizes, field.options().memory_format(field.suggest_memory_format()));
    if (const auto plain = plain_field(field, paddings, 0)) {
      run_on_fields(kernels::write_with_borders, *plain, field, output);
    } else {
      fill_with_borders(field, paddings, output);
    }
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return torch::autograd::variable_list(2);
    const std::vector<std::int64_t> paddings = context->saved_data["paddings"].toIntVector();
    const bool is_recorded = at::GradMode::is_enabled() && gradient.requires_grad();
    const auto plain = is_recorded ? std::nullopt : plain_field(gradient, paddings, 2);
    if (!plain) return {folded(gradient, paddings, 0), {}};
    at::Tensor result =
        at::empty(inside_of(gradient).sizes(), gradient.options().memory_format(gradient.suggest_memory_format()));
    run_on_fields(kernels::write_without_borders, *plain, gradient, result);
    return {result, {}};
  }
};

}  // namespace

at::Tensor padded(const at::Tensor& input, const std::vector<AxisPadding>& paddings) {
  std::vector<std::int64_t> numbers;
  for (const AxisPadding padding : paddings) numbers.push_back(static_cast<std::int64_t>(padding));
  return WithBorders::apply(input, numbers);
}

}  // namespace lockstep::models
