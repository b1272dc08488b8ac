// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoints/interop/name_map.hpp"

/// The models of torchvision and timm that have the parameters of ours.
namespace lockstep::checkpoints {

/// A trained model, as a checkpoint describes it.
struct TrainedModel {
  std::string name;                                              ///< value of model.name
  std::map<std::string, std::string> keys = {};                  ///< values of section `model` by key: "num_heads"
  std::map<std::string, std::vector<std::int64_t>> shapes = {};  ///< shapes of the parameters and buffers, by our name
  std::int64_t height = 0;                                       ///< height of the images in pixels; 0 = unknown
  std::int64_t width = 0;
};

/// A model that a function of another library creates.
struct PublicModel {
  std::string library;   ///< "timm" or "torchvision"
  std::string function;  ///< "resnet50"; for torchvision relative to torchvision.models
  /// Arguments of the function by name, in the syntax of Python, which for timm is that of JSON, too. Without the
  /// number of classes.
  std::vector<std::pair<std::string, std::string>> arguments = {};
  const NameMap* names = nullptr;  ///< null = the same names
  std::string head;                ///< module that computes the outputs, by its name in the library; empty = none
  std::string stem;                ///< convolution that reads the images, likewise
  std::int64_t channels = 0;       ///< channels of the images
  std::int64_t height = 0;         ///< height of the images; 0 = unknown
  std::int64_t width = 0;
  std::int64_t classes = 0;     ///< outputs of the head; 0 = it has none
  bool has_fixed_size = false;  ///< reads images of this height and width only
};

/// The counterpart of a trained model.
/// @param library  "timm" or "torchvision"
/// @throws CheckpointError  incompatible: the library lacks this model, in one sentence
PublicModel public_model(std::string_view library, const TrainedModel& model);

/// The call that creates the model: "torchvision.models.resnet50(num_classes=10)".
std::string python_call(const PublicModel& model);

/// The names of parameters and buffers as the library has them, in its order.
struct PublicName {
  std::string ours;
  std::string theirs;
  NameOperation operation = NameOperation::same;
};
/// @param ours  in the order of our model
/// @throws CheckpointError  incompatible: a parameter has no counterpart
std::vector<PublicName> public_names(const PublicModel& model, const std::vector<std::string>& ours);

}  // namespace lockstep::checkpoints
