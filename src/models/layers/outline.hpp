// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <memory>
#include <vector>

namespace lockstep::models {

/// Like `build`, but parameters and buffers are on the meta device: they have names, shapes and types, but neither
/// memory nor values. A model that reads values while it is created is built with memory. Not collective.
/// @throws ConfigError  as `build`
std::shared_ptr<Model> outline(const Section& model, const Task& task, at::ScalarType dtype = at::kFloat,
                               const std::vector<ModelRow>& rows = builtin_models());

}  // namespace lockstep::models
