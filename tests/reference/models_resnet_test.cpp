// SPDX-License-Identifier: BSD-3-Clause
#include "reference/models_families.hpp"

namespace lockstep::testing::reference {

GoldenModel resnet_model(const Json& one_case) {
  const std::string name = one_case.at("name");
  const bool is_small = name.find("stem32") != std::string::npos;
  return {.keys = {{"name", name.substr(0, name.find("_stem32"))}, {"stem", is_small ? "small" : "imagenet"}},
          .task = task_of(one_case)};
}

}  // namespace lockstep::testing::reference
