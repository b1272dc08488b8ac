// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/late_values.hpp"
#include "models/script/script_layers.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel/sync/sync_batch_norm_kernels.hpp"

// N samples, C channels, W ranks.
namespace lockstep::parallel {

namespace {

using models::BatchNorm;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The exchange, of float64 where the tensors are.

/// @param mine  [K]
/// @return      [W, K]
at::Tensor gather(const at::Tensor& mine, mpi::Collectives& collectives) {
  const at::Tensor dense = mine.contiguous();
  const at::Tensor all = at::empty({collectives.world_size(), dense.numel()}, dense.options());
  collectives.all_gather(bytes_of(dense), bytes_of(all));
  return all;
}

/// The statistics of a batch, over all dimensions but the channels. Tensors are float64 on the device of the batch.
struct Statistics {
  at::Tensor mean;   ///< [C]
  at::Tensor var;    ///< [C] biased
  at::Tensor count;  ///< [1] values per channel
};

Statistics statistics_of(const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto exact = input.options().dtype(at::kDouble);
  if (input.numel() == 0) {
    const at::Tensor zeros = at::zeros({channels}, exact);
    return {.mean = zeros, .var = zeros, .count = at::zeros({1}, exact)};
  }
  // These decide the type of the statistics; without them it would be that of a 16-bit input.
  const auto options = input.options().dtype(at::toOpMathType(input.scalar_type()));
  const auto [mean, var] =
      at::batch_norm_update_stats(input, at::zeros({channels}, options), at::ones({channels}, options), 0.0);
  return {.mean = mean.to(at::kDouble),
          .var = var.to(at::kDouble),
          .count = at::full({1}, static_cast<double>(input.numel()) / static_cast<double>(channels), exact)};
}

/// @param facts  values per channel of all ranks, and the number of ranks whose input requires a gradient
void check_facts(const at::Tensor& facts, const BatchNorm& layer, int ranks) {
  const auto count = facts[0].item<double>();
  const auto needing = facts[1].item<double>();
  if (needing != 0 && needing != ranks) {
    throw ConfigError("batch norm '" + layer.path() + "': its input requires a gradient on some ranks only");
  }
  if (count == 1) {
    throw ConfigError("batch norm '" + layer.path() +
                      "': expected more than 1 value per channel when training, over all ranks");
  }
}

/// The means of a layer to train on the batches of all ranks.
struct NormExchange {
  std::shared_ptr<mpi::Collectives> collectives;
  /// The host reads those of a forward on a device one forward later, instead of waiting for the device.
  batch::LateValues facts = {};
  at::Tensor recorded_facts = {};  ///< those of a forward that was captured: every launch computes the same

