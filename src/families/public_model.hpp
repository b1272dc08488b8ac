// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <string>
#include <vector>

// The counterparts of trained models in other libraries.
namespace lockstep::families {

/// The names of the libraries that have models of these families, in alphabetical order.
std::vector<std::string> library_names(const std::vector<FamilyRow>& families);

/// The counterpart of a trained model.
/// @throws CheckpointError  incompatible: the library lacks this model, in one sentence
PublicModel public_model(const std::string& library, const TrainedModel& model,
                         const std::vector<FamilyRow>& families = builtin_families());

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

}  // namespace lockstep::families
