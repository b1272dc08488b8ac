// SPDX-License-Identifier: BSD-3-Clause
// What an evaluation of fields leaves to be looked at.
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/evaluation/map_view.hpp"
#include "engine/settings/log_settings.hpp"
#include "metrics/field_maps.hpp"

namespace lockstep::engine {

/// The pictures of chosen channels of fields: input, target, prediction and error of the first samples, the mean error
/// and the root mean square error at each point, and the spectra of prediction and target. 1-dimensional fields are
/// lines, and the others maps as MapView draws them. Collected on all ranks; the results do not depend on their number.
class FieldViews {
 public:
  FieldViews() = default;  ///< collects nothing
  /// Collects nothing unless the task is a regression of fields.
  /// @throws ConfigError  the settings name a channel that the targets do not have, or channels of a task without
  /// fields
  FieldViews(const Task& task, const LogSettings& settings);

  bool is_used() const noexcept { return !channels_.empty(); }
  /// Counts a batch after its forward pass. Batches with other outputs or targets than fields are left out.
  void add(const LastBatch& batch);
  /// Brings everything together. Collective, unless it is not used.
  void gather(mpi::Collectives& collectives);
  /// Puts pictures and tables for charts into `events`.
  /// @param dataset  has the names of the samples
  void put_in(EventStorage& events, const data::Dataset& dataset) const;

 private:
  /// A channel that is shown.
  struct ShownChannel {
    std::string name;
    std::string unit;
    std::int64_t target = 0;  ///< number among the channels of the targets
    std::int64_t input = -1;  ///< number of the newest input with the same values; -1 = none
    metrics::ErrorMap errors = metrics::ErrorMap();
    std::vector<metrics::ExactSum> target_power = {};
    std::vector<metrics::ExactSum> prediction_power = {};
  };
  metrics::Grid grid_of(const at::Tensor& field) const;
  void put_sample(EventStorage& events, std::size_t sample, std::size_t channel, const std::string& title) const;
  void put_errors(EventStorage& events, const ShownChannel& channel) const;
  void put_spectrum(EventStorage& events, const ShownChannel& channel) const;
  std::vector<double> coordinates(std::size_t size) const;

  std::vector<ShownChannel> channels_;
  std::vector<std::int64_t> space_;
  std::string axis_;                 // name of the last axis
  std::vector<double> coordinates_;  // points along the last axis; empty = unknown
  MapView view_;
  bool masks_inputs_ = false;         // whether gaps of inputs have been replaced by numbers
  std::int64_t target_channels_ = 0;  // number of channels of the targets
  std::int64_t max_samples_ = 0;
  metrics::Grid shown_;          // grid of the samples that are shown, without values
  metrics::Grid cells_;          // grid of the errors, without values
  std::size_t shown_size_ = 1;   // points of a cell along each axis
  std::size_t errors_size_ = 1;  // the same
  std::int64_t count_ = 0;       // samples that were counted
  metrics::Samples kept_;        // outputs: input and prediction of each channel; targets
};

}  // namespace lockstep::engine
