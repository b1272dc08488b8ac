// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/spectra.hpp"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>

#include "kernels/frequency_products.hpp"
#include "kernels/kernels.hpp"
#include "models/layers/gradient_sink.hpp"
#include "models/layers/recorded.hpp"

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

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
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

/// Divided by the number of points, as both transforms do.
at::Tensor analyzed(const at::Tensor& field, const std::vector<std::int64_t>& counts, FrequencyOrder order) {
  return kept_frequencies(at::fft_rfftn(field, std::nullopt, dims_of_space(field), "forward"), counts, order);
}

at::Tensor synthesized(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes, FrequencyOrder order) {
  return at::fft_irfftn(spread_frequencies(frequencies, sizes, order), sizes, dims_of_space(frequencies), "forward");
}

/// The gradient of frequencies is that of their field, analyzed, times these factors.
/// @param sizes  points of each axis of space
at::Tensor factors_of_gradient(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes) {
  return occurrences(frequencies, sizes.back()) * static_cast<double>(product_of(sizes));
}

struct Analysis : torch::autograd::Function<Analysis> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& field, const std::vector<std::int64_t>& counts,
                            std::int64_t order) {
    context->saved_data["sizes"] = sizes_of_space(field);
    context->saved_data["order"] = order;
    return analyzed(field, counts, FrequencyOrder(order));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<std::int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(3);
    const auto order = FrequencyOrder(context->saved_data["order"].toInt());
    return {field_of_frequencies(gradient / factors_of_gradient(gradient, sizes), sizes, order), {}, {}};
  }
};

struct Synthesis : torch::autograd::Function<Synthesis> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& frequencies,
                            const std::vector<std::int64_t>& sizes, std::int64_t order) {
    context->saved_data["counts"] = sizes_of_space(frequencies);
    context->saved_data["order"] = order;
    return synthesized(frequencies, sizes, FrequencyOrder(order));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(3);
    const auto order = FrequencyOrder(context->saved_data["order"].toInt());
    const at::Tensor frequencies = lowest_frequencies(gradient, context->saved_data["counts"].toIntVector(), order);
    return {frequencies * factors_of_gradient(frequencies, sizes_of_space(gradient)), {}, {}};
  }
};

/// @param weight  [in, out, K of each axis, 2]
std::vector<std::int64_t> counts_of(const at::Tensor& weight) {
  return weight.sizes().slice(kSpaceDim, weight.dim() - kSpaceDim - 1).vec();
}

/// [N, channels, K...] for a spectrum [N, C, K...]
std::vector<std::int64_t> shape_with(const at::Tensor& spectrum, std::int64_t channels) {
  std::vector<std::int64_t> shape = spectrum.sizes().vec();
  shape[1] = channels;
  return shape;
}

/// spectral_convolution in LibTorch's functions. A real matrix that multiplies pairs of numbers takes as many
/// operations as a complex one, and its products are faster.
at::Tensor plain_spectral_convolution(const at::Tensor& field, const at::Tensor& weight, FrequencyOrder order) {
  const at::Tensor spectrum = lowest_frequencies(field, counts_of(weight));
  const at::Tensor by_frequency = weight.flatten(kSpaceDim, -2).permute({2, 0, 1, 3});  // [K, in, out, 2]
  const at::Tensor real = by_frequency.select(3, 0), imaginary = by_frequency.select(3, 1);
  const at::Tensor of_imaginary = at::stack({-imaginary, real}, 3);  // i w
  const at::Tensor matrices = at::stack({by_frequency, of_imaginary}, 2).flatten(3, 4).flatten(1, 2);
  const at::Tensor rows = at::view_as_real(spectrum.flatten(kSpaceDim)).permute({2, 0, 1, 3});  // [K, N, in, 2]
  const at::Tensor output = at::bmm(rows.flatten(2, 3), matrices);                              // [K, N, 2 out]
  const at::Tensor pairs = output.unflatten(2, {-1, 2}).permute({1, 2, 0, 3});                  // [N, out, K, 2]
  const at::Tensor frequencies = at::view_as_complex(pairs.contiguous()).reshape(shape_with(spectrum, weight.size(1)));
  return field_of_frequencies(frequencies, sizes_of_space(field), order);
}

/// A spectrum [N, C, K...] or a weight [in, out, K..., 2] whose frequencies are contiguous, as a matrix for each.
kernels::FrequencyMatrices matrices_of(const at::Tensor& tensor) {
  const std::int64_t step = tensor.is_complex() ? 2 : 1;  // float32 numbers
  return {.values = static_cast<float*>(tensor.mutable_data_ptr()),
          .rows = tensor.size(0),
          .columns = tensor.size(1),
          .row_step = step * tensor.stride(0),
          .column_step = step * tensor.stride(1)};
}

kernels::FrequencyMatrices transposed(const kernels::FrequencyMatrices& matrices) {
  return {.values = matrices.values,
          .rows = matrices.columns,
          .columns = matrices.rows,
          .row_step = matrices.column_step,
          .column_step = matrices.row_step};
}

/// Threads divide the rows.
void write(const kernels::FrequencyProduct& product) {
  constexpr std::int64_t kGrain = 32768;  // products of complex numbers: below them a second thread costs more
  const std::int64_t of_row = product.left.columns * product.right.columns * product.frequencies;
  at::parallel_for(0, product.result.rows, std::max<std::int64_t>(1, kGrain / of_row),
                   [&](std::int64_t begin, std::int64_t end) { write_frequency_product(product, begin, end); });
}

