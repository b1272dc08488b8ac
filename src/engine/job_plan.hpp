// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The exact numbers of a job with any number of ranks. See engine/workload.hpp for how they are computed.
namespace lockstep::engine {

/// The size of a job. Consecutive ranks run on one host; the first hosts have one rank more if there are more ranks
/// than the hosts have in equal parts.
struct JobShape {
  int ranks = 1;
  int hosts = 1;  ///< number of hosts; in [1, ranks]

  int ranks_of(int host) const;
  int host_of(int rank) const;
  int position_of(int rank) const;  ///< position among the ranks of its host
};

/// Memory by kind, in bytes.
struct HeldBytes {
  std::int64_t parameters = 0;  ///< trained parameters
  std::int64_t gradients = 0;   ///< memory of buckets, of slices or, with one rank, gradients during a step
  std::int64_t state = 0;       ///< optimizer state
  std::int64_t average = 0;     ///< average of the weights
  std::int64_t buffers = 0;     ///< buffers, and parameters that are not trained
  std::int64_t batches = 0;     ///< batches that the loader and the step hold
  int sharers = 1;              ///< ranks of the host that share one copy of parameters, state and average

  /// Bytes for one rank if what is shared is divided evenly.
  std::int64_t per_rank() const { return (parameters + state + average) / sharers + gradients + buffers + batches; }
  bool operator==(const HeldBytes&) const = default;
};

/// The part of one rank in a job.
struct PlannedRank {
  int rank = 0;
  int host = 0;
  std::int64_t samples = 0;           ///< samples of a global batch; can be 0
  std::int64_t micro_batches = 0;     ///< forward passes per step; with lanes, the lanes of this rank
  std::int64_t micro_batch_size = 0;  ///< maximum number of samples per forward pass
  std::int64_t updated = 0;           ///< elements that it updates
  std::int64_t checkpoint_bytes = 0;  ///< bytes of a checkpoint that this rank writes
  HeldBytes held = {};
};

struct JobPlan {
  JobShape shape = {};
  std::string strategy = {};                    ///< "single", "ddp" or "sharded"
  std::string backend = {};                     ///< backend on CPUs
  std::vector<std::int64_t> bucket_bytes = {};  ///< buckets of gradients, in the order of reduction
  std::vector<PlannedRank> ranks = {};          ///< the first, a middle one and the last, each once
  std::int64_t model_bytes = 0;                 ///< parameters and buffers in a checkpoint
  std::int64_t state_bytes = 0;                 ///< optimizer state and average in a checkpoint
  std::int64_t writers = 1;                     ///< ranks that write a checkpoint
  std::int64_t host_checkpoint_bytes = 0;       ///< maximum that the ranks of one host write
  std::int64_t host_bytes = 0;                  ///< memory of the first host
  std::vector<std::string> warnings = {};

  std::int64_t checkpoint_bytes() const { return model_bytes + state_bytes; }
};

}  // namespace lockstep::engine
