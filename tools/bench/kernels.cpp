// SPDX-License-Identifier: BSD-3-Clause
// Times each kernel that replaces a library, at the level of LOCKSTEP_CPU: the function that layers call, with the
// kernel and without it in turn. All other kernels are off meanwhile, so that a ratio is to the library alone.
//
// usage: bench_kernels SECONDS [KERNEL...]
//
// SECONDS is the time for each kernel; 0 = each function is called twice. Prints a line for each kernel that this level
// has, with geometric means over the shapes:
//   NAME VENDOR OURS_MS LIBRARY_MS RATIO_IN_TABLE|none used|unused RATIO_OF_EACH_SHAPE
#include "kernels/kernels.hpp"

#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/system/memory.hpp"
#include "models/layers/constant_weights.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/sequence.hpp"
#include "models/layers/spectra.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;  // this is a program of its own
using kernels::Kernel;
using Sizes = std::vector<std::int64_t>;
using Call = std::function<void()>;

constexpr double kShortestMs = 4;  // a call that takes less is repeated, and the mean counts
constexpr std::size_t kMinPairs = 3;
constexpr std::size_t kMaxPairs = 201;

// --- the functions of layers ---

at::Tensor values(const Sizes& sizes) { return torch::randn(sizes); }
at::Tensor images(const Sizes& sizes) { return values(sizes).contiguous(at::MemoryFormat::ChannelsLast); }

using Forward = std::function<at::Tensor()>;

/// A forward and the gradients of `leaves`.
Call step_of(const std::vector<at::Tensor>& leaves, const Forward& forward) {
  for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
  const at::Tensor gradient = torch::randn_like(forward());
  return [=] { torch::autograd::grad({forward()}, leaves, {gradient}); };
}

/// The gradients alone.
Call backward_of(const std::vector<at::Tensor>& leaves, const Forward& forward) {
  for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
  const at::Tensor output = forward();
  const at::Tensor gradient = torch::randn_like(output);
  return [=] { torch::autograd::grad({output}, leaves, {gradient}, /*retain_graph=*/true); };
}

/// A step of self-attention.
/// @param sizes  [N, T, 3, K, E]
Call attention(const Sizes& sizes) {
  const at::Tensor qkv = values(sizes);
  return step_of({qkv}, [=] { return models::self_attention(qkv, qkv.size(1)); });
}

/// A step of a convolution.
Call convolution(const Sizes& input_sizes, const Sizes& weight_sizes, const models::Convolution& geometry) {
  const at::Tensor input = images(input_sizes);
  const at::Tensor weight = images(weight_sizes);
  return step_of({input, weight}, [=] { return models::convolution(input, weight, {}, geometry); });
}

/// The gradient of the weight of a convolution.
Call weight_gradient(const Sizes& input_sizes, const Sizes& weight_sizes, const models::Convolution& geometry) {
  const at::Tensor input = images(input_sizes);
  const at::Tensor weight = images(weight_sizes);
  return backward_of({weight}, [=] { return models::convolution(input, weight, {}, geometry); });
}

/// A forward of gelu, as in evaluation: only then the kernel of its gradient has no part in it.
Call gelu(const Sizes& sizes) {
  const at::Tensor input = values(sizes);
  return [=] { models::gelu(input); };
}

Call gelu_gradient(const Sizes& sizes, at::ScalarType type) {
  const at::Tensor input = values(sizes).to(type);
  return backward_of({input}, [=] { return models::gelu(input); });
}

/// A step of a linear layer and GELU.
Call linear_gelu_step(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const auto layer = std::make_shared<models::Linear>(inputs, outputs);
  const at::Tensor input = values({rows, inputs});
  return step_of({input}, [=] { return models::linear_gelu(*layer, input); });
}

/// A step of a batch norm and the ReLU behind it.
Call batch_norm(const Sizes& sizes, bool has_residual, at::ScalarType type) {
  const auto layer = std::make_shared<models::BatchNorm>(sizes[1]);
  const at::Tensor input = images(sizes).to(type);
  const at::Tensor residual = has_residual ? images(sizes).to(type) : at::Tensor();
  std::vector<at::Tensor> leaves = {input, layer->weight, layer->bias};
  if (has_residual) leaves.push_back(residual);
  return step_of(leaves, [=] { return layer->forward_relu(input, residual); });
}

/// A step of a spectral convolution.
Call spectral(const Sizes& sizes, const Sizes& counts) {
  Sizes shape = {sizes[1], sizes[1]};
  shape.insert(shape.end(), counts.begin(), counts.end());
  shape.push_back(2);
  const at::Tensor field = values(sizes), weight = values(shape);
  return step_of({field, weight},
                 [=] { return models::spectral_convolution(field, weight, models::FrequencyOrder::shifted); });
}

