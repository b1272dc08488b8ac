// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <memory>

namespace lockstep::models {

std::shared_ptr<Model> make_mlp(const Section& model, const Task& task);
std::shared_ptr<Model> make_cnn(const Section& model, const Task& task);
std::shared_ptr<Model> make_gpt(const Section& model, const Task& task);

}  // namespace lockstep::models
