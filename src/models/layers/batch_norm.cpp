// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/batch_norm.hpp"

#include <lockstep/models/functional.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>

#include "kernels/kernels.hpp"
#include "models/layers/recorded.hpp"

// N samples, C channels, H x W pixels; the kernels see N * H * W rows of C channels.
namespace lockstep::models {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr std::int64_t kGrainElements = 32768;  // below it a second thread costs more than it saves

bool is_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

bool is_alike(const at::Tensor& one, const at::Tensor& other) {
  return is_rows(one) && one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes();
}

/// Calls `work(range, T())` on channels, divided among threads, with T as the kernels call the input's type.
template <class Work>
void over_channels(const at::Tensor& input, const Work& work) {
  const std::int64_t channels = input.size(1);
  const std::int64_t rows = input.numel() / channels;
  const std::int64_t grain = std::max<std::int64_t>(16, kGrainElements / rows);
  at::parallel_for(0, channels, grain, [&](std::int64_t begin, std::int64_t end) {
    const kernels::NormRange range{.rows = rows, .channels = channels, .begin = begin, .end = end};
    if (input.scalar_type() == at::kFloat) {
      work(range, float());
    } else {
      work(range, BFloat16());
    }
  });
}

/// @return  null for an undefined tensor
template <class T>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

/// The values that the backward needs of the forward, each [C].
struct Batch {
  at::Tensor mean;
  at::Tensor inverse;  ///< 1 / sqrt(variance + eps)
  at::Tensor scale;    ///< weight * inverse
  at::Tensor shift;

  kernels::NormFactors factors() const {
    return {.scale = scale.const_data_ptr<float>(),
            .shift = shift.const_data_ptr<float>(),
            .mean = mean.const_data_ptr<float>()};
  }
};

class BatchNormBackward : public torch::autograd::Node {
 public:
  BatchNormBackward(const NormInputs& inputs, Batch batch, kernels::NormTail tail)
      : Node(torch::autograd::collect_next_edges(inputs.input, inputs.weight, inputs.bias, inputs.residual)),
        input_(inputs.input, /*is_output=*/false),
        weight_(inputs.weight, /*is_output=*/false),
        eps_(inputs.eps),
        batch_(std::move(batch)),
        tail_(tail) {}

  std::string name() const override { return "BatchNormBackward"; }