/// The gradient of the weight of a linear layer.
Call outer_product(std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  const at::Tensor gradient = values({samples, outputs});
  const at::Tensor input = values({samples, inputs});
  const at::Tensor target = at::empty({outputs, inputs});
  return [=] { models::linear_weight_gradient(gradient, input, target); };
}

/// A forward of a linear layer.
Call linear(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const at::Tensor input = values({rows, inputs});
  const at::Tensor weight = values({outputs, inputs});
  const at::Tensor bias = values({outputs});
  return [=] { models::linear_output(input, weight, bias); };
}

/// A forward of a linear layer and GELU, as in evaluation.
Call linear_gelu(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const auto layer = std::make_shared<models::Linear>(inputs, outputs);
  layer->eval();
  const at::Tensor input = values({rows, inputs});
  return [=] {
    const torch::NoGradGuard no_grad;
    models::linear_gelu(*layer, input);
  };
}

constexpr int kBatches = 8;  // batches of an evaluation

/// An evaluation by two linear layers with GELU between them, with a residual.
Call mlp_evaluation(std::int64_t rows, std::int64_t features) {
  const auto branch = std::make_shared<models::GeluMlp>(features, 4 * features);
  const at::Tensor input = values({rows, features});
  const at::Tensor scale = values({features});
  return [=] {
    const torch::NoGradGuard no_grad;
    const models::ConstantWeights constants;
    for (int i = 0; i < kBatches; ++i) branch->forward_sum(input, input, scale);
  };
}

/// An evaluation by a convolution of one pixel.
Call pixelwise_evaluation(const Sizes& sizes, std::int64_t outputs) {
  const auto layer = std::make_shared<models::Conv2d>(sizes[1], outputs, 1);
  const at::Tensor input = images(sizes);
  return [=] {
    const torch::NoGradGuard no_grad;
    const models::ConstantWeights constants;
    for (int i = 0; i < kBatches; ++i) layer->forward(input);
  };
}

/// The gradient of the input of a linear layer.
Call linear_gradient(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const at::Tensor gradient = values({rows, outputs});
  const at::Tensor weight = values({outputs, inputs});
  return [=] { models::linear_input_gradient(gradient, weight); };
}

Call rounded_step(const std::vector<at::Tensor>& leaves, const Forward& forward) {
  return step_of(leaves, [=] {
    const models::Autocast autocast(at::kCPU, at::kBFloat16);
    return forward();
  });
}

Call rounded_linear(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const at::Tensor input = values({rows, inputs});
  const at::Tensor weight = values({outputs, inputs});
  return rounded_step({input, weight}, [=] { return models::linear(input, weight, {}); });
}

Call rounded_convolution(const Sizes& input_sizes, const Sizes& weight_sizes) {
  const at::Tensor input = images(input_sizes);
  const at::Tensor weight = images(weight_sizes);
  return rounded_step({input, weight}, [=] { return models::convolution(input, weight, {}, {.padding = 1}); });
}

Call rounded_attention(const Sizes& sizes) {
  const at::Tensor qkv = values(sizes).to(at::kBFloat16);  // a result of a linear layer
  return rounded_step({qkv}, [=] { return models::self_attention(qkv, qkv.size(1)); });
}

Call rounded_depthwise(const Sizes& input_sizes, std::int64_t side) {
  const at::Tensor input = images(input_sizes).to(at::kBFloat16);
  const at::Tensor weight = values({input_sizes[1], 1, side, side});
  const models::Convolution geometry{.padding = side / 2, .groups = input_sizes[1]};
  return rounded_step({input, weight}, [=] { return models::convolution(input, weight, {}, geometry); });
}

// --- what is timed ---

/// Makes the function of a layer. It is called with the kernel and without it, because a forward chooses for both.
using Prepare = std::function<Call()>;

struct Work {
  Kernel kernel;
  std::vector<Prepare> shapes;
  std::optional<Kernel> needed = {};  ///< the kernel that computes the products of a rounded_...
};

constexpr auto kFloat = at::kFloat;
constexpr auto kBFloat16 = at::kBFloat16;

