// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/functional.hpp>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/attention.hpp"
#include "kernels/gelu.hpp"
#include "kernels/kernels.hpp"
#include "models/layers/attention.hpp"
#include "models/layers/constant_weights.hpp"
#include "models/layers/gradient_sink.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/recorded.hpp"

namespace lockstep::models {

namespace {

// N rows (samples, or samples times tokens), I inputs, O outputs, E features, V vocabulary.

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Elements added per chunk of parallel work; below it a second thread costs more than it saves.
constexpr std::int64_t kGrain = 32768;

bool is_trained_into_sink(const at::Tensor& parameter) {
  return parameter.defined() && parameter.requires_grad() && sink_of(parameter) != nullptr;
}

/// Whether autograd is to be recorded by a node of ours. Under autocast LibTorch's own functions do the casts.
bool records(const at::Tensor& parameter) {
  return at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(parameter.device().type());
}

class LinearBackward : public torch::autograd::Node {
 public:
  /// @param values  of the weight in the forward
  LinearBackward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& values, const at::Tensor& bias)
      : Node(torch::autograd::collect_next_edges(input, weight, bias)),
        input_(input, /*is_output=*/false),
        values_(values, /*is_output=*/false),
        weight_(weight),
        bias_(bias) {}

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    variable_list result(3);
    const at::Tensor& output_gradient = gradients[0];
    if (!output_gradient.defined()) return result;
    const at::Tensor input = input_.unpack();
    const at::Tensor values = values_.unpack();
    const at::Tensor rows = output_gradient.reshape({-1, values.size(0)});  // [N, O]
    if (task_should_compute_output(0)) {
      // The product is recorded with create_graph, too.
      const at::Tensor gradient = at::GradMode::is_enabled() ? rows.mm(weight_) : linear_input_gradient(rows, values);
      result[0] = gradient.view_as(input);
    }
    if (task_should_compute_output(1)) {
      result[1] = weight_gradient(weight_, rows, input.reshape({-1, values.size(1)}));
    }
    if (task_should_compute_output(2)) result[2] = bias_gradient(bias_, rows);
    return result;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
    values_.reset_data();
  }

 private:
  /// @param rows   [N, O]
  /// @param input  [N, I]
  static at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& rows, const at::Tensor& input) {
    const bool is_written = write_to_sink(
        weight, rows.scalar_type(), [&](const at::Tensor& view) { linear_weight_gradient(rows, input, view); },
        [&](const at::Tensor& view) { view.addmm_(rows.t(), input); });
    if (is_written) return {};
    if (at::GradMode::is_enabled()) return rows.t().mm(input);
    const at::Tensor result = at::empty_like(weight);
    linear_weight_gradient(rows, input, result);
    return result;
  }

  SavedVariable input_;
  SavedVariable values_;
  at::Tensor weight_;
  at::Tensor bias_;  // its values are not needed, so they may change
};

/// Adds each row to the row of `table` that its token names, in the order of the rows.
/// @param table   [V, E] contiguous, on CPU
/// @param rows    [N, E] contiguous
/// @param tokens  [N] int64 contiguous
template <class T>
void add_rows(const at::Tensor& table, const at::Tensor& rows, const at::Tensor& tokens) {
  const std::int64_t features = table.size(1);
  const std::int64_t count = tokens.numel();
  T* const target = table.mutable_data_ptr<T>();
  const T* const from = rows.const_data_ptr<T>();
  const std::int64_t* const token = tokens.const_data_ptr<std::int64_t>();
  // Threads divide the features: the order of the additions stays the same.
  at::parallel_for(0, features, std::max<std::int64_t>(16, kGrain / std::max<std::int64_t>(1, count)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t n = 0; n < count; ++n) {
                       T* const sum = target + token[n] * features;
                       const T* const row = from + n * features;
                       for (std::int64_t e = begin; e < end; ++e) sum[e] += row[e];
                     }
                   });
}

class EmbeddingBackward : public torch::autograd::Node {
 public:
  EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& weight)
      : Node(torch::autograd::collect_next_edges(weight)), tokens_(tokens, /*is_output=*/false), weight_(weight) {}

  std::string name() const override { return "EmbeddingBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    const at::Tensor& output_gradient = gradients[0];
    if (!output_gradient.defined()) return variable_list(1);
    const at::Tensor tokens = tokens_.unpack();
    if (task_should_compute_output(0) && write(output_gradient, tokens)) return variable_list(1);
    return {at::embedding_dense_backward(output_gradient, tokens, weight_.size(0), /*padding_idx=*/-1,
                                         /*scale_grad_by_freq=*/false)};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    tokens_.reset_data();
  }

 private:
  bool write(const at::Tensor& output_gradient, const at::Tensor& tokens) const {
    const at::ScalarType dtype = output_gradient.scalar_type();
    const bool is_supported = dtype == at::kFloat || dtype == at::kDouble;
    if (!is_supported || !weight_.is_cpu() || !weight_.is_contiguous()) return false;
    const auto add = [&](const at::Tensor& view) {
      const at::Tensor rows = output_gradient.contiguous();
      const at::Tensor index = tokens.to(at::kLong).contiguous();
      AT_DISPATCH_FLOATING_TYPES(dtype, "embedding", [&] { add_rows<scalar_t>(view, rows, index); });
    };
    return write_to_sink(
        weight_, dtype,
        [&](const at::Tensor& view) {
          view.zero_();
          add(view);
        },
        add);
  }

  SavedVariable tokens_;
  at::Tensor weight_;  // its values are not needed, so they may change
};

