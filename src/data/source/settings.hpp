// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/sampler.hpp>

#include <optional>
#include <string>
#include <vector>

#include "data/source/roles.hpp"

namespace lockstep::data {

/// The keys of section `data` that do not depend on the source and the sampler.
struct DataSettings {
  std::string source;   ///< a row of the table of data sources
  std::string sampler;  ///< a row of the table of samplers
  ChosenRoles roles;    ///< which values of a sample are the model's inputs and targets
  /// Loader threads per rank; 0 = the training thread loads its batches; none = see auto_workers.
  std::optional<int> workers = {};
  int prefetch = 4;           ///< batches that are prepared in advance
  int read_ahead = 2;         ///< batches in advance of which files are requested
  double stall_seconds = 60;  ///< time without a sample until a warning; 0 = never

  static KeySpecs keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers);
  static DataSettings from(const Section& data);
};

/// data.max_image_mb in bytes.
std::int64_t max_image_bytes(const Section& data);

/// The loader threads of a rank by default.
/// @param processors  that the rank can use
int auto_workers(int processors);

}  // namespace lockstep::data
