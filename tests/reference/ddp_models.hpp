// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/models/model.hpp>

#include <memory>
#include <string>
#include <vector>

#include "ddp.hpp"

namespace lockstep::testing::reference {

/// The file model_<name>.json: initial values and data.
const Json& stored_model(const std::string& name);

/// Builds mlp, conv, gpt, tied or branches in its initial state.
std::shared_ptr<models::Model> build_model(const std::string& name, at::ScalarType dtype);

/// The batch that a rank is given in a step.
batch::Batch stored_batch(const std::string& model, int step, int rank, at::ScalarType dtype);

/// Says which branches the model "branches" uses: some of "a", "b", "c".
void use_branches(models::Model& model, const std::vector<std::string>& names);

}  // namespace lockstep::testing::reference
