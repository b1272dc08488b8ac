// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "fake_gpu/kernels/arguments.hpp"

namespace lockstep::fake_gpu {

/// An operator that LibTorch refuses on GPUs where it has to use deterministic algorithms only.
struct NotDeterministic {
  const char* label;                                ///< the name in LibTorch's message
  bool (*is_it)(const Stack& arguments) = nullptr;  ///< null: always
};

/// The row of an operator, by its name without the overload; null if it is deterministic.
const NotDeterministic* not_deterministic(const std::string& name);

/// Throws LibTorch's error (or warns) if the run asked for deterministic algorithms.
void check_determinism(const NotDeterministic& row, const Stack& arguments);

}  // namespace lockstep::fake_gpu
