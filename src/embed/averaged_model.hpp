// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/registry.hpp>

#include <cstdint>
#include <memory>

#include "engine/setup/composition.hpp"

namespace lockstep::embed {

/// A second copy of a model in training, with the average of its weights at one step.
class AveragedModel {
 public:
  /// Takes the average of the weights of this step, which the run has (section `ema`). Collective.
  void update(const engine::Composition& trained, const Sections& sections, const engine::Registry& registry,
              const Task& task, std::int64_t step);

  bool is_there() const noexcept { return model_ != nullptr; }
  std::int64_t step() const noexcept { return step_; }  ///< -1 before the first update
  parallel::DistributedDataParallel& wrapper() const { return *model_->wrapper; }

 private:
  std::unique_ptr<engine::WrappedModel> model_;  // null = there was no update
  std::int64_t step_ = -1;
};

}  // namespace lockstep::embed
