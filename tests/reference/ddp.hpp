// SPDX-License-Identifier: BSD-3-Clause
// The files of reference/ddp are one topic and so one binary; each source hands over what it does with its files.
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <torch/types.h>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

/// The ranks of the test program. A case of another world size is skipped.
mpi::Collectives& world();

/// A stored tensor; floating-point values as `dtype`.
at::Tensor tensor_of(const Json& stored, at::ScalarType dtype);
at::ScalarType dtype_of(const Json& one_case);  ///< type that its field `dtype` names

void expect_close(const at::Tensor& actual, const Json& expected, const Tolerance& tolerance, const std::string& what);

std::vector<Handler> model_handlers();
std::vector<Handler> sync_batch_norm_handlers();
std::vector<Handler> training_handlers();

}  // namespace lockstep::testing::reference
