// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/determinism.hpp"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>

#include <cstdint>
#include <map>

namespace lockstep::fake_gpu {

namespace {

constexpr std::int64_t kMaximumOfBag = 2;

bool is_floating(const Stack& arguments) { return arguments[0].toTensor().is_floating_point(); }
bool has_weights(const Stack& arguments) { return arguments[1].isTensor() && arguments[1].toTensor().defined(); }
bool has_dimension(const Stack& arguments) { return arguments.size() > 1; }
bool is_reduced(const Stack& arguments) { return arguments[3].toInt() != at::Reduction::None; }
bool is_product(const Stack& arguments) { return arguments[4].toStringRef() == "prod"; }
bool is_maximum_of_bag(const Stack& arguments) { return arguments[7].toInt() == kMaximumOfBag; }

}  // namespace

// The rows are those of LibTorch 2.11: each operator was called with LibTorch's own kernel for CUDA, which throws
// before it launches.
const NotDeterministic* not_deterministic(const std::string& name) {
  static const std::map<std::string, NotDeterministic> rows = {
      {"aten::_adaptive_avg_pool2d_backward", {"adaptive_avg_pool2d_backward_cuda"}},
      {"aten::_adaptive_avg_pool3d_backward", {"adaptive_avg_pool3d_backward_cuda"}},
      {"aten::_ctc_loss_backward", {"ctc_loss_backward_gpu"}},
      {"aten::_embedding_bag_dense_backward", {"embedding_bag_backward_cuda_max", is_maximum_of_bag}},
      {"aten::_upsample_bicubic2d_aa_backward", {"upsample_bicubic2d_aa_backward_out_cuda"}},
      {"aten::_upsample_bilinear2d_aa_backward", {"upsample_bilinear2d_aa_backward_out_cuda"}},
      {"aten::adaptive_max_pool2d_backward", {"adaptive_max_pool2d_backward_cuda"}},
      {"aten::avg_pool3d_backward", {"avg_pool3d_backward_cuda"}},
      {"aten::bincount", {"_bincount_cuda", has_weights}},
      {"aten::fractional_max_pool2d_backward", {"fractional_max_pool2d_backward_cuda"}},
      {"aten::fractional_max_pool3d_backward", {"fractional_max_pool3d_backward_cuda"}},
      {"aten::grid_sampler_2d_backward", {"grid_sampler_2d_backward_cuda"}},
      {"aten::grid_sampler_3d_backward", {"grid_sampler_3d_backward_cuda"}},
      {"aten::histc", {"_histc_cuda with floating point input", is_floating}},
      {"aten::index_reduce", {"index_reduce_cuda"}},
      {"aten::index_reduce_", {"index_reduce_cuda"}},
      {"aten::max_pool3d_with_indices_backward", {"max_pool3d_with_indices_backward_cuda"}},
      {"aten::max_unpool2d", {"max_unpooling2d_forward_out"}},
      {"aten::max_unpool3d", {"max_unpooling3d_forward_out"}},
      {"aten::median", {"median CUDA with indices output", has_dimension}},
      {"aten::nanmedian", {"median CUDA with indices output", has_dimension}},
      {"aten::nll_loss2d_forward", {"nll_loss2d_forward_out_cuda_template", is_reduced}},
      {"aten::put_", {"put_"}},
      {"aten::reflection_pad1d_backward", {"reflection_pad1d_backward_out_cuda"}},
      {"aten::reflection_pad3d_backward", {"reflection_pad3d_backward_out_cuda"}},
      {"aten::replication_pad1d_backward", {"replication_pad1d_backward_cuda"}},
      {"aten::replication_pad2d_backward", {"replication_pad2d_backward_cuda"}},
      {"aten::replication_pad3d_backward", {"replication_pad3d_backward_cuda"}},
      {"aten::scatter_reduce", {"scatter_reduce_cuda_prod_", is_product}},
      {"aten::scatter_reduce_", {"scatter_reduce_cuda_prod_", is_product}},
      {"aten::upsample_bicubic2d_backward", {"upsample_bicubic2d_backward_out_cuda"}},
      {"aten::upsample_bilinear2d_backward", {"upsample_bilinear2d_backward_out_cuda"}},
      {"aten::upsample_linear1d_backward", {"upsample_linear1d_backward_out_cuda"}},
      {"aten::upsample_trilinear3d_backward", {"upsample_trilinear3d_backward_out_cuda"}},
  };
  const auto row = rows.find(name);
  return row == rows.end() ? nullptr : &row->second;
}

void check_determinism(const NotDeterministic& row, const Stack& arguments) {
  if (row.is_it == nullptr || row.is_it(arguments)) at::Context::alertNotDeterministic(row.label);
}

}  // namespace lockstep::fake_gpu
