// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/waits.hpp"

#include <algorithm>
#include <map>

#include "fake_gpu/kernels/host_tensors.hpp"

namespace lockstep::fake_gpu {

namespace {

bool always_waits(const Stack&) { return true; }

/// LibTorch turns a mask into indices, the number of which it has to know.
bool waits_for_masks(const Stack& arguments) {
  bool has_mask = false;
  visit_tensors(arguments[1], [&](const at::Tensor& index) {
    has_mask = has_mask || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return has_mask;
}

bool waits_for_masks_of_put(const Stack& arguments) {
  return waits_for_masks(arguments) && !fills_under_mask(arguments);
}

bool waits_for_number(const Stack& arguments) { return arguments[2].toTensor().is_cuda(); }

bool checks_lengths(const Stack& arguments) { return !arguments[6].toBool(); }

/// Equal limits mean: those of the values.
bool waits_for_limits(const Stack& arguments) {
  return arguments[2].toScalar().toDouble() == arguments[3].toScalar().toDouble();
}

// Operators for which LibTorch's kernels for CUDA copy a count, a limit or a check to the host, or lengths from there.
// The rows are those of LibTorch 2.11: each operator was called with LibTorch's own kernel for CUDA in a capture.
const std::map<std::string, Waits>& waiting_operators() {
  static const std::map<std::string, Waits> rows = {
      {"aten::_ctc_loss", always_waits},
      {"aten::_ctc_loss.Tensor", always_waits},
      {"aten::_ctc_loss_backward", always_waits},
      {"aten::_ctc_loss_backward.Tensor", always_waits},
      {"aten::_index_put_impl_", waits_for_masks_of_put},
      {"aten::_linalg_eigvals", always_waits},
      {"aten::_unique", always_waits},
      {"aten::_unique2", always_waits},
      {"aten::batch_norm_gather_stats", always_waits},
      {"aten::bincount", always_waits},
      {"aten::histc", waits_for_limits},
      {"aten::histc.out", waits_for_limits},
      {"aten::index.Tensor", waits_for_masks},
      {"aten::index.Tensor_out", waits_for_masks},
      {"aten::linalg_eig", always_waits},
      {"aten::linalg_eig.out", always_waits},
      {"aten::linalg_eigvals.out", always_waits},
      {"aten::linalg_matrix_exp", always_waits},
      {"aten::masked_fill_.Tensor", waits_for_number},
      {"aten::masked_select", always_waits},
      {"aten::masked_select.out", always_waits},
      {"aten::nonzero", always_waits},
      {"aten::nonzero.out", always_waits},
      {"aten::normal.Tensor_Tensor", always_waits},
      {"aten::normal.Tensor_Tensor_out", always_waits},
      {"aten::normal.float_Tensor", always_waits},
      {"aten::normal.float_Tensor_out", always_waits},
      {"aten::repeat_interleave.Tensor", always_waits},
      {"aten::segment_reduce", checks_lengths},
      {"aten::unique_consecutive", always_waits},
      {"aten::unique_dim", always_waits},
      {"aten::unique_dim_consecutive", always_waits},
  };
  return rows;
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType || result.type()->kind() == c10::TypeKind::ListType;
  });
}

}  // namespace

Waits waits_of(const std::string& name, const c10::FunctionSchema& schema) {
  const auto row = waiting_operators().find(name);
  if (row != waiting_operators().end()) return row->second;
  return returns_tensors(schema) ? nullptr : always_waits;
}

}  // namespace lockstep::fake_gpu
