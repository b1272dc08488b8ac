// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "checkpoints/store/store.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/saving/checkpoint_saver.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/saving/partner_copies.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

/// A copy that is being written when a host fails is lost: the one before it is there, too.
constexpr std::int64_t kKept = 2;

class MemoryCopiesHook : public Hook {
 public:
  MemoryCopiesHook(std::int64_t every, bool has_partner, std::string directory, std::function<std::string()> run_id,
                   CaptureState capture)
      : Hook({.report = [this](const Progress& progress) { return is_due(progress.step); }}),
        every_(every),
        has_partner_(has_partner),
        directory_(std::move(directory)),
        run_id_(std::move(run_id)),
        capture_(std::move(capture)) {}

  void before_train(RunView& run) override {
    folder_ = memory_folder(run_id_());
    run.world.all_or_throw([&] {
      if (!run.world.is_root()) return;
      const std::string former = noted_memory_folder(directory_);
      if (!former.empty() && former != folder_) remove_memory_copies(directory_, former);
      if (every_ == 0) return;
      make_memory_folder(folder_);
      remove_except(run.progress.step);
      note_memory_folder(directory_, folder_);
    });
    if (every_ == 0) return;
    saver_ = std::make_unique<CheckpointSaver>(run.world, SaverOptions{.directory = folder_,
                                                                       .is_single_file = true,
                                                                       .retention = {.keep_last = kKept},
                                                                       .is_quiet = true,
                                                                       .max_failures = kNever});
    const mpi::Topology topology = mpi::Topology::of(run.world);
    if (!has_partner_) return;
    if (topology.host_count > 1) {
      partner_ = std::make_unique<PartnerCopies>(run.world, topology.host_of_rank, folder_, kKept);
    } else if (run.world.is_root()) {
      log::warning("ckpt.partner has no effect: all ranks are on one host");
    }
  }

  void between_steps(RunView& run, const StepReport& report) override {
    if (!saver_) return;
    saver_->poll();
    if (partner_ && saver_->saved_step() > sent_) {
      sent_ = saver_->saved_step();
      partner_->send(sent_);
    }
    const std::int64_t step = report.progress.step;
    if (!is_due(step)) return;
    // A run that has returned to an earlier checkpoint does steps again, and their copies are others.
    if (step <= copied_) {
      saver_->finish();
      run.world.all_or_throw([&] {
        if (run.world.is_root()) remove_except(-1);
      });
      sent_ = -1;
    }
    copied_ = step;
    saver_->save(step, true, [&] { return capture_(saver_->is_writer()); });
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    if (saver_) saver_->finish();
    saver_.reset();
    if (partner_) partner_->finish();
    // Each host can have got a copy to resume from.
    if (mpi::Topology::of(run.world).local_rank == 0) remove_memory_copies(directory_, folder_);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  bool is_due(std::int64_t step) const { return every_ > 0 && step % every_ == 0; }

  /// Removes the copies of other steps, which this start may write again.
  void remove_except(std::int64_t step) const {
    for (const std::int64_t other : checkpoints::list(folder_)) {
      if (other != step || step == 0) checkpoints::remove(checkpoints::checkpoint_of(folder_, other));
    }
  }

  std::int64_t every_;
  bool has_partner_;
  std::string directory_;
  std::function<std::string()> run_id_;
  CaptureState capture_;
  std::string folder_;
  std::int64_t copied_ = -1;
  std::int64_t sent_ = -1;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<PartnerCopies> partner_;
};

}  // namespace

PrioritizedHook memory_copies_hook(const SavingSettings& settings, std::string directory,
                                   std::function<std::string()> run_id, CaptureState capture) {
  return {Priority::lowest,
          std::make_unique<MemoryCopiesHook>(settings.memory_every, settings.has_partner, std::move(directory),
                                             std::move(run_id), std::move(capture))};
}

}  // namespace lockstep::engine
