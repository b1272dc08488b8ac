// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "core/numbers/processor_level.hpp"

namespace lockstep::testing {

/// Calls `check` at each level of this machine, and prints the levels that it does not have.
template <class Check>
void at_each_level(const Check& check) {
  for (const ProcessorLevel level : {ProcessorLevel::generic, ProcessorLevel::avx2, ProcessorLevel::avx512}) {
    if (level > machine_level()) {
      std::cout << "not run at level " << name_of(level) << ", which this machine does not have\n";
      continue;
    }
    SCOPED_TRACE("level " + std::string(name_of(level)));
    const ScopedLevel scoped(level);
    check();
  }
}

}  // namespace lockstep::testing
