// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <memory>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::data {

/// Keys data.input_keys and data.target_keys.
struct ChosenRoles {
  Cited<std::string> inputs = {};   ///< names with commas between them; empty = as the data set says
  Cited<std::string> targets = {};  ///< the same

  bool operator==(const ChosenRoles&) const = default;
};

/// A data set whose batches know their roles. Where the chosen roles are those of the data set, it is the data set
/// itself and its digest stays; batches then have its roles.
/// @param dataset  null = nothing is done
/// @throws ConfigError  a name is given twice, or the first sample does not have this value; the message names those it
///                      has
std::shared_ptr<const Dataset> with_roles(std::shared_ptr<const Dataset> dataset, const ChosenRoles& chosen);

/// The data set to which with_roles gave other roles; `dataset` itself if it has its own roles.
const Dataset& without_roles(const Dataset& dataset);

/// An optional interface of a data set, such as SampleNames, whatever its roles; null = the data set does not have it.
template <class Ability>
const Ability* ability_of(const Dataset& dataset) {
  return dynamic_cast<const Ability*>(&without_roles(dataset));
}

}  // namespace lockstep::data
