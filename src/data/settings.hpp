// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/data/sampler.hpp>

#include <string>
#include <vector>

#include "data/roles.hpp"

namespace lockstep::data {

/// The keys of section `data` that do not depend on the source and the sampler.
struct DataSettings {
  std::string source;   ///< a row of the table of data sources
  std::string sampler;  ///< a row of the table of samplers
  ChosenRoles roles;    ///< which values of a sample are the model's inputs and targets
  int workers = 1;      ///< threads per rank that fetch batches ahead; 0 = the training thread fetches

  static KeySpecs keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers);
  static DataSettings from(const Section& data);
};

}  // namespace lockstep::data