/// Shapes of ViT-tiny and ViT-base, ConvNeXt-tiny, ResNet-18 and ResNet-50, MobileNetV2 and U-Net.
const std::vector<Work>& works() {
  static const std::vector<Work> table = {
      {Kernel::attention,
       {[] {
          return attention({4, 197, 3, 3, 64});
        },
        [] {
          return attention({1, 197, 3, 12, 64});
        },
        [] {
          return attention({8, 50, 3, 3, 64});
        }}},
      {Kernel::depthwise,
       {[] {
          return convolution({2, 96, 56, 56}, {96, 1, 7, 7}, {.padding = 3, .groups = 96});
        },
        [] {
          return convolution({4, 384, 14, 14}, {384, 1, 7, 7}, {.padding = 3, .groups = 384});
        },
        [] {
          return convolution({4, 240, 28, 28}, {240, 1, 5, 5}, {.padding = 2, .groups = 240});
        }}},
      {Kernel::depthwise_3x3,
       {[] {
          return convolution({4, 192, 28, 28}, {192, 1, 3, 3}, {.padding = 1, .groups = 192});
        },
        [] {
          return convolution({4, 96, 56, 56}, {96, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 96});
        },
        [] {
          return convolution({4, 576, 14, 14}, {576, 1, 3, 3}, {.padding = 1, .groups = 576});
        }}},
      {Kernel::patch_product,
       {[] {
          return weight_gradient({2, 128, 56, 56}, {128, 128, 3, 3}, {.stride = 2, .padding = 1});
        },
        [] {
          return weight_gradient({2, 96, 56, 56}, {192, 96, 2, 2}, {.stride = 2});
        },
        [] {
          return weight_gradient({2, 128, 24, 24}, {128, 64, 2, 2}, {.stride = 2, .is_transposed = true});
        }}},
      {Kernel::winograd,
       {[] {
          return convolution({4, 64, 32, 32}, {64, 64, 3, 3}, {.padding = 1});
        },
        [] {
          return convolution({4, 256, 14, 14}, {256, 256, 3, 3}, {.padding = 1});
        },
        [] {
          return convolution({1, 64, 96, 96}, {64, 64, 3, 3}, {.padding = 1});
        }}},
      {Kernel::gelu,
       {[] {
          return gelu({1576, 768});
        },
        [] {
          return gelu({784, 1536});
        }}},
      {Kernel::gelu_gradient,
       {[] {
          return gelu_gradient({1576, 768}, kFloat);
        },
        [] {
          return gelu_gradient({784, 1536}, kBFloat16);
        }}},
      {Kernel::gelu_step,
       {[] { return linear_gelu_step(1576, 192, 768); }, [] { return linear_gelu_step(12544, 96, 384); }}},
      {Kernel::batch_norm,
       {[] {
          return batch_norm({32, 64, 32, 32}, true, kFloat);
        },
        [] {
          return batch_norm({2, 256, 56, 56}, true, kFloat);
        },
        [] {
          return batch_norm({2, 64, 96, 96}, false, kBFloat16);
        }}},
      {Kernel::outer_product,
       {[] { return outer_product(8, 1024, 1024); }, [] { return outer_product(32, 512, 10); },
        [] { return outer_product(8, 192, 1000); }}},
      {Kernel::rounded_products,
       {[] { return rounded_linear(197, 192, 768); },
        [] {
          return rounded_convolution({1, 64, 16, 16}, {64, 64, 3, 3});
        }}},
      {Kernel::rounded_attention,
       {[] {
          return rounded_attention({4, 197, 3, 3, 64});
        },
        [] {
          return rounded_attention({8, 50, 3, 3, 64});
        }},
       Kernel::attention},
      {Kernel::rounded_depthwise,
       {[] {
          return rounded_depthwise({2, 96, 56, 56}, 7);
        },
        [] {
          return rounded_depthwise({4, 384, 14, 14}, 7);
        },
        [] {
          return rounded_depthwise({4, 240, 28, 28}, 5);
        }},
       Kernel::depthwise},
      {Kernel::linear, {[] { return linear(1576, 192, 768); }, [] { return linear(784, 1536, 384); }}},
      {Kernel::shallow_linear, {[] { return linear(12544, 96, 384); }, [] { return linear(3136, 64, 256); }}},
      {Kernel::linear_gelu,
       {[] { return linear_gelu(1576, 192, 768); }, [] { return linear_gelu(12544, 96, 384); },
        [] { return linear_gelu(784, 384, 1536); }}},
      {Kernel::linear_sum,
       {[] { return mlp_evaluation(1576, 192); }, [] { return mlp_evaluation(12544, 96); },
        [] { return mlp_evaluation(784, 384); }}},
      {Kernel::packed_pixelwise,
       {[] {
          return pixelwise_evaluation({4, 64, 56, 56}, 256);
        },
        [] {
          return pixelwise_evaluation({4, 1024, 14, 14}, 256);
        },
        [] {
          return pixelwise_evaluation({4, 256, 14, 14}, 1024);
        }}},
      {Kernel::linear_gradient,
       {[] { return linear_gradient(1576, 192, 768); }, [] { return linear_gradient(12544, 384, 96); }}},
      {Kernel::dot_products,
       {[] { return linear(1, 768, 3072); }, [] { return linear(8, 1024, 1024); },
        [] { return linear(15, 1024, 1024); }}},
      {Kernel::few_rows, {[] { return linear(8, 1024, 1024); }, [] { return linear_gradient(8, 1024, 1024); }}},
      {Kernel::frequency_products,
       {[] {
          return spectral({16, 32, 256}, {17});
        },
        [] {
          return spectral({4, 32, 64, 64}, {16, 9});
        }}},
  };
  return table;
}