  void check(const at::Tensor& now, const BatchNorm& layer) {
    const mpi::DeviceCollectives* const device = mpi::on_device(*collectives);
    if (device != nullptr && device->is_capturing()) {
      recorded_facts = now;
    } else if (now.is_cpu()) {
      check_facts(now, layer, collectives->world_size());
    } else {
      if (facts.are_pending()) check_facts(facts.take(), layer, collectives->world_size());
      facts.queue(now);
    }
  }
  /// The host waits for the device.
  void check_last(const BatchNorm& layer) {
    if (facts.are_pending()) check_facts(facts.take(), layer, collectives->world_size());
    if (!recorded_facts.defined()) return;
    check_facts(std::exchange(recorded_facts, {}).cpu(), layer, collectives->world_size());
  }
};

/// Those of the batches of all ranks together.
Statistics combined(const Statistics& mine, const BatchNorm& layer, bool needs_gradient, NormExchange& by) {
  const std::int64_t channels = mine.mean.numel();
  const at::Tensor need = at::full({1}, needs_gradient ? 1.0 : 0.0, mine.mean.options());
  const at::Tensor all = gather(at::cat({mine.mean, mine.var, mine.count, need}), *by.collectives);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);  // [W, 1]
  by.check(all.narrow(1, 2 * channels, 2).sum(0), layer);
  const at::Tensor count = counts.sum(0);         // [1]
  const at::Tensor divisor = count.clamp_min(1);  // no rank has samples: zeros
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor variances = all.narrow(1, channels, channels);
  const at::Tensor mean = (counts * means).sum(0) / divisor;
  const at::Tensor var = (counts * (variances + (means - mean).square())).sum(0) / divisor;
  return {.mean = mean, .var = var, .count = count};
}

/// Batches without values, on all ranks, change nothing.
void fold_into_running(const BatchNorm& layer, const Statistics& batch, double momentum) {
  const torch::NoGradGuard no_grad;
  const at::Tensor share = batch.count.gt(0).to(at::kDouble) * momentum;  // [1]
  const at::Tensor rest = 1.0 - share;
  const auto fold = [&](const at::Tensor& running, const at::Tensor& value) {
    running.copy_(running.to(at::kDouble) * rest + value * share);
  };
  fold(layer.running_mean, batch.mean);
  fold(layer.running_var, batch.var * (batch.count / (batch.count - 1.0).clamp_min(1)));
}

// The loops on the CPU.

constexpr std::int64_t kGrainElements = 32768;  // below it a second thread costs more than it saves

std::int64_t grain_of(std::int64_t elements) { return std::max<std::int64_t>(1, kGrainElements / elements); }

/// `tensor` as the kernels see it, if it is contiguous in `format`.
NormShape shape_of(const at::Tensor& tensor, at::MemoryFormat format) {
  const std::int64_t channels = tensor.size(1);
  const std::int64_t pixels = tensor.numel() / (tensor.size(0) * channels);
  if (format != at::MemoryFormat::Contiguous) {
    return {.outer = tensor.size(0) * pixels, .channels = channels, .inner = 1};
  }
  return {.outer = tensor.size(0), .channels = channels, .inner = pixels};
}

/// Calls work(T()) with T as the type of the elements.
template <class Work>
void with_type(at::ScalarType type, const Work& work) {
  switch (type) {
    case at::kFloat:
      return work(float());
    case at::kDouble:
      return work(double());
    case at::kBFloat16:
      return work(at::BFloat16());
    case at::kHalf:
      return work(at::Half());
    default:
      throw ConfigError(std::string("a synchronized batch norm does not support inputs of type ") + at::toString(type));
  }
}

/// @return  for each channel, the sum of the gradient and that of gradient * (input - mean), in float64
std::pair<at::Tensor, at::Tensor> sums_on_cpu(const at::Tensor& gradient, const at::Tensor& input,
                                              const at::Tensor& mean) {
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor x = input.contiguous(format);
  const at::Tensor dy = gradient.to(x.scalar_type()).contiguous(format);
  const NormShape shape = shape_of(x, format);
  at::Tensor sums = at::empty_like(mean);
  at::Tensor dot_sums = at::empty_like(mean);
  // Neighboring channels share cache lines where inner is 1.
  const std::int64_t grain = std::max<std::int64_t>(shape.inner == 1 ? 16 : 1, grain_of(shape.outer * shape.inner));
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, shape.channels, grain, [&](std::int64_t begin, std::int64_t end) {
      norm_sums(shape, begin, end, dy.const_data_ptr<T>(), x.const_data_ptr<T>(), mean.const_data_ptr<double>(),
                sums.mutable_data_ptr<double>(), dot_sums.mutable_data_ptr<double>());
    });
  });
  return {sums, dot_sums};
}

/// slope * (gradient - mean_gradient) + factor * (input - mean) in one pass
at::Tensor gradient_on_cpu(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                           const at::Tensor& mean_gradient, const at::Tensor& slope, const at::Tensor& factor) {
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor x = input.contiguous(format);
  const at::Tensor dy = gradient.to(x.scalar_type()).contiguous(format);
  const NormShape shape = shape_of(x, format);
  const at::Tensor dense_mean_gradient = mean_gradient.contiguous();
  const at::Tensor dense_slope = slope.contiguous();
  const at::Tensor dense_factor = factor.contiguous();
  const NormGradientTerms terms{.mean = mean.const_data_ptr<double>(),
                                .mean_gradient = dense_mean_gradient.const_data_ptr<double>(),
                                .slope = dense_slope.const_data_ptr<double>(),
                                .factor = dense_factor.const_data_ptr<double>()};
  at::Tensor result = at::empty_like(x);
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, shape.outer, grain_of(shape.channels * shape.inner), [&](std::int64_t begin, std::int64_t end) {
      norm_input_gradient(shape, begin, end, dy.const_data_ptr<T>(), x.const_data_ptr<T>(), terms,
                          result.mutable_data_ptr<T>());
    });
  });
  return result;
}

