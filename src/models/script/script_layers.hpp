// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::models {

class Model;

/// The path of the TorchScript archive that computes this model, if its code calls batch norm; otherwise empty.
std::string script_with_batch_norm(const Model& model);

}  // namespace lockstep::models
