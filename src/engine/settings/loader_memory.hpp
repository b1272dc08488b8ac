// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::engine {

/// The memory of the batches that a loader and the training hold on one rank.
struct LoaderMemory {
  std::int64_t batch_bytes = 0;
  std::int64_t prefetch = 0;  ///< batches that are prepared in advance
  std::int64_t in_use = 1;    ///< batches of the current step

  std::int64_t bytes() const { return batch_bytes * (prefetch + in_use); }
  /// Whether it is worth a line in the log.
  /// @param ranks  of the host
  bool is_large(int ranks) const { return bytes() * ranks >= 64'000'000; }
};

/// The tensors of a sample that a loader for a GPU or for the CPU loads.
/// @param prefers_bytes  as data::LoaderOptions
std::vector<data::Field> loaded_layout(const data::Dataset& dataset, bool prefers_bytes);

/// Why the batches of a GPU are float32 although data.output is `auto`, in one sentence; empty = they are uint8, or the
/// samples are not images.
/// @param mixes  train.mix is set
std::string float_output_text(const Section& data, const data::Dataset& train, bool mixes);

/// Bytes of a batch of `rows` samples.
std::int64_t batch_bytes(const std::vector<data::Field>& layout, std::int64_t rows);

/// The same with as many prepared batches as the available memory permits, and at least `min_prefetch`.
/// @param available  bytes for the loaders of all ranks of the host; none = not known
/// @param ranks      of the host
/// @throws ConfigError  the memory is not enough for min_prefetch
LoaderMemory fitted(LoaderMemory wanted, std::int64_t min_prefetch, std::optional<std::int64_t> available, int ranks);

/// Refuses evaluations whose batches do not fit into the memory of the host, before anything is read.
/// @param batch_bytes  of one batch of a rank
/// @param batches      that a rank holds at the same time
/// @param available    bytes for all ranks of the host; none = not known
/// @param ranks        of the host
/// @throws ConfigError  they do not fit
void require_evaluation_memory(std::int64_t batch_bytes, std::int64_t batches, std::optional<std::int64_t> available,
                               int ranks);

/// "the loader of a rank holds up to 5 batches of 38.5 MB (data.prefetch = 4): 192.5 MB, 2 ranks of a host 385.0 MB"
std::string loader_memory_text(const LoaderMemory& memory, int ranks);

}  // namespace lockstep::engine