class SyncBatchNormBackward : public torch::autograd::Node {
 public:
  SyncBatchNormBackward(const at::Tensor& input, const BatchNorm& layer, const Statistics& batch,
                        std::shared_ptr<mpi::Collectives> collectives)
      : Node(torch::autograd::collect_next_edges(input, layer.weight, layer.bias)),
        input_(input, /*is_output=*/false),
        weight_(layer.weight, /*is_output=*/false),
        batch_(batch),
        eps_(layer.eps()),
        collectives_(std::move(collectives)) {}

  std::string name() const override { return "SyncBatchNormBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (at::GradMode::is_enabled()) throw ConfigError("a synchronized batch norm does not support second derivatives");
    const at::Tensor input = input_.unpack();
    const at::Tensor weight = weight_.unpack();
    // Undefined when nothing that the loss needs depends on the output; the other ranks may still count on this one.
    const at::Tensor gradient = gradients[0].defined() ? gradients[0] : at::zeros_like(input);
    const Sums mine = sums_of(gradient, input);
    variable_list result(3);
    if (task_should_compute_output(0)) result[0] = input_gradient(gradient, input, weight, mine);
    if (weight.defined()) {
      result[1] = mine.gradient_times_normalized.to(weight.scalar_type());
      result[2] = mine.gradient.to(weight.scalar_type());
    }
    return result;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
    weight_.reset_data();
  }

 private:
  /// Sums over this rank's batch; [C].
  struct Sums {
    at::Tensor gradient;
    at::Tensor gradient_times_normalized;
  };

  Sums sums_of(const at::Tensor& gradient, const at::Tensor& input) const {
    if (input.numel() == 0) return {at::zeros_like(batch_.mean), at::zeros_like(batch_.mean)};
    const at::Tensor invstd = (batch_.var + eps_).rsqrt();
    if (input.is_cpu()) {
      const auto [sums, dot_sums] = sums_on_cpu(gradient, input, batch_.mean);
      return {sums, dot_sums * invstd};
    }
    const at::Tensor mean = batch_.mean.to(at::toOpMathType(input.scalar_type()));
    // The gradients of scale and shift of a normalization by given statistics are exactly these sums.
    const auto [unused, scale, shift] =
        at::native_batch_norm_backward(gradient, input, at::ones_like(mean), mean, batch_.var.to(mean.scalar_type()),
                                       {}, {}, /*train=*/false, eps_, {false, true, true});
    return {shift, scale};
  }

  /// dx = weight invstd (dy - mean(dy) - x^ mean(dy x^)) with x^ = (x - mean) invstd, and means over all ranks
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                            const Sums& mine) const {
    const at::Tensor sums = at::cat({mine.gradient, mine.gradient_times_normalized}).to(at::kDouble);
    all_reduce(sums, *collectives_, mpi::ReduceOp::sum);
    if (input.numel() == 0) return at::zeros_like(input);
    const std::int64_t channels = input.size(1);
    const at::Tensor divisor = batch_.count.clamp_min(1);
    const at::Tensor mean_gradient = sums.narrow(0, 0, channels) / divisor;
    const at::Tensor mean_product = sums.narrow(0, channels, channels) / divisor;
    const at::Tensor invstd = (batch_.var + eps_).rsqrt();
    // dx = slope (dy - mean(dy)) + factor (x - mean). Both differences come first: products of a large mean would
    // cancel only after they are rounded.
    const at::Tensor slope = weight.defined() ? invstd * weight.to(at::kDouble) : invstd;
    const at::Tensor factor = -slope * invstd * mean_product;
    if (input.is_cpu()) return gradient_on_cpu(gradient, input, batch_.mean, mean_gradient, slope, factor);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
    shape[1] = channels;
    const auto by_channel = [&](const at::Tensor& values) {
      return values.to(at::toOpMathType(input.scalar_type())).view(shape);
    };
    const at::Tensor centered = input - by_channel(batch_.mean);
    at::Tensor result = (gradient - by_channel(mean_gradient)).mul_(by_channel(slope));
    return result.addcmul_(centered, by_channel(factor)).to(input.scalar_type());
  }

  SavedVariable input_;
  SavedVariable weight_;
  Statistics batch_;
  double eps_;
  std::shared_ptr<mpi::Collectives> collectives_;
};

