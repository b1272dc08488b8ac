// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/train_settings.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <limits>

#include "core/text/duration.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::engine {

namespace {

void require_lanes(const BatchSettings& settings, int world_size) {
  const std::int64_t lanes = settings.lanes.value;
  const std::int64_t global_batch = settings.global_batch_size.value;
  if (global_batch % lanes != 0) {
    throw ConfigError(settings.lanes.cite + ": " + std::to_string(global_batch) +
                      " samples (train.global_batch_size) cannot be divided into " + std::to_string(lanes) +
                      " lanes of equal size");
  }
  if (lanes < world_size) {
    throw ConfigError(settings.lanes.cite + ": " + std::to_string(lanes) + " lanes are not enough for " +
                      std::to_string(world_size) + " ranks");
  }
  const std::int64_t max_size = settings.micro_batch.value;
  if (max_size != 0 && max_size < global_batch / lanes) {
    throw ConfigError(settings.micro_batch.cite + ": a lane is one forward pass of " +
                      std::to_string(global_batch / lanes) + " samples; raise train.lanes for smaller ones");
  }
}

BatchLayout layout_by_lanes(const BatchSettings& settings, int rank, int world_size) {
  require_lanes(settings, world_size);
  const std::int64_t lanes = settings.lanes.value;
  const std::int64_t global_batch = settings.global_batch_size.value;
  const mpi::LaneTree tree = mpi::LaneTree::even(static_cast<int>(lanes), world_size);
  const std::int64_t first = tree.first_lane(rank);
  const std::int64_t own_lanes = tree.first_lane(rank + 1) - first;
  const std::int64_t size = global_batch / lanes;
  return {.global_batch_size = global_batch,
          .micro_batches = own_lanes,
          .micro_batch_size = size,
          .lanes = lanes,
          .first_lane = first,
          .share = {first * size, own_lanes * size}};
}

std::int64_t passes(std::int64_t samples, std::int64_t max_size) { return (samples + max_size - 1) / max_size; }

BatchLayout layout_by_micro_batches(const BatchSettings& settings, int rank, int world_size,
                                    const std::string& common_passes) {
  const std::int64_t global_batch = settings.global_batch_size.value;
  if (global_batch < world_size) {
    throw ConfigError(settings.global_batch_size.cite + ": " + std::to_string(global_batch) +
                      " samples are not enough for " + std::to_string(world_size) + " ranks");
  }
  const data::Share share = data::share_of(global_batch, rank, world_size);
  const std::int64_t largest_share = data::share_of(global_batch, 0, world_size).count;
  const std::int64_t max_size = settings.micro_batch.value == 0 ? largest_share : settings.micro_batch.value;
  BatchLayout layout{.global_batch_size = global_batch,
                     .micro_batches = passes(share.count, max_size),
                     .micro_batch_size = std::min(max_size, share.count),
                     .share = share};
  if (common_passes.empty()) return layout;
  layout.micro_batches = passes(largest_share, max_size);
  if (max_size == 1 && global_batch % world_size != 0) {
    throw ConfigError(settings.micro_batch.cite + ": with 1 sample per forward pass, ranks have different numbers of " +
                      "forward passes, but " + common_passes + " requires equal numbers; use train.micro_batch=2, or " +
                      "a train.global_batch_size that " + std::to_string(world_size) + " ranks divide");
  }
  return layout;
}

}  // namespace

KeySpecs BatchSettings::keys() {
  return keys::titled(
      "Batch size, length, precision and step of the training",
      {
          keys::integer("train.global_batch_size", "48", "Samples per step over all ranks", 1, 1 << 30),
          keys::integer("train.micro_batch", "0",
                        "Maximum number of samples per forward pass and rank (gradient accumulation), to limit memory. "
                        "0 = unlimited",
                        0, 1 << 30),
          keys::integer(
              "train.lanes", "0",
              "Number of lanes: equal parts of a global batch that are summed by a fixed tree, so that results "
              "are bitwise equal on any number of ranks up to this. 0 = disabled",
              0, 4096),
      });
}

BatchSettings BatchSettings::from(const Section& train) {
  return {.global_batch_size = cited_integer(train, "global_batch_size"),
          .micro_batch = cited_integer(train, "micro_batch"),
          .lanes = cited_integer(train, "lanes")};
}

BatchLayout layout_of(const BatchSettings& settings, int rank, int world_size, const std::string& common_passes) {
  return settings.lanes.value > 0 ? layout_by_lanes(settings, rank, world_size)
                                  : layout_by_micro_batches(settings, rank, world_size, common_passes);
}

KeySpecs RunBounds::keys() {
  KeySpec max_epochs = keys::integer(
      "train.max_epochs", "auto",
      "Maximum number of epochs. 0 = unlimited; auto = 5, or unlimited if train.max_steps is set", 0, 1e9);
  max_epochs.readers = {.selectors = {"train.max_steps"}, .defaults = {{"0", "5"}}, .are_all = true, .otherwise = "0"};
  return {keys::integer("train.max_steps", "0", "Maximum number of steps. 0 = unlimited", 0, kMaxSteps), max_epochs};
}

RunBounds RunBounds::from(const Section& train) {
  const RunBounds bounds{.max_steps = train.integer("max_steps"), .max_epochs = train.integer("max_epochs")};
  if (bounds.max_steps != 0 || bounds.max_epochs != 0) return bounds;
  throw ConfigError("train.max_steps and train.max_epochs are both 0; set at least one of them");
}

KeySpec time_limit_key() {
  return keys::text("train.time_limit", "",
                    "Time limit in seconds or as H:MM:SS, measured from the start. The run saves a checkpoint before "
                    "the limit and exits with 75. If empty, the limit of the Slurm job applies");
}

std::optional<double> time_limit_of(const Section& train) {
  const std::string& wanted = train.text("time_limit");
  const auto seconds = parse_duration(wanted);
  if (wanted.empty() || (seconds && *seconds > 0)) return seconds;
  throw ConfigError(train.cite("time_limit") + ": '" + wanted +
                    "' is not a duration; use seconds, H:MM:SS (for example 23:30:00), or D-HH:MM:SS");
}

std::int64_t RunBounds::total_steps(const Progress& progress) const {
  constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  const std::int64_t left_in_epochs = (max_epochs - progress.epoch) * progress.steps_per_epoch - progress.step_in_epoch;
  const std::int64_t by_epochs = max_epochs == 0 ? kEndless : progress.step + std::max<std::int64_t>(0, left_in_epochs);
  return std::min(max_steps == 0 ? kEndless : max_steps, by_epochs);
}

}  // namespace lockstep::engine
