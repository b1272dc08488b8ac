// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/kernels.hpp"
#include "support/levels.hpp"

namespace lockstep::testing {

/// Calls `check` at each level of this machine with a kernel and with the library that it replaces.
template <class Check>
void in_both_forms(kernels::Kernel kernel, const Check& check) {
  at_each_level([&] {
    for (const bool is_used : {true, false}) {
      const std::string form = std::string(is_used ? "" : "not ") + "the kernel " + std::string(name_of(kernel));
      SCOPED_TRACE(form);
      const kernels::ScopedChoice choice(kernel, is_used);
      check();
    }
  });
}

}  // namespace lockstep::testing
