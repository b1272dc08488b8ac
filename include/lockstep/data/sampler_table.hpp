// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::data {

/// What a sampler is made for.
struct SamplerRequest {
  const Dataset* dataset;          ///< outlives the call only
  std::int64_t global_batch_size;  ///< samples per step over all ranks
  std::uint64_t seed;              ///< of the run
};

/// A row of the table of samplers. A user's program adds rows to a copy of builtin_samplers().
struct SamplerRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `data`, beside the common ones
  /// @throws ConfigError, DataError  Not collective: each rank makes the same for itself
  std::function<Sampler(const Section& data, const SamplerRequest& request)> make;
};

/// The built-in samplers: default, infinite, repeat_factor, identity, class_balanced, aspect_ratio, blocks, torch.
const std::vector<SamplerRow>& builtin_samplers();

/// Makes what `data.sampler` names.
/// @throws ConfigError  unknown name, with the known ones; and whatever the row throws
Sampler make_sampler(const Section& data, const SamplerRequest& request,
                     const std::vector<SamplerRow>& samplers = builtin_samplers());

/// The keys of section `data` with those of these samplers.
KeySpecs data_keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers);

}  // namespace lockstep::data