/// @param values  of the weight
at::Tensor recorded_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& values,
                           const at::Tensor& bias) {
  if (!at::GradMode::is_enabled()) return linear_output(input, values, bias);
  return output_of(backward_node<LinearBackward>(input, weight, values, bias),
                   [&] { return linear_output(input, values, bias); });
}

/// @param input  contiguous, on CPU
at::Tensor gelu_of(const at::Tensor& input) {
  if (input.scalar_type() != at::kFloat || !kernels::is_used(kernels::Kernel::gelu)) return at::gelu(input);
  at::Tensor result = at::empty_like(input);
  const KernelRecord record("lockstep::gelu");
  at::parallel_for(0, input.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels::gelu_output(end - begin, input.const_data_ptr<float>() + begin, result.mutable_data_ptr<float>() + begin);
  });
  return result;
}

class GeluBackward : public torch::autograd::Node {
 public:
  explicit GeluBackward(const at::Tensor& input)
      : Node(torch::autograd::collect_next_edges(input)), input_(input, /*is_output=*/false) {}

  std::string name() const override { return "GeluBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(1);
    const at::Tensor input = input_.unpack();
    const bool is_recorded = at::GradMode::is_enabled();  // create_graph
    if (is_recorded || !kernels::is_used(kernels::Kernel::gelu_gradient)) {
      return {at::gelu_backward(gradients[0], input)};
    }
    const at::Tensor gradient = gradients[0].to(input.scalar_type()).contiguous();
    at::Tensor result = at::empty_like(input);
    at::parallel_for(0, input.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      const auto write = [&](auto type) {
        using T = decltype(type);
        const auto data_at = [begin](const at::Tensor& tensor) {
          return static_cast<T*>(tensor.mutable_data_ptr()) + begin;
        };
        kernels::gelu_gradient(end - begin, data_at(input), data_at(gradient), data_at(result));
      };
      input.scalar_type() == at::kFloat ? write(float()) : write(BFloat16());
    });
    return {result};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
  }

 private:
  SavedVariable input_;
};

/// self_attention in LibTorch's functions.
at::Tensor plain_self_attention(const at::Tensor& qkv, std::int64_t queries) {
  const std::vector<at::Tensor> parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);  // [N, K, T, E] each
  return attention(parts[0].slice(2, 0, queries), parts[1], parts[2]).transpose(1, 2);
}

/// Its gradient, recorded by autograd.
at::Tensor self_attention_gradient(const at::Tensor& qkv, std::int64_t queries, const at::Tensor& gradient) {
  const std::vector<at::Tensor> parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);
  const AttentionGradients result = attention_gradients(parts[0].slice(2, 0, queries), parts[1], parts[2],
                                                        /*is_causal=*/false, gradient.transpose(1, 2));
  const at::Tensor all_queries = at::constant_pad_nd(result.query, {0, 0, 0, qkv.size(1) - queries});
  return at::stack({all_queries, result.key, result.value}).permute({1, 3, 0, 2, 4}).contiguous();
}

kernels::SelfAttention kernel_arguments(const at::Tensor& qkv, std::int64_t queries) {
  return {.qkv = qkv.const_data_ptr<float>(),
          .samples = qkv.size(0),
          .tokens = qkv.size(1),
          .queries = queries,
          .heads = qkv.size(3),
          .features = qkv.size(4)};
}

/// Threads divide the heads.
template <class Write>
void for_all_heads(const kernels::SelfAttention& attention, const Write& write) {
  at::parallel_for(0, attention.samples * attention.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    write(kernels::HeadRange{begin, end});
  });
}

class SelfAttentionBackward : public torch::autograd::Node {
 public:
  SelfAttentionBackward(const at::Tensor& qkv, std::int64_t queries)
      : Node(torch::autograd::collect_next_edges(qkv)), qkv_(qkv, /*is_output=*/false), queries_(queries) {}

  /// The results of the forward.
  void save(const at::Tensor& output, const at::Tensor& log_sums) {
    output_ = output;
    log_sums_ = log_sums;
  }

  std::string name() const override { return "SelfAttentionBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(1);
    const at::Tensor qkv = qkv_.unpack();
    if (at::GradMode::is_enabled()) return {self_attention_gradient(qkv, queries_, gradients[0])};
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor result = at::empty_like(qkv);
    const kernels::SelfAttention arguments = kernel_arguments(qkv, queries_);
    for_all_heads(arguments, [&](const kernels::HeadRange& range) {
      kernels::write_self_attention_gradient(arguments, range, output_.const_data_ptr<float>(),
                                             log_sums_.const_data_ptr<float>(), gradient.const_data_ptr<float>(),
                                             result.mutable_data_ptr<float>());
    });
    return {result};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    qkv_.reset_data();
    output_.reset();
    log_sums_.reset();
  }