/// The training of a layer that is synchronized.
struct SynchronizedTraining {
  std::shared_ptr<NormExchange> by;

  at::Tensor operator()(BatchNorm& layer, const at::Tensor& input, double momentum) const {
    const bool needs_gradient = at::GradMode::is_enabled() && input.requires_grad();
    const Statistics batch = [&] {
      const torch::NoGradGuard no_grad;
      return combined(statistics_of(input), layer, needs_gradient, *by);
    }();
    fold_into_running(layer, batch, momentum);
    const auto normalize = [&] {
      const at::AutoDispatchBelowADInplaceOrView not_recorded;
      const at::ScalarType type = at::toOpMathType(input.scalar_type());
      return std::get<0>(at::native_batch_norm(input, layer.weight, layer.bias, batch.mean.to(type), batch.var.to(type),
                                               /*training=*/false, 0.0, layer.eps()));
    };
    if (!torch::autograd::compute_requires_grad(input, layer.weight, layer.bias)) return normalize();
    const std::shared_ptr<SyncBatchNormBackward> node(new SyncBatchNormBackward(input, layer, batch, by->collectives),
                                                      torch::autograd::deleteNode);
    const at::Tensor output = normalize();
    torch::autograd::set_history(output, node);
    return output;
  }
};

/// "" for anything but a BatchNorm of torch::nn.
std::string torch_type_of(const torch::nn::Module& module) {
  if (dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr) return "torch::nn::BatchNorm1d";
  if (dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr) return "torch::nn::BatchNorm2d";
  if (dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr) return "torch::nn::BatchNorm3d";
  return "";
}

}  // namespace

std::vector<std::pair<std::string, BatchNorm*>> batch_norms_of(const models::Model& model) {
  if (const std::string archive = models::script_with_batch_norm(model); !archive.empty()) {
    throw ConfigError("model.file: '" + archive +
                      "' computes batch norm by its own code, which uses the samples of one rank and one batch. Reset "
                      "ddp.sync_batch_norm, remove the hook precise_bn, or use a built-in model");
  }
  std::vector<std::pair<std::string, BatchNorm*>> layers;
  for (const auto& child : model.named_modules({}, /*include_self=*/false)) {
    const std::string type = torch_type_of(*child.value());
    if (!type.empty()) {
      throw ConfigError("layer '" + child.key() + "' is a " + type +
                        ", which cannot be synchronized; use models::BatchNorm");
    }
    if (auto* layer = dynamic_cast<BatchNorm*>(child.value().get())) layers.emplace_back(child.key(), layer);
  }
  return layers;
}

std::size_t convert_to_sync_batch_norm(models::Model& model, mpi::Collectives& collectives) {
  const auto layers = batch_norms_of(model);
  if (layers.empty() || collectives.world_size() == 1) return layers.size();
  const std::shared_ptr<mpi::Collectives> own = collectives.split(0);
  for (const auto& [name, layer] : layers) {
    layer->train_by(SynchronizedTraining{std::make_shared<NormExchange>(NormExchange{.collectives = own})});
  }
  return layers.size();
}

void check_last_batch(const models::Model& model) {
  for (const auto& child : model.modules(/*include_self=*/false)) {
    const auto* const layer = dynamic_cast<const BatchNorm*>(child.get());
    if (layer == nullptr) continue;
    const auto* const training = layer->trained_by().target<SynchronizedTraining>();
    if (training != nullptr) training->by->check_last(*layer);
  }
}

void revert_sync_batch_norm(models::Model& model) {
  for (const auto& child : model.modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<BatchNorm*>(child.get())) layer->train_by({});
  }
}

}  // namespace lockstep::parallel