/// The kept frequencies of a single axis are a part of all, so that they are contiguous, but channels are not.
at::Tensor with_contiguous_frequencies(const at::Tensor& spectrum) {
  return spectrum.dim() == kSpaceDim + 1 && spectrum.stride(kSpaceDim) == 1 ? spectrum : spectrum.contiguous();
}

class SpectralConvolutionBackward : public torch::autograd::Node {
 public:
  SpectralConvolutionBackward(const at::Tensor& field, const at::Tensor& weight, FrequencyOrder order)
      : Node(torch::autograd::collect_next_edges(field, weight)),
        field_(field, /*is_output=*/false),
        values_(weight, /*is_output=*/false),
        weight_(weight),
        order_(order) {}

  /// @param spectrum  of the field
  void keep(const at::Tensor& spectrum) { spectrum_ = spectrum; }

  std::string name() const override { return "SpectralConvolutionBackward"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(2);
    const at::Tensor weight = values_.unpack();
    if (at::GradMode::is_enabled()) return differentiable_gradients(field_.unpack(), weight, gradients[0]);
    const std::vector<std::int64_t> sizes = sizes_of_space(gradients[0]);
    const at::Tensor gradient =
        with_contiguous_frequencies(analyzed(gradients[0].contiguous(), counts_of(weight), order_));
    return {task_should_compute_output(0) ? field_gradient(gradient, weight, sizes) : at::Tensor(),
            task_should_compute_output(1) ? weight_gradient(gradient, sizes) : at::Tensor()};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    field_.reset_data();
    values_.reset_data();
    spectrum_.reset();
  }

 private:
  /// Those of create_graph.
  variable_list differentiable_gradients(const at::Tensor& field, const at::Tensor& weight,
                                         const at::Tensor& gradient) const {
    variable_list inputs;
    if (task_should_compute_output(0)) inputs.push_back(field);
    if (task_should_compute_output(1)) inputs.push_back(weight);
    const at::Tensor output = plain_spectral_convolution(field, weight, order_);
    variable_list result = torch::autograd::grad({output}, inputs, {gradient}, /*retain_graph=*/true,
                                                 /*create_graph=*/true);
    if (!task_should_compute_output(0)) result.insert(result.begin(), at::Tensor());
    result.resize(2);
    return result;
  }

  /// The factors of the two transforms cancel each other out.
  /// @param gradient  that of the output, analyzed
  /// @param sizes     points of each axis of space
  static at::Tensor field_gradient(const at::Tensor& gradient, const at::Tensor& weight,
                                   const std::vector<std::int64_t>& sizes) {
    const at::Tensor result = at::empty(shape_with(gradient, weight.size(0)), gradient.options());
    write({.left = matrices_of(gradient),
           .right = transposed(matrices_of(weight)),
           .result = matrices_of(result),
           .frequencies = product_of(counts_of(weight)),
           .conjugate = kernels::Conjugate::right});
    return synthesized(result, sizes, FrequencyOrder::standard);
  }

  at::Tensor weight_gradient(const at::Tensor& gradient, const std::vector<std::int64_t>& sizes) const {
    const at::Tensor factor = gradient * factors_of_gradient(gradient, sizes);
    const auto overwrite = [&](const at::Tensor& target) {
      write({.left = transposed(matrices_of(spectrum_)),
             .right = matrices_of(factor),
             .result = matrices_of(target),
             .frequencies = product_of(counts_of(target)),
             .conjugate = kernels::Conjugate::left});
    };
    const auto result = [&] {
      at::Tensor target = at::empty_like(weight_);
      overwrite(target);
      return target;
    };
    const auto add = [&](const at::Tensor& view) { view.add_(result()); };
    if (write_to_sink(weight_, at::kFloat, overwrite, add)) return {};
    return result();
  }

  torch::autograd::SavedVariable field_;
  torch::autograd::SavedVariable values_;
  at::Tensor weight_;    // its sink takes the gradient
  at::Tensor spectrum_;  // detached from the autograd graph
  FrequencyOrder order_;
};

}  // namespace

at::Tensor lowest_frequencies(const at::Tensor& field, const std::vector<std::int64_t>& counts, FrequencyOrder order) {
  return Analysis::apply(field, counts, static_cast<std::int64_t>(order));
}

at::Tensor field_of_frequencies(const at::Tensor& frequencies, const std::vector<std::int64_t>& sizes,
                                FrequencyOrder order) {
  return Synthesis::apply(frequencies, sizes, static_cast<std::int64_t>(order));
}

at::Tensor spectral_convolution(const at::Tensor& field, const at::Tensor& weight, FrequencyOrder order) {
  const bool is_for_kernel = kernels::is_used(kernels::Kernel::frequency_products) && field.is_cpu() &&
                             field.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
                             weight.is_contiguous() && field.numel() > 0 && weight.numel() > 0;
  if (!is_for_kernel) return plain_spectral_convolution(field, weight, order);
  at::Tensor spectrum;
  const auto compute = [&] {
    spectrum = with_contiguous_frequencies(analyzed(field, counts_of(weight), FrequencyOrder::standard));
    const at::Tensor output = at::empty(shape_with(spectrum, weight.size(1)), spectrum.options());
    const KernelRecord record("lockstep::frequency_products", 4 * field.size(0) * weight.numel());
    write({.left = matrices_of(spectrum),
           .right = matrices_of(weight),
           .result = matrices_of(output),
           .frequencies = product_of(counts_of(weight))});
    return synthesized(output, sizes_of_space(field), order);
  };
  if (!torch::autograd::compute_requires_grad(field, weight)) return compute();
  const auto node = backward_node<SpectralConvolutionBackward>(field, weight, order);
  at::Tensor output = output_of(node, compute);
  node->keep(spectrum);
  return output;
}

}  // namespace lockstep::models
