// SPDX-License-Identifier: BSD-3-Clause
#include "optim/averages/model_average.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>

#include "core/text/parameter_names.hpp"
#include "core/text/text.hpp"
#include "kernels/optimizers.hpp"
#include "optim/update/tensor_parameters.hpp"

namespace lockstep::optim {

namespace {

using NamedBuffer = ModelAverage::NamedBuffer;

void require_supported(const FlatBlock& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64 || block.is_half()) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  throw ConfigError("ema.kind: parameter '" + name + "' is " + std::string(name_of(block.dtype)) +
                    "; only floating-point numbers can be averaged");
}

void blend(const at::Tensor& average, const at::Tensor& values, double weight) {
  if (weight == 1) {
    average.copy_(values);
  } else {
    average.lerp_(values, weight);
  }
}

void exchange(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor kept = a.clone();
  a.copy_(b);
  b.copy_(kept);
}

NamedBuffer* find(std::vector<NamedBuffer>& buffers, const NamedBuffer& like) {
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&like](const NamedBuffer& buffer) {
    return buffer.name == like.name && buffer.tensor.sizes() == like.tensor.sizes() &&
           buffer.tensor.scalar_type() == like.tensor.scalar_type();
  });
  return found == buffers.end() ? nullptr : &*found;
}

}  // namespace

ModelAverage::ModelAverage(const AverageRule& rule, const AverageOptions& options, FlatParameters& parameters,
                           Buffers buffers)
    : rule_(&rule), options_(options), parameters_(&parameters), buffers_(std::move(buffers)) {
  for (const FlatBlock& block : parameters.blocks()) require_supported(block);
  choose_parameters();
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) {
    average_.push_back(parameters.allocate(static_cast<std::size_t>(parameters.blocks()[b].count) * size_of(dtype(b))));
  }
}

DType ModelAverage::dtype(std::size_t block) const { return kernels::average_type(parameters_->blocks()[block].dtype); }

void ModelAverage::choose_parameters() {
  bool is_any = false;
  for (const FlatBlock& block : parameters_->blocks()) {
    std::vector<char>& chosen = is_averaged_.emplace_back();
    for (const Segment& segment : block.segments) {
      chosen.push_back(options_.names.empty() || cover_name(options_.names, segment.name) ? 1 : 0);
      is_any = is_any || chosen.back() != 0;
    }
  }
  if (is_any) return;
  throw ConfigError("ema.names: no trained parameter has the name " + lockstep::joined(options_.names, " or ") +
                    ", or belongs to such a block");
}

/// Calls visit(block, segment) for every averaged parameter of which this rank owns a part.
template <class Visit>
void ModelAverage::for_each_own(const Visit& visit) const {
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    const Segment& segment = parameters_->blocks()[b].segments[s];
    if (segment.own_begin < segment.own_end && is_averaged(b, s)) visit(b, s);
  });
}

void ModelAverage::update() {
  if (updates_ % options_.interval == 0) {
    const double weight = updates_ == 0 ? 1 : rule_->weight(options_, updates_);
    if (!(weight >= 0 && weight <= 1)) {
      throw ConfigError("ema.kind = " + rule_->name + ": the weight of update " + std::to_string(updates_) + " is " +
                        number_text(weight) + ", but a weight is in [0, 1]");
    }
    const torch::NoGradGuard no_grad;
    update_parameters(weight);
    if (options_.averages_buffers) update_buffers(weight);
  }
  ++updates_;
}

/// Calls visit(dtype, average, parameters, count) for every part that this rank owns.
template <class Visit>
void ModelAverage::visit_own(const Visit& visit) {
  for_each_own([&](std::size_t b, std::size_t s) {
    const FlatBlock& block = parameters_->blocks()[b];
    const Segment& segment = block.segments[s];
    const auto begin = static_cast<std::size_t>(segment.offset + segment.own_begin);
    visit(block.dtype, average_[b].get() + begin * size_of(dtype(b)), block.parameters + begin * size_of(block.dtype),
          segment.own_end - segment.own_begin);
  });
}

