// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/job_plan.hpp"
#include "engine/settings/builtin_registry.hpp"
#include "engine/settings/train_settings.hpp"
#include "parallel/store/ownership.hpp"

// A configuration without its number of ranks, and the plan of a job for a number of ranks.
namespace lockstep::engine {

/// The state of the optimizer for one parameter.
struct StateSpec {
  std::int64_t arrays = 0;         ///< arrays of the shape of the parameter, float32 copies included
  std::int64_t element_bytes = 4;  ///< bytes of an element of these arrays
  bool has_own_shapes = false;     ///< arrays have other shapes: the next two members state their bytes
  std::int64_t own_bytes = 0;
  std::int64_t own_memory_bytes = 0;  ///< each array rounded up to 64 bytes
};

/// The facts about a configuration that do not depend on the number of ranks.
struct Workload {
  std::vector<parallel::ParameterSpec> parameters = {};  ///< those that are trained, in the order of registration
  std::vector<StateSpec> states = {};                    ///< states by parameter
  /// Numbers of the parameters that are neighbors in memory: those of one part and type.
  std::vector<std::vector<std::size_t>> blocks = {};
  std::vector<parallel::Bucket> buckets = {};        ///< buckets of gradients, as planned before the first step
  std::vector<std::vector<std::size_t>> units = {};  ///< numbers of the parameters that shards divide together
  std::int64_t parameter_count = 0;                  ///< elements of all parameters
  std::int64_t parameter_bytes = 0;                  ///< all parameters, without padding
  std::int64_t frozen_bytes = 0;                     ///< parameters that are not trained
  std::int64_t buffer_bytes = 0;
  bool has_average = false;            ///< ema.kind is set
  bool owns_whole_parameters = false;  ///< the optimizer updates whole parameters
  std::string strategy = "auto";       ///< strategy.name
  int stage = 0;                       ///< strategy.stage of strategy sharded; else 0
  bool is_within_hosts = false;        ///< strategy.shard_within=host
  std::string backend = "auto";        ///< comm.backend
  std::string sharing = "auto";        ///< ddp.shared_parameters
  BatchSettings batch = {};
  std::string checkpoint_layout = "folder";
  std::int64_t checkpoint_writers = 0;  ///< ckpt.writers
  std::int64_t samples = 0;             ///< size of the training split
  std::int64_t sample_bytes = 0;        ///< a sample in a batch
  std::int64_t prefetch = 4;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::int64_t files = 0;                 ///< files of the samples; 0 = samples have no files of their own
  double file_bytes = 0;                  ///< bytes of these files
  bool is_sampled = false;                ///< file_bytes is estimated from some of the files
  std::vector<std::string> remarks = {};  ///< see RunPlan::remarks
};

/// Opens the data and outlines the model without memory. Not collective.
/// @throws ConfigError  what training would refuse, except for numbers of ranks
Workload workload_of(const Sections& sections, const Registry& registry);

/// Pure.
/// @param cache_bytes  last level of cache; 0 = unknown
/// @throws ConfigError  there are fewer ranks than hosts
JobPlan plan_job(const Workload& workload, const JobShape& shape, std::int64_t cache_bytes = 0);

/// Last level of cache of this machine, in bytes; 0 = unknown.
std::int64_t last_cache_bytes();

}  // namespace lockstep::engine
