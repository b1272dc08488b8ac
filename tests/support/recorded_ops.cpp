// SPDX-License-Identifier: BSD-3-Clause
#include "support/recorded_ops.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>
#include <torch/types.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::testing {

namespace {

using torch::jit::Stack;

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;  // below autograd, and nobody else uses it
RecordedOps* recording = nullptr;
std::vector<std::pair<at::Tensor, at::Tensor>> overwritten;  // and the values before

std::vector<at::Tensor> tensors_in(const Stack& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

/// Puts new results where the old ones are.
void renew(const std::vector<at::Tensor>& old, const std::vector<at::Tensor>& now) {
  for (std::size_t i = 0; i < old.size(); ++i) {
    const bool has_values = old[i].defined() && old[i].numel() > 0;
    if (has_values && old[i].const_data_ptr() != now[i].const_data_ptr()) old[i].copy_(now[i]);
  }
}

void keep_what_changes(const c10::OperatorHandle& op, const Stack& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto* const alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for (const at::Tensor& tensor : tensors_in({inputs[i]})) overwritten.emplace_back(tensor, tensor.clone());
  }
}

void record(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const std::string& name = op.schema().name();
  if (name == "aten::_local_scalar_dense" || name == "aten::nonzero") {
    throw std::runtime_error("the host reads a value while a step is captured");
  }
  const auto inputs = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  keep_what_changes(op, inputs);
  op.callBoxed(stack);
  if (name.find("::empty") != std::string::npos || name.find("::new_empty") != std::string::npos) return;
  const Stack outputs = torch::jit::last(*stack, op.schema().returns().size()).vec();
  recording->push_back([op, inputs, results = tensors_in(outputs)] {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    Stack values = inputs;
    op.callBoxed(&values);
    renew(results, tensors_in(values));
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>()); }

void begin_recording(RecordedOps* ops) {
  recording = ops;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void end_recording() {
  c10::impl::tls_set_dispatch_key_included(kKey, false);
  recording = nullptr;
  overwritten.clear();
}

void undo_recording() {
  const auto changed = std::exchange(overwritten, {});
  end_recording();
  const torch::NoGradGuard no_grad;
  for (auto kept = changed.rbegin(); kept != changed.rend(); ++kept) kept->first.copy_(kept->second);
}

RecordedOps recorded(const std::function<void()>& body) {
  RecordedOps ops;
  begin_recording(&ops);
  try {
    body();
  } catch (...) {
    end_recording();
    throw;
  }
  end_recording();
  return ops;
}

}  // namespace lockstep::testing