 private:
  SavedVariable qkv_;
  std::int64_t queries_;
  at::Tensor output_;  // detached from the autograd graph
  at::Tensor log_sums_;
};

at::Tensor recorded_self_attention(const at::Tensor& qkv, std::int64_t queries) {
  const std::int64_t n = qkv.size(0);
  const std::int64_t heads = qkv.size(3);
  at::Tensor log_sums = at::empty({n, heads, queries}, qkv.options());
  const auto compute = [&] {
    at::Tensor output = at::empty({n, queries, heads, qkv.size(4)}, qkv.options());
    const KernelRecord record("lockstep::attention", 4 * output.numel() * qkv.size(1));
    const kernels::SelfAttention arguments = kernel_arguments(qkv, queries);
    for_all_heads(arguments, [&](const kernels::HeadRange& range) {
      kernels::write_self_attention(arguments, range, output.mutable_data_ptr<float>(),
                                    log_sums.mutable_data_ptr<float>());
    });
    return output;
  };
  if (!torch::autograd::compute_requires_grad(qkv)) return compute();
  const auto node = backward_node<SelfAttentionBackward>(qkv, queries);
  at::Tensor output = output_of(node, compute);
  node->save(output.detach(), log_sums);
  return output;
}

bool is_for_self_attention_kernel(const at::Tensor& qkv) {
  return kernels::is_used(kernels::Kernel::attention) && qkv.is_cpu() && qkv.scalar_type() == at::kFloat &&
         qkv.is_contiguous() && qkv.numel() > 0 && qkv.size(1) <= kernels::kMaxAttentionTokens &&
         qkv.size(4) % kernels::kAttentionFeatures == 0;
}

}  // namespace

at::Tensor self_attention(const at::Tensor& qkv, std::int64_t queries) {
  // LibTorch is slow in the gradient of attention of bfloat16, and not in a forward alone.
  const bool has_gradient = torch::autograd::compute_requires_grad(qkv);
  const auto type =
      rounding_of_products(qkv, has_gradient ? kernels::Kernel::rounded_attention : kernels::Kernel::rounded_products);
  const at::Tensor factors = type ? rounded_factor(qkv, *type) : qkv;
  const bool is_cast = !type && at::autocast::is_autocast_enabled(qkv.device().type());
  if (is_cast || !is_for_self_attention_kernel(factors)) return plain_self_attention(qkv, queries);
  const at::Tensor output = recorded_self_attention(factors, queries);
  return type ? output.to(*type) : output;
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (const auto type = rounding_of_products(weight)) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const at::Tensor parameter = as_float(weight);
    const at::Tensor factor = rounded_factor(input, *type);
    return recorded_linear(factor, parameter, rounded_weight(parameter, *type), as_float(bias)).to(*type);
  }
  if (at::autocast::is_autocast_enabled(weight.device().type())) {
    const at::Tensor output = linear_of_constants(input, weight, bias);
    return output.defined() ? output : at::linear(input, weight, bias);
  }
  return recorded_linear(input, weight, weight, bias);
}

at::Tensor gelu(const at::Tensor& input) {
  const bool has_kernel = kernels::is_used(kernels::Kernel::gelu) || kernels::is_used(kernels::Kernel::gelu_gradient);
  const bool is_supported = has_kernel && input.is_cpu() && input.is_contiguous() &&
                            (input.scalar_type() == at::kFloat || input.scalar_type() == at::kBFloat16);
  if (!is_supported) return at::gelu(input);
  if (!torch::autograd::compute_requires_grad(input)) return gelu_of(input);
  return output_of(backward_node<GeluBackward>(input), [&] { return gelu_of(input); });
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                     bool is_causal) {
  const auto type = rounding_of_products(query);
  if (!type) return differentiable_attention(query, key, value, dropout, is_causal);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  return differentiable_attention(rounded_factor(query, *type), rounded_factor(key, *type),
                                  rounded_factor(value, *type), dropout, is_causal)
      .to(*type);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight) {
  if (!is_trained_into_sink(weight) || !records(weight)) return at::embedding(weight, tokens);
  return output_of(backward_node<EmbeddingBackward>(tokens, weight), [&] { return at::embedding(weight, tokens); });
}

Autocast::Autocast(c10::DeviceType device, c10::ScalarType type)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      type_before_(at::autocast::get_autocast_dtype(device)) {
  if (type != at::kHalf && type != at::kBFloat16) {
    throw std::invalid_argument("Autocast: casts are to float16 or bfloat16, not to " +
                                std::string(at::toString(type)));
  }
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // Casts of parameters are kept while any lives: the next forward must see what an update wrote.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

}  // namespace lockstep::models
