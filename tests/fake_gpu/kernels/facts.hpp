// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fake_gpu/kernels/determinism.hpp"
#include "fake_gpu/kernels/host_tensors.hpp"
#include "fake_gpu/kernels/waits.hpp"

namespace lockstep::fake_gpu {

struct ArgumentFacts {
  bool is_written = false;
  bool is_output = false;                         ///< an `out=` argument, which takes the size of the result
  bool is_number = false;                         ///< a scalar, of which only the type decides the type of a result
  std::optional<std::size_t> is_written_if = {};  ///< written only where this argument is true
};

/// The facts that are known about an operator before it is called.
struct Facts {
  c10::OperatorHandle handle;
  std::string name;  ///< name with the overload: "aten::add.Tensor"
  std::vector<ArgumentFacts> arguments = {};
  std::vector<std::optional<std::size_t>> returns = {};  ///< the argument that a result is, if it is one
  std::optional<std::size_t> generator = {};             ///< the argument
  bool is_random = false;
  bool is_foreach = false;
  bool is_fused = false;  ///< the update of an optimizer, on lists of tensors
  bool numbers_decide_size = false;
  bool rejects_zeros = false;  ///< fails where all values are zero, but not where all are one
  bool adds_in_float = false;  ///< products of 16-bit numbers
  HostTensors host = {};
  const c10::KernelFunction* own_function = nullptr;  ///< replaces a kernel for CPUs that LibTorch lacks
  Waits waits = nullptr;                              ///< null: never
  const NotDeterministic* not_deterministic = nullptr;
};

Facts facts_of(const c10::OperatorHandle& handle);

/// Whether this library can run the operator on the CPU.
bool can_compute(const Facts& facts);

}  // namespace lockstep::fake_gpu
