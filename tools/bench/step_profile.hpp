// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "engine/measures/trace.hpp"

// The parts of a step: the operators of LibTorch and the kernels of Lockstep, by kinds of work.
namespace lockstep::bench {

enum class Work { products, convolutions, attention, normalization, elementwise, layout, weights, allocation, other };

inline constexpr std::array<const char*, 9> kWorkNames = {
    "products of matrices",    "convolutions",        "attention",  "normalization", "element-wise operations",
    "other layouts of values", "transformed weights", "allocation", "other"};

/// The kind of an operator or of a node of the backward. Names are compared from their beginnings on.
inline Work work_of(std::string_view name) {
  static constexpr std::pair<std::string_view, Work> kKinds[] = {
      {"aten::mm", Work::products},
      {"aten::addmm", Work::products},
      {"aten::bmm", Work::products},
      {"aten::baddbmm", Work::products},
      {"aten::mkldnn_linear", Work::products},
      {"mkldnn::_linear", Work::products},
      {"lockstep::dot_products", Work::products},
      {"LinearBackward", Work::products},  // gradients of weights that Lockstep computes itself
      {"aten::mkldnn_convolution", Work::convolutions},
      {"aten::convolution", Work::convolutions},
      {"aten::_convolution", Work::convolutions},
      {"aten::thnn_conv2d", Work::convolutions},
      {"aten::_slow_conv2d", Work::convolutions},
      {"mkldnn::_convolution", Work::convolutions},
      {"mkldnn::_reorder_convolution", Work::weights},
      {"aten::mkldnn_reorder", Work::weights},
      {"lockstep::winograd_weight", Work::weights},
      {"lockstep::winograd", Work::convolutions},
      {"lockstep::depthwise", Work::convolutions},
      {"ConvolutionBackward", Work::convolutions},  // likewise
      {"lockstep::attention", Work::attention},
      {"SelfAttentionBackward", Work::attention},
      {"aten::_scaled_dot_product", Work::attention},
      {"aten::scaled_dot_product", Work::attention},
      {"lockstep::batch_norm", Work::normalization},
      {"BatchNormBackward", Work::normalization},
      {"aten::native_batch_norm", Work::normalization},
      {"aten::native_layer_norm", Work::normalization},
      {"aten::native_group_norm", Work::normalization},
      {"aten::layer_norm", Work::normalization},
      {"lockstep::gelu", Work::elementwise},
      {"GeluBackward", Work::elementwise},
      {"aten::copy_", Work::layout},
      {"aten::clone", Work::layout},
      {"aten::contiguous", Work::layout},
      {"aten::_to_copy", Work::layout},
      {"aten::cat", Work::layout},
      {"aten::empty", Work::allocation},
      {"aten::new_empty", Work::allocation},
      {"aten::resize_", Work::allocation},
      {"aten::view", Work::other},
      {"aten::_unsafe_view", Work::other},
      {"aten::reshape", Work::other},
      {"aten::tanh", Work::elementwise},
      {"aten::threshold", Work::elementwise},
      {"aten::t", Work::other},  // also transpose and to, whose copies have names of their own
      {"aten::permute", Work::other},
      {"aten::expand", Work::other},
      {"aten::as_strided", Work::other},
      {"aten::select", Work::other},
      {"aten::slice", Work::other},
      {"aten::unbind", Work::other},
      {"aten::detach", Work::other},
      {"detach", Work::other},
      {"aten::", Work::elementwise},
  };
  for (const auto& [beginning, work] : kKinds) {
    if (name.starts_with(beginning)) return work;
  }
  return Work::other;
}

/// Milliseconds of each kind of work.
using WorkTimes = std::array<double, kWorkNames.size()>;

inline WorkTimes work_times(std::vector<engine::Span> spans) {
  WorkTimes times{};
  for (const auto& [name, microseconds] : engine::self_times(std::move(spans))) {
    times[static_cast<std::size_t>(work_of(name))] += microseconds / 1e3;
  }
  return times;
}

/// Pages of memory that the system has given to this process so far.
inline long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace lockstep::bench
