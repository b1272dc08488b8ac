// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <memory>
#include <string>

// Models of the families of src/families. Sizes that no key sets are in section `model`, too.
namespace lockstep::models {

std::shared_ptr<Model> make_mlp(const Section& model, const Task& task);
std::shared_ptr<Model> make_cnn(const Section& model, const Task& task);
std::shared_ptr<Model> make_gpt(const Section& model, const Task& task);
std::shared_ptr<Model> make_efficientnet(const Section& model, const Task& task);
std::shared_ptr<Model> make_unet(const Section& model, const Task& task);
std::shared_ptr<Model> make_unet_classic(const Section& model, const Task& task);
std::shared_ptr<Model> make_fno(const Section& model, const Task& task);
std::shared_ptr<Model> make_torchscript(const Section& model, const Task& task);
std::shared_ptr<Model> make_convnext(const Section& model, const Task& task);
std::shared_ptr<Model> make_mobilenet(const Section& model, const Task& task);
std::shared_ptr<Model> make_unet_resnet(const Section& model, const Task& task);
std::shared_ptr<Model> make_resnet(const Section& model, const Task& task);
std::shared_ptr<Model> make_vit(const Section& model, const Task& task);

/// @param dims  of a sample; 0 = any
/// @throws ConfigError  the task is not about images, or its samples have other dimensions
void require_images(const std::string& name, const Task& task, std::size_t dims);
/// @throws ConfigError  the images of the task have a height or width below `smallest`
void require_pixels(const std::string& name, const Task& task, std::int64_t smallest);
/// @throws ConfigError  model.head names other outputs than the targets need
void require_head(const Section& model, const Task& task);
/// @throws ConfigError  the targets of the task are not one for each pixel
void require_fields(const std::string& name, const Task& task);

}  // namespace lockstep::models
