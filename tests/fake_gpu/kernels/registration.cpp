// SPDX-License-Identifier: BSD-3-Clause
// Loading this library replaces LibTorch's kernels for CUDA. It must follow libtorch_cuda, which it needs: the kernel
// that is registered last is the one that is called.
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "fake_gpu/kernels/copy.hpp"
#include "fake_gpu/kernels/facts.hpp"
#include "fake_gpu/kernels/operator.hpp"

namespace lockstep::fake_gpu {

namespace {

/// Kernels of LibTorch for CUDA that launch nothing: they allocate, share memory, or copy a number to the host.
const std::set<std::string>& own_of_libtorch() {
  static const std::set<std::string> names = {"aten::_efficientzerotensor",
                                              "aten::_has_same_storage_numel",
                                              "aten::_local_scalar_dense",
                                              "aten::_pin_memory",
                                              "aten::_use_cudnn_ctc_loss",
                                              "aten::_use_cudnn_ctc_loss.Tensor",
                                              "aten::_use_miopen_ctc_loss",
                                              "aten::_use_miopen_ctc_loss.Tensor",
                                              "aten::empty.memory_format",
                                              "aten::empty_strided",
                                              "aten::is_pinned",
                                              "aten::is_set_to",
                                              "aten::record_stream",
                                              "aten::resize_",
                                              "aten::set_",
                                              "aten::set_.source_Storage",
                                              "aten::set_.source_Storage_storage_offset",
                                              "aten::set_.source_Tensor"};
  return names;
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool is_replaced(const std::optional<c10::OperatorHandle>& handle) {
  if (!handle || handle->operator_name().name.rfind("aten::", 0) != 0) return false;
  return handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !is_view(handle->schema()) &&
         own_of_libtorch().count(c10::toString(handle->operator_name())) == 0;
}

void refuse(const c10::OperatorHandle& handle, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the fake GPU cannot compute ", handle.operator_name(),
                              ": LibTorch has this operator for CUDA only. Add a function for CPUs to ",
                              "tests/fake_gpu/kernels/own_functions.hpp.");
}

torch::CppFunction replacement(const c10::OperatorHandle& handle) {
  // Facts are never destroyed: queued work and reports of races refer to them until the process ends.
  const Facts& facts = *new Facts(facts_of(handle));
  if (!can_compute(facts)) return torch::CppFunction::makeFromBoxedFunction<&refuse>();
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Operator>(facts));
}

/// Attention is computed from products and a softmax. The kernels in one piece exist for CUDA only.
std::int64_t choose_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                              double, bool, std::optional<double>, bool) {
  return static_cast<std::int64_t>(at::SDPBackend::math);
}

/// LibTorch warns where a kernel is registered twice, which is the purpose here.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

bool replace_kernels() {
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard guard(&none);
  // The library is never destroyed, because it would put back the kernels of LibTorch when the process ends.
  auto& library = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::optional<c10::OperatorHandle> handle = dispatcher.findSchema(name);
    if (is_replaced(handle)) library.impl(c10::toString(name).c_str(), replacement(*handle));
  }
  library.impl("copy_", copy);
  library.impl("_fused_sdp_choice", choose_attention);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(choose_attention);
  return true;
}

[[maybe_unused]] const bool is_loaded = replace_kernels();

}  // namespace

}  // namespace lockstep::fake_gpu
