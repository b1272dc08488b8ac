// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <vector>

namespace lockstep::models {

/// Like `build`, but parameters and buffers are on the meta device: they have names, shapes and types, but neither
/// memory nor values. A model that reads values while it is created is built with memory. Not collective.
/// @throws ConfigError  as `build`
std::shared_ptr<Model> outline(const Section& model, const Task& task, at::ScalarType dtype = at::kFloat,
                               const std::vector<ModelRow>& rows = builtin_models());

/// During its lifetime, this thread creates tensors on the meta device, that is without memory and values, unless a
/// device is requested.
class ScopedOutline {
 public:
  ScopedOutline();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

/// During its lifetime, a ScopedOutline around it has no effect.
class ScopedMemory {
 public:
  ScopedMemory();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::models
