// SPDX-License-Identifier: BSD-3-Clause
// Cases of whole models: parameters by a formula of name and index, then state, outputs, losses, gradients, statistics
// and one SGD step against those of a public library. A family of models adds one function: the keys of a case.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/models_cases.hpp"

namespace at {
class Tensor;
}

namespace lockstep::models {
class Model;
}

namespace lockstep::testing::reference {

/// A mapping from our state to that of a library, in the library's order; empty = they are the same.
using PublicState = std::function<std::vector<StateEntry>(const std::vector<StateEntry>& ours)>;

/// How our program builds the model of a case.
struct GoldenModel {
  std::map<std::string, std::string> keys;  ///< keys of section `model`: {"name", "resnet50"}
  Task task;
  PublicState public_state = {};
  /// The loss of output and target; empty = that of the model.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss = {};
};

/// Runs the cases of a file: in float64 all fields, in float32 those that end with _float32 and the losses. Sizes,
/// formula salt and tolerances are those of the file.
/// @param file         in the folder of the topic, such as "resnet.json"
/// @param family       keys, task and names for a case; a throw fails the case
/// @param extra_fields  of the file, which other tests read
Handler golden_models(const std::string& file, std::function<GoldenModel(const Json& one_case)> family,
                      const std::vector<std::string>& extra_fields = {}, const std::string& topic = "models");

/// The state of a model in the order of PyTorch's state_dict, as files list it.
std::vector<std::string> state_lines(const models::Model& model, const PublicState& public_state);
/// Compares such lines with a list, or with {"entries": count, "sha256": digest}.
void expect_listing(const std::vector<std::string>& lines, const Json& stored);

/// The model of a case in float64 with the parameters of the formula.
std::shared_ptr<models::Model> model_by_formula(const GoldenModel& golden, const std::string& salt);
/// Compares with all numbers of a tensor, or with norm, mean, first and last ones.
/// @param relative  to the norm
void expect_tensor(const at::Tensor& tensor, const Json& stored, double relative, const std::string& what);

/// The tensor of a name: v of the formula times `scale` plus `shift`, float64.
at::Tensor by_formula(const std::string& name, const std::vector<std::int64_t>& shape, double scale = 1,
                      double shift = 0);
/// Whole numbers of a name below `below`, int64.
at::Tensor classes_by_formula(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t below);

}  // namespace lockstep::testing::reference
