// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>

#include <string>

#include "fake_gpu/kernels/arguments.hpp"

namespace lockstep::fake_gpu {

/// Whether a call of an operator makes the host wait for the device, because values decide what it returns.
using Waits = bool (*)(const Stack& arguments);

/// How an operator decides that; null if it never waits.
Waits waits_of(const std::string& name, const c10::FunctionSchema& schema);

}  // namespace lockstep::fake_gpu
