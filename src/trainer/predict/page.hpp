// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/evaluation/map_view.hpp"
#include "engine/evaluation/predictions.hpp"
#include "trainer/predict/settings.hpp"

namespace lockstep::trainer {

/// The samples that the page of predict.html shows. Each rank keeps as many as the page can have, and the root chooses
/// among those of all ranks: the page does not depend on the number of ranks.
class PageSamples {
 public:
  PageSamples(const PredictSettings& settings, Task task, const data::Dataset& dataset);

  /// @param given  the batch of these predictions; samples without an image are shown as text
  void add(const engine::BatchPredictions& predictions, const batch::Batch& given);

  /// The page, on the root. Collective.
  /// @param facts  rows of the table at the top
  std::string page(const mpi::Communicator& world, std::vector<std::vector<std::string>> facts) const;

 private:
  struct Sample {
    double rank = 0;  ///< the highest ones are shown
    std::int64_t index = 0;
    bool is_wrong = false;
    std::string caption = {};
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::string png = {};  ///< base64
  };

  /// The number that a sample is sorted by.
  struct Score {
    double error = -1;       ///< -1 = there is no target
    double uncertainty = 0;  ///< uncertainty in [0, 1]
    bool is_wrong = false;
  };

  Score score_of(const engine::BatchPredictions& predictions, std::int64_t i) const;
  double rank_of(const Score& score, std::int64_t index) const;
  std::string caption_of(const engine::BatchPredictions& predictions, std::int64_t i) const;
  static bool is_before(const Sample& a, const Sample& b);

  PredictSettings settings_;
  Task task_;
  engine::MapView view_;
  const data::Dataset* dataset_;
  std::vector<Sample> samples_;  // sorted
  std::int64_t labeled_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace lockstep::trainer
