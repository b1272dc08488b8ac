// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

std::shared_ptr<Model> make_mlp(const Section& model, const Task& task);
std::shared_ptr<Model> make_cnn(const Section& model, const Task& task);
std::shared_ptr<Model> make_gpt(const Section& model, const Task& task);
std::shared_ptr<Model> make_efficientnet(const Section& model, const Task& task);
std::shared_ptr<Model> make_unet(const Section& model, const Task& task);
std::shared_ptr<Model> make_torchscript(const Section& model, const Task& task);

// Each creates the model of published sizes that `preset` names, such as "resnet50", whatever `model.name` is.
std::shared_ptr<Model> make_convnext(const std::string& preset, const Section& model, const Task& task);
std::shared_ptr<Model> make_mobilenet(const std::string& preset, const Section& model, const Task& task);
std::shared_ptr<Model> make_unet_resnet(const std::string& preset, const Section& model, const Task& task);
std::shared_ptr<Model> make_resnet(const std::string& preset, const Section& model, const Task& task);
std::shared_ptr<Model> make_vit(const std::string& preset, const Section& model, const Task& task);

/// "vit", then the names of models with sizes of their own.
std::vector<std::string> vit_names();

/// @param dims  of a sample; 0 = any
/// @throws ConfigError  the task is not about images, or its samples have other dimensions
void require_images(const char* name, const Task& task, std::size_t dims);
/// @throws ConfigError  model.head names other outputs than the targets need
void require_head(const Section& model, const Task& task);
/// @throws ConfigError  the targets of the task are not one for each pixel
void require_fields(const std::string& name, const Task& task);

}  // namespace lockstep::models