// --- timing ---

double milliseconds_of(const Call& call, std::size_t count) {
  const double begin = bench::processor_milliseconds();
  for (std::size_t i = 0; i < count; ++i) call();
  return (bench::processor_milliseconds() - begin) / static_cast<double>(count);
}

/// A call with the kernel, or without it.
struct Form {
  Call call;
  std::size_t count = 1;  ///< calls that are timed together
  std::vector<double> times;
};

struct Times {
  double ours;
  double of_library;
};

/// The medians of a shape.
/// @param seconds  0 = one pair
Times times_of(Kernel kernel, const Prepare& prepare, double seconds) {
  const double deadline = bench::processor_milliseconds() + 1e3 * seconds;
  std::array<Form, 2> forms;
  const auto with_each = [&](const auto& work) {
    for (const bool is_used : {true, false}) {
      const kernels::ScopedChoice choice(kernel, is_used);
      work(forms[is_used ? 0 : 1]);
    }
  };
  with_each([&](Form& form) {
    form.call = prepare();
    form.call();  // the first call allocates, and oneDNN compiles
    if (seconds == 0) return;
    const double taken = milliseconds_of(form.call, 1);
    form.count = static_cast<std::size_t>(std::max(1.0, std::ceil(kShortestMs / std::max(taken, 1e-3))));
  });
  const std::size_t min_pairs = seconds == 0 ? 1 : kMinPairs;
  for (std::size_t pair = 0; pair < min_pairs || (pair < kMaxPairs && bench::processor_milliseconds() < deadline);
       ++pair) {
    with_each([](Form& form) { form.times.push_back(milliseconds_of(form.call, form.count)); });
  }
  return {bench::median(forms[0].times), bench::median(forms[1].times)};
}

double geometric_mean(const std::vector<double>& positive) {
  double sum = 0;
  for (const double value : positive) sum += std::log(value);
  return std::exp(sum / static_cast<double>(positive.size()));
}

void measure(const Work& work, double seconds) {
  const bool is_used = kernels::is_used(work.kernel);
  std::vector<std::unique_ptr<kernels::ScopedChoice>> others;
  for (const Work& other : works()) {
    others.push_back(std::make_unique<kernels::ScopedChoice>(other.kernel, other.kernel == work.needed));
  }
  std::vector<double> ours;
  std::vector<double> of_library;
  std::string ratios;
  for (const Prepare& prepare : work.shapes) {
    torch::manual_seed(1);
    const Times times = times_of(work.kernel, prepare, seconds / static_cast<double>(work.shapes.size()));
    ours.push_back(times.ours);
    of_library.push_back(times.of_library);
    char text[32];
    std::snprintf(text, sizeof text, " %.2f", times.ours / times.of_library);
    ratios += text;
  }
  while (!others.empty()) others.pop_back();
  const kernels::MeasuredRatio* const row =
      kernels::find_ratio(kernels::measured_ratios(), work.kernel, processor_level(), processor_vendor());
  const bool is_own = row != nullptr && row->vendor == processor_vendor();
  std::printf("%s %s %.6g %.6g %s %s%s\n", std::string(kernels::name_of(work.kernel)).c_str(),
              std::string(name_of(processor_vendor())).c_str(), geometric_mean(ours), geometric_mean(of_library),
              is_own ? std::to_string(row->ratio).c_str() : "none", is_used ? "used" : "unused", ratios.c_str());
  std::fflush(stdout);
}

bool is_wanted(const std::vector<std::string>& names, Kernel kernel) {
  return names.empty() || std::find(names.begin(), names.end(), kernels::name_of(kernel)) != names.end();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::invalid_argument("usage: bench_kernels SECONDS [KERNEL...]");
    require_usable_level();
    keep_freed_memory();  // trainer::run does the same
    at::set_num_threads(1);
    const std::vector<std::string> names(argv + 2, argv + argc);
    for (const Work& work : works()) {
      if (!is_wanted(names, work.kernel)) continue;
      measure(work, std::stod(argv[1]));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kernels: %s\n", error.what());
    return 1;
  }
}