/// [own_end - own_begin]
at::Tensor ModelAverage::flat_average(std::size_t block, std::size_t segment) const {
  const Segment& own = parameters_->blocks()[block].segments[segment];
  std::byte* const begin =
      average_[block].get() + static_cast<std::size_t>(own.offset + own.own_begin) * size_of(dtype(block));
  const at::TensorOptions like = flat_parameter(*parameters_, block, segment).options();
  return flat_view(begin, own.own_end - own.own_begin, like.dtype(scalar_type_of(dtype(block))));
}

void ModelAverage::update_parameters(double weight) {
  if (parameters_->as_tensors() == nullptr) {
    visit_own([weight](DType dtype, std::byte* average, const std::byte* values, std::int64_t count) {
      kernels::blend(dtype, average, values, count, weight);
    });
    return;
  }
  std::vector<at::Tensor> averages;
  std::vector<at::Tensor> values;
  for_each_own([&](std::size_t b, std::size_t s) {
    if (parameters_->blocks()[b].is_half())
      return blend(flat_average(b, s), flat_parameter(*parameters_, b, s).to(at::kFloat), weight);
    averages.push_back(flat_average(b, s));
    values.push_back(flat_parameter(*parameters_, b, s));
  });
  if (averages.empty()) return;
  weight == 1 ? at::_foreach_copy_(averages, values) : at::_foreach_lerp_(averages, values, weight);
}

void ModelAverage::exchange_parameters() {
  const torch::NoGradGuard no_grad;
  exchange_halves();
  if (parameters_->as_tensors() == nullptr) {
    visit_own([](DType dtype, std::byte* average, std::byte* values, std::int64_t count) {
      if (kernels::average_type(dtype) == dtype) kernels::exchange(dtype, average, values, count);
    });
    return;
  }
  for_each_own([&](std::size_t b, std::size_t s) {
    if (!parameters_->blocks()[b].is_half()) exchange(flat_average(b, s), flat_parameter(*parameters_, b, s));
  });
}

/// The first call puts the rounded average in the place of 16-bit weights, the second call puts these back.
void ModelAverage::exchange_halves() {
  std::vector<at::Tensor> kept;
  std::size_t i = 0;
  for_each_own([&](std::size_t b, std::size_t s) {
    if (!parameters_->blocks()[b].is_half()) return;
    const at::Tensor half = flat_parameter(*parameters_, b, s);
    if (kept_.empty()) {
      kept.push_back(half.clone());
      half.copy_(flat_average(b, s));
    } else {
      half.copy_(kept_[i++]);
    }
  });
  kept_ = std::move(kept);
}

void ModelAverage::update_buffers(double weight) {
  for (const NamedBuffer& buffer : buffers_()) {
    if (!buffer.tensor.is_floating_point()) continue;
    if (!options_.names.empty() && !cover_name(options_.names, buffer.name)) continue;
    if (NamedBuffer* const average = find(averaged_buffers_, buffer)) {
      blend(average->tensor, buffer.tensor, weight);
    } else {
      averaged_buffers_.push_back({buffer.name, buffer.tensor.detach().clone()});
    }
  }
}

void ModelAverage::swap() {
  parameters_->write([this] { exchange_parameters(); });
  swap_buffers();
}

void ModelAverage::swap_alone() {
  const auto exchange_own = [this] { exchange_parameters(); };
  auto* const shared = dynamic_cast<LoneWriter*>(parameters_);
  shared != nullptr ? shared->write_alone(exchange_own) : exchange_own();
  swap_buffers();
}

void ModelAverage::swap_buffers() {
  if (averaged_buffers_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (const NamedBuffer& buffer : buffers_()) {
    if (NamedBuffer* const average = find(averaged_buffers_, buffer)) exchange(average->tensor, buffer.tensor);
  }
}

std::span<std::byte> ModelAverage::parameters(std::size_t block) {
  const auto count = static_cast<std::size_t>(parameters_->blocks()[block].count);
  return {average_.at(block).get(), count * size_of(dtype(block))};
}

void ModelAverage::resume_at(std::int64_t updates, std::vector<NamedBuffer> buffers) {
  updates_ = updates;
  averaged_buffers_ = std::move(buffers);
}

}  // namespace lockstep::optim