  void save_output(const at::Tensor& output) {
    if (tail_.has_relu && tail_.has_residual) output_ = SavedVariable(output, /*is_output=*/true);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(4);
    const at::Tensor input = input_.unpack();
    const at::Tensor output = output_.unpack(shared_from_this());
    if (at::GradMode::is_enabled()) return recorded(gradients[0], input, output);  // create_graph
    const at::Tensor gradient = gradients[0].to(input.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
    const bool is_masked = tail_.has_relu && tail_.has_residual;
    const at::Tensor inner = is_masked ? at::empty_like(input) : gradient;
    at::Tensor sums = at::empty_like(batch_.mean);
    at::Tensor dot_sums = at::empty_like(batch_.mean);
    over_channels(input, [&](const kernels::NormRange& range, auto type) {
      using T = decltype(type);
      kernels::norm_sums(range, tail_, batch_.factors(), data_of<T>(gradient), data_of<T>(input), data_of<T>(output),
                         data_of<T>(inner), sums.mutable_data_ptr<float>(), dot_sums.mutable_data_ptr<float>());
    });
    variable_list result(4);
    if (task_should_compute_output(0)) result[0] = input_gradient(inner, input, sums, dot_sums);
    if (task_should_compute_output(1)) result[1] = dot_sums * batch_.inverse;
    if (task_should_compute_output(2)) result[2] = sums;
    if (task_should_compute_output(3)) result[3] = inner;
    return result;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
    weight_.reset_data();
    output_.reset_data();
  }

 private:
  at::Tensor input_gradient(const at::Tensor& inner, const at::Tensor& input, const at::Tensor& sums,
                            const at::Tensor& dot_sums) const {
    const double rows = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
    const at::Tensor offset = sums / rows;
    const at::Tensor slope = dot_sums * batch_.inverse * batch_.inverse / rows;
    at::Tensor result = at::empty_like(input);
    over_channels(input, [&](const kernels::NormRange& range, auto type) {
      using T = decltype(type);
      kernels::norm_input_gradient(range, tail_, batch_.factors(), offset.const_data_ptr<float>(),
                                   slope.const_data_ptr<float>(), data_of<T>(inner), data_of<T>(input),
                                   data_of<T>(result));
    });
    return result;
  }

  /// The product with LibTorch's operations, which autograd records.
  variable_list recorded(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& output) const {
    at::Tensor inner = gradient;
    if (tail_.has_relu) {
      const auto by_channel = [&](const at::Tensor& values) { return values.view({1, -1, 1, 1}); };
      const at::Tensor before =
          tail_.has_residual ? output : input.detach() * by_channel(batch_.scale) + by_channel(batch_.shift);
      inner = gradient * (before > 0);
    }
    const auto [of_input, of_weight, of_bias] = at::native_batch_norm_backward(
        inner, input, weight_.unpack(), {}, {}, batch_.mean, batch_.inverse, /*train=*/true, eps_, {true, true, true});
    return {of_input, of_weight, of_bias, inner};
  }

  SavedVariable input_;
  SavedVariable weight_;
  SavedVariable output_;
  double eps_;
  Batch batch_;
  kernels::NormTail tail_;
};

}  // namespace

bool is_for_batch_norm(const NormInputs& inputs) {
  const bool fits = kernels::is_used(kernels::Kernel::batch_norm) && is_rows(inputs.input) &&
                    (!inputs.residual.defined() || is_alike(inputs.residual, inputs.input));
  return fits && inputs.weight.defined() && inputs.weight.scalar_type() == at::kFloat;
}

at::Tensor batch_norm(const NormInputs& inputs, at::Tensor running_mean, at::Tensor running_var, double momentum) {
  const kernels::NormTail tail{.has_residual = inputs.residual.defined(), .has_relu = inputs.has_relu};
  const at::Tensor& input = inputs.input;
  at::Tensor output;
  Batch batch;
  {
    const at::AutoDispatchBelowADInplaceOrView not_recorded;
    const KernelRecord record("lockstep::batch_norm");
    const double rows = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
    batch.mean = at::empty_like(inputs.weight);
    at::Tensor variance = at::empty_like(inputs.weight);
    over_channels(input, [&](const kernels::NormRange& range, auto type) {
      using T = decltype(type);
      kernels::norm_statistics(range, data_of<T>(input), batch.mean.mutable_data_ptr<float>(),
                               variance.mutable_data_ptr<float>());
    });
    batch.inverse = (variance + inputs.eps).rsqrt_();
    batch.scale = inputs.weight * batch.inverse;
    batch.shift = inputs.bias - batch.mean * batch.scale;
    output = at::empty_like(input);
    over_channels(input, [&](const kernels::NormRange& range, auto type) {
      using T = decltype(type);
      kernels::norm_output(range, tail, batch.factors(), data_of<T>(input), data_of<T>(inputs.residual),
                           data_of<T>(output));
    });
    running_mean.mul_(1 - momentum).add_(batch.mean, momentum);
    running_var.mul_(1 - momentum).add_(variance, momentum * rows / (rows - 1));
  }
  if (!torch::autograd::compute_requires_grad(inputs.input, inputs.weight, inputs.bias, inputs.residual)) return output;
  const std::shared_ptr<BatchNormBackward> node(new BatchNormBackward(inputs, std::move(batch), tail),
                                                torch::autograd::deleteNode);
  torch::autograd::set_history(output, node);
  node->save_output(output);
  return output;
}

at::Tensor batch_norm_by_statistics(const NormInputs& inputs, const at::Tensor& running_mean,
                                    const at::Tensor& running_var) {
  const KernelRecord record("lockstep::batch_norm");
  const kernels::NormTail tail{.has_residual = inputs.residual.defined(), .has_relu = inputs.has_relu};
  const at::Tensor scale = inputs.weight * (running_var + inputs.eps).rsqrt_();
  const at::Tensor shift = inputs.bias - running_mean * scale;
  const kernels::NormFactors factors{.scale = scale.const_data_ptr<float>(),
                                     .shift = shift.const_data_ptr<float>(),
                                     .mean = running_mean.const_data_ptr<float>()};
  at::Tensor output = at::empty_like(inputs.input);
  over_channels(inputs.input, [&](const kernels::NormRange& range, auto type) {
    using T = decltype(type);
    kernels::norm_output(range, tail, factors, data_of<T>(inputs.input), data_of<T>(inputs.residual),
                         data_of<T>(output));
  });
  return output;
}

}  // namespace lockstep::models
