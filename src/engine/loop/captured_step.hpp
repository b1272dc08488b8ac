// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/run.hpp"
#include "models/layers/generators.hpp"

namespace lockstep::engine {

/// The facts that decide whether the steps of a run can be captured as a CUDA graph, equal on every rank.
struct CaptureFacts {
  bool is_on_gpu = true;
  bool has_lanes = false;
  bool uses_closure = false;        ///< the optimizer evaluates the loss several times
  bool has_parts = false;           ///< optim.part or strategy.separate
  bool has_captured_form = true;    ///< whether train.step_kind has one
  bool is_sharded = false;          ///< strategy.name=sharded, on several ranks
  bool has_fixed_hook_work = true;  ///< ddp.comm_hook: parallel::ChosenHook::is_recordable
  bool finds_unused = false;        ///< ddp.find_unused_parameters
  bool reads_gradients = false;     ///< a hook does
  bool times_sections = false;      ///< log.sections
  bool reports_times = false;       ///< ddp.report
  bool checks_writes = false;       ///< ddp.check_writes
};

/// Why steps are not captured: the end of a sentence that begins with "because". Empty = they are.
std::string reason_against_capture(const CaptureFacts& facts);

/// Steps with run.cuda_graphs: forward, backward, reduction and update are recorded once as CUDA graphs and launched
/// again for each following step.
///
/// The first steps run eagerly. Then the micro-batches of a step are recorded, each with memory of its own for its
/// batch; later batches are copied there. A step has one graph, or with several micro-batches up to three kinds of
/// graphs: the first micro-batch makes the gradients, others add to them, and the last one also reduces and updates.
/// Micro-batches between these that have equal shapes share a graph. Numbers that change, such as the learning rate,
/// are written to the memory of the device before each launch (optim::LiveNumbers). Steps that differ from the recorded
/// one run eagerly, and are recorded when they stay as they are. All ranks do the same in every step. Hooks are
/// notified of the events of a micro-batch after its launch.
class CapturedStep {
 public:
  /// Logs on rank 0, if steps are not captured, why.
  /// @param run         outlives the object
  /// @param reads_late  as StepContext::reads_late
  /// @param seed        seeds the generators of random numbers for a micro-batch of the step at hand
  CapturedStep(Run& run, bool reads_gradients, bool reads_late, std::function<void(StepEvent, const LastBatch&)> notify,
               std::function<void(std::int64_t part)> seed);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// Prepares a step, and records it if it is new. Unless has_begun afterwards, nothing was done: run it eagerly.
  /// Collective.
  /// @param batches, weights  of the micro-batches of this rank
  void begin(std::span<const batch::Batch> batches, std::span<const models::LossWeights> weights);
  /// Runs the micro-batches of the step, in order.
  parallel::StepResult run(std::int64_t part, const batch::Batch& batch, const models::LossWeights& weights);
  /// Whether micro-batches of a step that has begun are left.
  bool has_begun() const noexcept { return !parts_.empty(); }

  /// Why no step is captured any more; empty = steps are captured.
  const std::string& reason() const noexcept { return reason_; }

 private:
  struct Recording;
  class RecordingOptimizer;
  /// A micro-batch of the step at hand.
  struct QueuedPart {
    batch::Batch prepared;
    models::GeneratorStates draws;  ///< the states after `prepared`
    Recording* recording = nullptr;
  };

  void give_up(const std::string& reason);
  bool is_warm();
  bool is_usual(std::span<const models::LossWeights> weights);
  void prepare(std::span<const batch::Batch> batches);
  bool is_ready(std::span<const models::LossWeights> weights);
  Recording* recording_for(std::size_t part, const models::LossWeights& weights) const;
  bool fits(std::span<const models::LossWeights> weights);
  bool count_step();
  std::string why_unrecordable() const;
  bool record(std::span<const models::LossWeights> weights);
  std::string record_parts(std::span<const models::LossWeights> weights);
  std::string record_part(std::size_t part, const models::LossWeights& weights);
  void run_recorded_work(Recording& target);
  parallel::StepResult finish(const Recording& recording, const batch::Batch& batch,
                              const models::LossWeights& weights);
  /// The state that the recordings are valid for, in addition to the shapes of batches: memory and flags of the model.
  std::vector<std::uintptr_t> fingerprint() const;

  Run* run_;
  bool reads_late_;
  std::function<void(StepEvent, const LastBatch&)> notify_;
  std::function<void(std::int64_t part)> seed_;
  std::string reason_;
  std::vector<at::Tensor> watched_;              // parameters and buffers of the model
  parallel::HookMemory* hook_memory_ = nullptr;  // null = the communication hook, if there is one, has no state
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<std::uintptr_t> fingerprint_;  // theirs
  std::vector<QueuedPart> parts_;            // micro-batches of the step at hand
  std::int64_t hook_work_ = 0;               // HookMemory::work of the step before
  std::int64_t eager_steps_ = 0;             // since the last one that was launched
  std::int64_t recorded_steps_ = 0;
  bool is_unchecked_ = false;  // the recorded work has not been launched yet
};

}  // namespace lockstep::engine
