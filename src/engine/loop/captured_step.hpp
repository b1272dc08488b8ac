// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/capture_policy.hpp"
#include "engine/loop/run.hpp"

namespace lockstep::engine {

/// Everything that the settings and hooks of a run mean for the capture of its steps. Collective.
CaptureFacts capture_facts(const Run& run, bool reads_gradients);

/// Steps with run.compile: forward, backward, reduction and update are recorded once as a CUDA graph and launched again
/// for each following step.
///
/// The first steps run eagerly. Then a step is recorded with memory of its own for the batch; later batches are copied
/// there. Numbers that change, such as the learning rate, are written to the memory of the device before each launch
/// (optim::LiveNumbers). Steps that differ from the recorded one run eagerly, and are recorded when they stay as they
/// are. All ranks do the same in every step. Hooks are notified of the events of a step after its launch.
class CapturedStep {
 public:
  /// Logs on rank 0, if steps are not captured, why. Collective.
  /// @param run         outlives the object
  /// @param reads_late  as StepContext::reads_late
  CapturedStep(Run& run, bool reads_gradients, bool reads_late,
               std::function<void(StepEvent, const LastBatch&)> notify);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// Runs the step of one micro-batch. Generators of random numbers are seeded before. Collective.
  /// @return  nullopt: nothing was done; run the step eagerly, after seeding again
  std::optional<parallel::StepResult> run(const batch::Batch& batch, const models::LossWeights& weights);

  /// Why no step is captured any more; empty = steps are captured.
  const std::string& reason() const noexcept { return reason_; }

 private:
  struct Recording;

  void give_up(const std::string& reason);
  void drop_recording() noexcept;
  bool is_warm();
  bool fits(const batch::Batch& prepared, const models::LossWeights& weights) const;
  bool record(const batch::Batch& prepared, const models::LossWeights& weights);
  void run_recorded_work();
  bool renew(const batch::Batch& prepared, const models::LossWeights& weights);
  parallel::StepResult finish(const batch::Batch& batch, const models::LossWeights& weights);
  /// The state that a recording is valid for, in addition to the shapes of the batch: memory and flags of the model.
  std::vector<std::uintptr_t> fingerprint() const;

  Run* run_;
  bool reads_late_;
  std::function<void(StepEvent, const LastBatch&)> notify_;
  std::string reason_;
  std::vector<at::Tensor> watched_;  // parameters and buffers of the model
  std::unique_ptr<Recording> recording_;
  std::int64_t eager_steps_ = 0;  // since the last one that was launched
  std::int64_t recordings_ = 0;
};

}  // namespace lockstep::engine
