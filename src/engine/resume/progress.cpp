// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "engine/resume/components.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class ProgressState : public Stateful {
 public:
  explicit ProgressState(Run& run) : run_(&run), seed_(static_cast<std::int64_t>(run.resources.draws.seed)) {}

  std::string name() const override { return "progress"; }

  void capture(const StateWriter& writer) override {
    const Progress& progress = run_->progress;
    writer.set("/", "step", progress.step);
    writer.set("/", "epoch", progress.epoch);
    writer.set("/", "samples_seen", progress.samples);
    writer.set(kSampler, "algorithm", run_->data.sampler().algorithm());
    writer.set(kSampler, "seed", seed_);
    writer.set(kSampler, "epoch", progress.epoch);
    writer.set(kSampler, "samples_in_epoch", progress.step_in_epoch * run_->data.sampler().global_batch_size());
    writer.set(kSampler, "dataset_length", train_data().size());
    writer.set(kSampler, "dataset_digest", static_cast<std::int64_t>(run_->data.train_digest()));
    const std::int64_t first_step = run_->updates.schedule.begin();
    writer.set(kSchedule, "last_step", progress.step);
    writer.set(kSchedule, "first_step", first_step);
    for (auto& [part, optimizer] : run_->view.parts) {
      const std::string group = part.empty() ? kSchedule : kSchedules + "/" + part;
      const optim::ParamGroup& first_group = optimizer.optimizer().groups().front();
      writer.set(group, "factor",
                 run_->updates.schedule.factor(std::max(first_step, progress.step - 1), first_group, part));
    }
  }

  void compare(const Archive& archive, const RestoreOptions& options, CompatibilityReport& report) override {
    if (options.resets_sampler) return;
    compare_data(archive, report);
    const std::string& algorithm = archive.text(kSampler, "algorithm");
    if (algorithm != run_->data.sampler().algorithm()) {
      add(report,
          "its samples were selected by " + algorithm + ", those of the run by " + run_->data.sampler().algorithm());
    }
    const std::int64_t seed = archive.integer(kSampler, "seed");
    if (seed != seed_) add(report, "its run.seed is " + std::to_string(seed));
  }

  void restore(const Archive& archive, const RestoreOptions& options) override {
    run_->view.world.all_or_throw([&] {
      const std::int64_t step = archive.integer("/", "step");
      const bool is_reset = options.resets_sampler;
      run_->updates.schedule.restart_at(options.resets_sched ? step : archive.integer(kSchedule, "first_step"));
      run_->resume_at(step, is_reset ? 0 : archive.integer(kSampler, "epoch"),
                      is_reset ? 0 : archive.integer(kSampler, "samples_in_epoch"),
                      archive.integer("/", "samples_seen"));
    });
  }

  Reproducibility reproducibility(const Archive& archive, const RestoreOptions& options) override {
    if (options.resets_sched || options.resets_sampler) return incomplete_state();
    const std::int64_t batch = run_->data.sampler().global_batch_size();
    const std::string schedule = kHooks + "/schedule";
    const std::int64_t stored =
        archive.has_attribute(schedule, "samples_per_step") ? archive.integer(schedule, "samples_per_step") : 0;
    const bool is_inside = archive.integer(kSampler, "samples_in_epoch") % batch != 0;
    if (!is_inside && (stored == 0 || stored == batch)) return {};
    return {Reproducibility::Degree::statistical, "train.global_batch_size differs"};
  }

 private:
  const data::Dataset& train_data() const { return *run_->data.splits().train; }

  static void add(CompatibilityReport& report, const std::string& text) {
    report.add({.kind = MismatchKind::data, .text = text, .remedies = {Remedy::reset_sampler}});
  }

  void compare_data(const Archive& archive, CompatibilityReport& report) const {
    const std::int64_t length = archive.integer(kSampler, "dataset_length");
    if (length != train_data().size()) {
      add(report, "it was trained on " + std::to_string(length) + " samples, but the data of the run have " +
                      std::to_string(train_data().size()));
    } else if (archive.integer(kSampler, "dataset_digest") != static_cast<std::int64_t>(run_->data.train_digest())) {
      add(report, "it was trained on different data of the same length");
    }
  }

  Run* run_;
  std::int64_t seed_;
};

}  // namespace

std::shared_ptr<Stateful> progress_state(Run& run) { return std::make_shared<ProgressState>(run); }

}  // namespace lockstep::engine
