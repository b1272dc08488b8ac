// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/outline.hpp"

#include <c10/util/Exception.h>
#include <torch/library.h>

namespace lockstep::models {

namespace {

/// LibTorch has no default device in C++. Its dispatch key for modes of tests is used by no other code.
constexpr c10::DispatchKey kOutlineKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Calls an operator. Where it leaves the device of a new tensor open, this is the meta device.
void call_without_memory(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard only_once(kOutlineKey);
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (arguments[i].name() == "device" && value.isNone()) value = c10::Device(at::kMeta);
  }
  op.callBoxed(stack);
}

void register_outline_key() {
  static const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "_", kOutlineKey, __FILE__, __LINE__);
    made.fallback(torch::CppFunction::makeFromBoxedFunction<&call_without_memory>());
    return made;
  }();
}

}  // namespace

ScopedOutline::ScopedOutline() : guard_((register_outline_key(), kOutlineKey)) {}

ScopedMemory::ScopedMemory() : guard_(kOutlineKey) {}

std::shared_ptr<Model> outline(const Section& model, const Task& task, at::ScalarType dtype,
                               const std::vector<ModelRow>& rows) {
  try {
    const ScopedOutline without_memory;
    return build(model, task, /*seed=*/0, dtype, rows);
  } catch (const c10::Error&) {
    return build(model, task, /*seed=*/0, dtype, rows);  // its constructor reads values
  }
}

}  // namespace lockstep::models
