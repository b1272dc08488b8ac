// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <utility>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

HookReads reads_of(const Callbacks& callbacks) {
  if (callbacks.reads) return *callbacks.reads;
  return callbacks.after_step || callbacks.between_steps ? HookReads() : HookReads::nothing();
}

template <class Function, class... Arguments>
void call(const Function& function, Arguments&&... arguments) {
  if (function) function(std::forward<Arguments>(arguments)...);
}

class CallbackHook : public Hook {
 public:
  explicit CallbackHook(Callbacks callbacks)
      : Hook(reads_of(callbacks), callbacks.states), call_(std::move(callbacks)) {}

  void before_train(RunView& run) override { call(call_.before_train, run); }
  void before_epoch(RunView& run) override { call(call_.before_epoch, run); }
  void before_step(RunView& run) override { call(call_.before_step, run); }
  void on_forward(RunView& run, const LastBatch& batch) override { call(call_.on_forward, run, batch); }
  void on_loss(RunView& run, const LastBatch& batch) override { call(call_.on_loss, run, batch); }
  void on_backward(RunView& run, const LastBatch& batch) override { call(call_.on_backward, run, batch); }
  void on_update(RunView& run, const LastBatch& batch) override { call(call_.on_update, run, batch); }
  void before_agreement(RunView& run) override { call(call_.before_agreement, run); }
  void on_measured(RunView& run, const StepReport& report) override { call(call_.on_measured, run, report); }
  void after_step(RunView& run, const StepReport& report) override { call(call_.after_step, run, report); }
  void after_epoch(RunView& run) override { call(call_.after_epoch, run); }
  void between_steps(RunView& run, const StepReport& report) override { call(call_.between_steps, run, report); }
  void before_evaluation(RunView& run) override { call(call_.before_evaluation, run); }
  void after_evaluation(RunView& run, const Measured& values) override { call(call_.after_evaluation, run, values); }
  void before_save(RunView& run) override { call(call_.before_save, run); }

  void after_train(RunView& run, Outcome outcome) override {
    const Callbacks last = std::exchange(call_, {});
    call(last.after_train, run, outcome);
  }

 private:
  Callbacks call_;
};

}  // namespace

std::unique_ptr<Hook> callback_hook(Callbacks callbacks) {
  return std::make_unique<CallbackHook>(std::move(callbacks));
}

PrioritizedHook artifacts_hook(const std::function<void(EventStorage&)>& visit) {
  constexpr std::size_t kMaxPictures = 4096;  // limit for each kind of picture, between two steps
  return {Priority::below_normal,
          callback_hook({.before_train = [](RunView& run) { run.events.keep_pictures(kMaxPictures); },
                         .after_step = [visit](RunView& run, const StepReport&) { visit(run.events); },
                         .between_steps = [visit](RunView& run, const StepReport&) { visit(run.events); },
                         .after_train = [visit](RunView& run, Outcome) { visit(run.events); },
                         .reads = HookReads::nothing()})};
}

PrioritizedHook ddp_report_hook(const std::function<void(const parallel::DdpReport&)>& on_report) {
  const auto report = [on_report](RunView& run, Outcome outcome) {
    if (outcome == Outcome::failed) return;
    const parallel::DdpReport all_ranks = run.wrapper.report();
    if (run.world.is_root() && on_report) on_report(all_ranks);
  };
  return {Priority::very_low, callback_hook({.after_train = report})};
}

PrioritizedHook teacher_hook(const std::string& digest) {
  const auto save = [digest](checkpoints::Archive& archive, const std::string& group) {
    archive.set(group, "digest", digest);
  };
  const auto load = [digest](const checkpoints::Archive& archive, const std::string& group) {
    if (archive.text(group, "digest") == digest) return;
    throw CheckpointError(archive.origin(), group,
                          "the run had a teacher with other weights; set distill.from to the same weights, or start a "
                          "new run with init.from");
  };
  return {Priority::normal, callback_hook({.states = {hook_state("teacher", save, load)}})};
}

}  // namespace lockstep::engine
