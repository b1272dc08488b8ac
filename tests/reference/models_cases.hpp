// SPDX-License-Identifier: BSD-3-Clause
// What the JSON text of a case of a model says, without LibTorch.
#pragma once

#include <lockstep/core/task.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

/// One entry of the state of a model. Names are as in the files.
struct StateEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string own_name = {};  ///< name in our model; empty = the same
  bool is_complex = false;    ///< complex numbers, which our model has as pairs: a last dimension of 2

  const std::string& ours() const { return own_name.empty() ? name : own_name; }
};

/// The task that input and target of a case stand for: segmentation for [N, H, W] classes, regression for real numbers.
Task task_of(const Json& one_case);
/// The dictionary or the named arguments in the text `what`, such as {'depth': 3, 'class_token': False} or
/// (depths=(1,2), up='nearest'): numbers, truths, texts and lists. An empty object if there is none.
Json options_of(const Json& one_case);
/// The entries of `state_dict`, if the case lists them.
std::vector<StateEntry> state_of(const Json& one_case);
/// "name 2x3", "name 2x3 complex64" or "name scalar int64", as files state an entry.
std::string line_of(const StateEntry& entry, bool is_integer);

}  // namespace lockstep::testing::reference
