// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "parallel/store/parameter_store.hpp"

namespace lockstep::parallel {

/// The trained parameters that lie outside the graphs of all the losses: not used in forward, or used for something
/// that does not reach a loss. They get no gradient, which a wrapper without find_unused_parameters takes for a
/// mistake.
///
/// The same before and after backward, as long as the losses live. A loss without a history (a constant, a leaf) has no
/// parameter in its graph. Not collective.
/// @param parameters  frozen ones are never reported
/// @return            names, in the order of `parameters`
std::vector<std::string> anomalous_parameters(const std::vector<at::Tensor>& losses,
                                              const std::vector<NamedParameter>& parameters);

}  // namespace lockstep::parallel
