// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::models {

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
