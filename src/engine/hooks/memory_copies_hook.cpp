// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "checkpoints/store/memory_slot.hpp"
#include "checkpoints/store/snapshot.hpp"
#include "core/system/status_line.hpp"
#include "core/text/duration.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/saving/partner_copies.hpp"
#include "mpi/process/topology.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

std::int64_t broadcast(const mpi::Communicator& world, std::int64_t value) {
  world.broadcast(std::span(&value, 1));
  return value;
}

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
    const mpi::Topology topology = mpi::Topology::of(run.world);
    is_first_of_host_ = topology.local_rank == 0;
    if (is_first_of_host_) remove_memory_checkpoints(folder_);
    return_to(run.progress.step);
    run.world.all_or_throw([&] {
      if (!run.world.is_root()) return;
      const std::string former = noted_memory_folder(directory_);
      if (!former.empty() && former != folder_) remove_memory_copies(directory_, former);
      if (every_ == 0) return;
      make_memory_folder(folder_);
      note_memory_folder(directory_, folder_);
    });
    if (every_ == 0) return;
    // Those who share the parameters of rank 0 copy a part each.
    writers_ = &run.wrapper.store().node_ranks();
    is_writer_ = writers_->all_reduce(run.world.rank(), mpi::Op::min) == 0;
    if (!has_partner_) return;
    if (topology.host_count > 1) {
      partner_ = std::make_unique<PartnerCopies>(run.world, topology.host_of_rank, folder_);
    } else if (run.world.is_root()) {
      log::warning("ckpt.partner has no effect: all ranks are on one host");
    }
  }

  void between_steps(RunView& run, const StepReport& report) override {
    const std::int64_t step = report.progress.step;
    if (step < last_step_) return_to(step);
    last_step_ = step;
    const bool is_due_now = is_due(step);
    if (!late_ && !is_due_now) return;
    const ScopedActivity activity(Activity::saving);
    if (is_due_now && is_automatic()) choose_next(run.world, step);
    const SteadyClock::time_point began = SteadyClock::now();
    if (late_) write(*std::exchange(late_, std::nullopt));
    if (is_due_now) copy(run, step);
    spent_s_ += seconds_since(began);
  }

  void after_train(RunView&, Outcome outcome) override {
    late_.reset();
    if (outcome == Outcome::failed) return;
    if (partner_) partner_->finish();
    // Each host can have got a copy to resume from.
    if (is_first_of_host_) remove_memory_copies(directory_, folder_);
  }

 private:
  struct Copy {
    std::int64_t step;
    checkpoints::Archive archive;
  };
  struct Choice {
    SteadyClock::time_point time;
    std::int64_t step;
  };

  /// The share of the time that copies take if their interval is chosen.
  static constexpr double kShare = 0.01;
  static constexpr std::int64_t kFirstInterval = 10;
  /// The first copies, one into each slot, take several times as long as all others.
  static constexpr int kCopiesIntoNewMemory = 2;
  static constexpr std::int64_t kMaxInterval = 10'000;
  /// A copy that is sent is also read, sent, received and written again.
  static constexpr double kPassesToPartner = 4;

  bool is_automatic() const { return every_ == SavingSettings::kAutomatic; }
  bool is_due(std::int64_t step) const { return is_automatic() ? step == due_ : every_ > 0 && step % every_ == 0; }

  /// The run goes on from `step`: later copies are of its past.
  void return_to(std::int64_t step) {
    if (is_first_of_host_) forget_later_copies(folder_, step);
    late_.reset();
    last_step_ = step;
    due_ = step + kFirstInterval;
    chosen_ = std::nullopt;
  }

  /// Chooses the step after this one at which the state is copied, by the time that the copy before has taken.
  void choose_next(const mpi::Communicator& world, std::int64_t step) {
    std::int64_t interval = kFirstInterval;
    const SteadyClock::time_point now = SteadyClock::now();
    if (chosen_ && copies_ > kCopiesIntoNewMemory) {
      const double step_s =
          (seconds_between(chosen_->time, now) - spent_s_) / static_cast<double>(step - chosen_->step);
      const double passes = partner_ ? 1 + kPassesToPartner : 1;
      const double steps = std::ceil(spent_s_ * passes / (kShare * step_s));
      interval = static_cast<std::int64_t>(std::clamp<double>(steps, 1, kMaxInterval));
    }
    chosen_ = Choice{now, step};
    spent_s_ = 0;
    due_ = step + broadcast(world, interval);
  }

  void copy(RunView& run, std::int64_t step) {
    ++copies_;
    Copy copy{step, capture_(is_writer_)};
    if (!is_writer_) return;
    // Copies from a GPU arrive while the next step is computed.
    if (run.device.is_cuda()) {
      late_ = Copy{step, snapshot_.copy(copy.archive)};
    } else {
      write(copy);
    }
  }

  /// Writes a copy into its slot. Collective over those who write.
  void write(const Copy& copy) {
    std::string path;
    std::string failure = attempt([&] {
      if (!writers_->is_root()) return;
      path = slot_for(folder_, copy.step);
      slot(path).begin(copy.archive);
    });
    path = writers_->broadcast(failure.empty() ? path : "");
    if (!path.empty()) {
      const checkpoints::FilePart part{static_cast<std::uint32_t>(writers_->rank()),
                                       static_cast<std::uint32_t>(writers_->size())};
      failure = attempt([&] { slot(path).fill(copy.archive, part); });
      if (!writers_->agree(failure.empty())) path.clear();
    }
    if (!path.empty() && writers_->is_root()) {
      slot(path).complete(copy.step);
      if (partner_) partner_->send(copy.step);
    }
    if (!failure.empty() && !has_warned_) {
      log::warning("the state could not be copied into memory: " + failure);
      has_warned_ = true;
    }
  }

  /// The error of an action, or "".
  static std::string attempt(const std::function<void()>& action) {
    try {
      action();
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }

  checkpoints::MemorySlot& slot(const std::string& path) { return slots_.try_emplace(path, path).first->second; }

  std::int64_t every_;
  bool has_partner_;
  std::string directory_;
  std::function<std::string()> run_id_;
  CaptureState capture_;
  std::string folder_;
  std::int64_t last_step_ = 0;
  std::int64_t due_ = 0;          // step of the next copy, if the interval is chosen
  std::optional<Choice> chosen_;  // the last choice
  int copies_ = 0;                // number of copies so far
  double spent_s_ = 0;            // time for copies since then
  bool is_first_of_host_ = false;
  const mpi::Communicator* writers_ = nullptr;
  bool is_writer_ = false;
  bool has_warned_ = false;
  std::map<std::string, checkpoints::MemorySlot> slots_;  // slots by path
  checkpoints::Snapshot snapshot_;
  std::optional<Copy> late_;  // a copy that is written after the next step
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
