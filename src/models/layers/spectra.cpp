// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/spectra.hpp"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>

namespace lockstep::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kSpaceDim = 2;  // dimensions before it: samples and channels

std::vector<std::int64_t> dims_of_space(const at::Tensor& tensor) {
  std::vector<std::int64_t> axes;
  for (std::int64_t dim = kSpaceDim; dim < tensor.dim(); ++dim) axes.push_back(dim);
  return axes;
}

std::vector<std::int64_t> sizes_of_space(const at::Tensor& tensor) { return tensor.sizes().slice(kSpaceDim).vec(); }

std::int64_t number_of_points(const std::vector<std::int64_t>& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

/// How many of the kept frequencies lie at the end of an axis; the others lie at its beginning.
std::int64_t at_the_end(std::int64_t points, std::int64_t count, FrequencyOrder order) {
  return count / 2 + (order == FrequencyOrder::shifted ? points % 2 : 0);
}

/// @param spectrum  [N, C, frequencies...] of a Fourier transform
at::Tensor kept_frequencies(const at::Tensor& spectrum, const std::vector<std::int64_t>& counts, FrequencyOrder order) {
  const std::int64_t last = spectrum.dim() - 1;
  at::Tensor x = spectrum.narrow(last, 0, counts.back());
  for (std::int64_t dim = kSpaceDim; dim < last; ++dim) {
    const std::int64_t points = x.size(dim);
    const std::int64_t count = counts[static_cast<std::size_t>(dim - kSpaceDim)];
    const std::int64_t end = at_the_end(points, count, order);
    x = at::cat({x.narrow(dim, points - end, end), x.narrow(dim, 0, count - end)}, dim);
  }
  return x;
}

/// The reverse of kept_frequencies, with zeros for all other frequencies. Those at the end of the last axis are left
/// out.
at::Tensor spread_frequencies(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes,
                              FrequencyOrder order) {
  at::Tensor x = frequencies;
  for (std::int64_t dim = frequencies.dim() - 2; dim >= kSpaceDim; --dim) {
    const std::int64_t points = sizes[static_cast<std::size_t>(dim - kSpaceDim)];
    const std::int64_t count = x.size(dim);
    const std::int64_t end = at_the_end(points, count, order);
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape[static_cast<std::size_t>(dim)] = points - count;
    x = at::cat({x.narrow(dim, end, count - end), at::zeros(shape, x.options()), x.narrow(dim, 0, end)}, dim);
  }
  return x;
}

/// How often a frequency of the last axis occurs in a real field: once without and once with its sign, except for 0 and
/// for half of an even number of points.
/// @return  [K of the last axis]
at::Tensor occurrences(const at::Tensor& frequencies, std::int64_t points) {
  const std::int64_t count = frequencies.size(-1);
  const at::ScalarType type = at::toRealValueType(frequencies.scalar_type());
  at::Tensor times = at::full({count}, 2, frequencies.options().dtype(type));
  times.narrow(0, 0, 1).fill_(1);
  if (points % 2 == 0 && count == points / 2 + 1) times.narrow(0, count - 1, 1).fill_(1);
  return times;
}

struct Analysis : torch::autograd::Function<Analysis> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& field, const std::vector<std::int64_t>& counts,
                            std::int64_t order) {
    context->saved_data["sizes"] = sizes_of_space(field);
    context->saved_data["order"] = order;
    return kept_frequencies(at::fft_rfftn(field, std::nullopt, dims_of_space(field), "forward"), counts,
                            FrequencyOrder(order));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<std::int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(3);
    const at::Tensor divisor = occurrences(gradient, sizes.back()) * static_cast<double>(number_of_points(sizes));
    const auto order = FrequencyOrder(context->saved_data["order"].toInt());
    return {field_of_frequencies(gradient / divisor, sizes, order), {}, {}};
  }
};

struct Synthesis : torch::autograd::Function<Synthesis> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& frequencies,
                            const std::vector<std::int64_t>& sizes, std::int64_t order) {
    context->saved_data["counts"] = sizes_of_space(frequencies);
    context->saved_data["order"] = order;
    return at::fft_irfftn(spread_frequencies(frequencies, sizes, FrequencyOrder(order)), sizes,
                          dims_of_space(frequencies), "forward");
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(3);
    const auto order = FrequencyOrder(context->saved_data["order"].toInt());
    const at::Tensor frequencies = lowest_frequencies(gradient, context->saved_data["counts"].toIntVector(), order);
    const std::vector<std::int64_t> sizes = sizes_of_space(gradient);
    const at::Tensor factor = occurrences(frequencies, sizes.back()) * static_cast<double>(number_of_points(sizes));
    return {frequencies * factor, {}, {}};
  }
};

}  // namespace

at::Tensor lowest_frequencies(const at::Tensor& field, const std::vector<std::int64_t>& counts, FrequencyOrder order) {
  return Analysis::apply(field, counts, static_cast<std::int64_t>(order));
}

at::Tensor field_of_frequencies(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes,
                                FrequencyOrder order) {
  return Synthesis::apply(frequencies, sizes, static_cast<std::int64_t>(order));
}

}  // namespace lockstep::models
