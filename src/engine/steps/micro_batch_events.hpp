// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>

#include <functional>
#include <optional>

#include "engine/steps/perf_timer.hpp"

namespace lockstep::engine {

/// Notifies the hooks of the events of a micro-batch, and times its sections.
class MicroBatchEvents final : public parallel::StepObserver {
 public:
  using Notify = std::function<void(StepEvent, const LastBatch&)>;

  /// @param begun      what is known before the forward: the batch of the data set and the model
  /// @param notify     outlives the object, as does the optimizer
  /// @param optimizer  null in evaluations
  /// @param perf       null = sections are not timed
  MicroBatchEvents(LastBatch begun, const Notify& notify, const optim::BaseOptimWrapper* optimizer = nullptr,
                   PerfStats* perf = nullptr);

  void on_prepared(const batch::Batch& prepared) override;
  void on_forward(const batch::Outputs& outputs) override;
  void on_loss(const models::ParsedLosses& losses) override;
  void on_backward() override;
  void on_update() override;

 private:
  void note_loss_scale();

  LastBatch last_;
  const Notify* notify_;
  const optim::BaseOptimWrapper* optimizer_;
  PerfStats* perf_;
  bool completes_step_;
  std::optional<PerfScope> section_;  // the running one
};

}  // namespace lockstep::engine
