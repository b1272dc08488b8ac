// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/batch/batch.hpp>
#include <lockstep/core/error.hpp>

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep::batch {

const at::Tensor& Outputs::main() const {
  if (entries_.empty()) throw ConfigError("the model returned no outputs");
  return entries_.front().second;
}

at::Tensor Outputs::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  return found == entries_.end() ? at::Tensor() : found->second;
}

const at::Tensor& Outputs::tensor(const std::string& name) const {
  for (const auto& [each, tensor] : entries_) {
    if (each == name) return tensor;
  }
  std::vector<std::string> names;
  for (const auto& [each, tensor] : entries_) names.push_back("'" + each + "'");
  throw ConfigError("the model does not return the output '" + name + "', only " +
                    (names.empty() ? "nothing" : joined(names)));
}

std::vector<at::Tensor> Outputs::list(const std::string& name) const {
  std::vector<at::Tensor> tensors;
  for (const auto& [each, tensor] : entries_) {
    if (each == name) tensors.push_back(tensor);
  }
  return tensors;
}

Outputs Outputs::detached() const {
  Outputs result;
  for (const auto& [name, tensor] : entries_) result.add(name, tensor.defined() ? tensor.detach() : tensor);
  return result;
}

}  // namespace lockstep::batch
