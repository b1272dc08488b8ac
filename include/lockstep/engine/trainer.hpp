// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/loader.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/nonfinite.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::engine {

struct RunBounds;

/// Where a run came from. It is stored in every checkpoint and decides nothing.
struct Origin {
  std::string run_id;            ///< 16 hexadecimal digits that no other run has
  std::string environment_json;  ///< of this start
  std::string parent_digest;     ///< of the checkpoint that this start went on from; empty for none
  std::string lineage;           ///< a line for each checkpoint that the run went on from, oldest first
};

/// The training loop: data, step, hooks, in the order that Hook tells. It owns no model and knows no file.
class Trainer {
 public:
  /// Collective: all ranks agree on the plan.
  /// @param sections  train, eval, data and sched are read
  /// @param strategy  prepared, else std::logic_error; outlives the trainer
  /// @param tables    what the step and the schedule's curves are chosen from; outlives the trainer
  Trainer(const Sections& sections, Strategy& strategy, data::Splits splits, const Tables& tables = builtin_tables());
  ~Trainer();

  /// @throws std::logic_error  another hook has a state of the same name
  void add_hook(Priority priority, std::unique_ptr<Hook> hook);
  void add_reporter(Reporter reporter) { reporters_.push_back(std::move(reporter)); }
  const std::vector<std::pair<Priority, std::unique_ptr<Hook>>>& hooks() const noexcept { return hooks_; }
  /// Gives a record to every reporter, on rank 0. Every rank remembers records of kind "eval": see measured.
  void report(const Record& record);
  /// Of the last step at which there was an evaluation.
  const Measured& measured() const noexcept { return measured_; }

  /// Runs to the end, or to an agreed stop. Collective.
  /// @throws NumericError  on every rank: what is trained is not finite, and train.nonfinite says to stop, or it stays
  ///                       so; and whatever data, model and hooks throw
  Outcome train();

  /// Asks for an end after the current step; any rank may, from a signal handler too.
  static void request_stop() noexcept { stop_requested_.store(true, std::memory_order_relaxed); }
  /// Whether this rank has asked for that.
  static bool is_stop_requested() noexcept { return stop_requested_.load(std::memory_order_relaxed); }
  /// Rank 0 asks that the coming step's report says is_save_due; ignored elsewhere.
  void request_save() { save_requested_ = true; }
  /// Rank 0 asks for Outcome::ended after the current step; ignored elsewhere. Stronger than request_stop.
  void request_end() { end_requested_ = true; }

  /// Rank 0 asks for Outcome::done after the current step; ignored elsewhere.
  void request_finish() { finish_requested_ = true; }
  /// This rank cannot go on: with the step at hand every rank throws the error of the lowest rank that said so. The
  /// first one counts.
  void fail(std::exception_ptr error) {
    if (!failure_) failure_ = std::move(error);
  }

  /// How a run goes back to its last checkpoint: restores this trainer; false when there is none. Collective. Without
  /// it a run does not go back.
  void set_roll_back(std::function<bool()> roll_back) { roll_back_ = std::move(roll_back); }
  /// Calls on_forward or on_loss of every hook, for evaluations.
  void tell(Moment moment, const LastBatch& last);

  /// What saves tells of it: a checkpoint is committed.
  /// @param seconds  from its snapshot to its commit
  void note_saved(std::int64_t step, double seconds);
  const Saves& saves() const noexcept { return saves_; }  ///< of this rank's knowledge: complete on rank 0

  Origin& origin() noexcept { return origin_; }
  Strategy& strategy() noexcept { return *strategy_; }
  const data::Splits& splits() const noexcept { return splits_; }
  const data::Sampler& sampler() const noexcept { return *sampler_; }
  const Progress& progress() const noexcept { return progress_; }
  EventStorage& events() noexcept { return events_; }
  /// Counts its steps from schedule_begin.
  schedule::Schedule& schedule() noexcept { return schedule_; }
  /// Its rules as they were given.
  const std::vector<std::string>& schedule_rules() const noexcept { return rules_; }
  /// The run as its rules see it.
  const schedule::RunLength& schedule_length() const noexcept { return schedule_length_; }
  /// Puts other rules in the place of the configured ones, for a run of that length.
  /// @throws ConfigError  as schedule::parse does; the old ones hold then
  void follow(std::vector<std::string> rules, const schedule::RunLength& length);
  /// What the schedule multiplies the first group's learning rate with in the step after `step` updates.
  double schedule_factor(std::int64_t step) const;
  /// The step at which the schedule began: 0, unless a resumed run began it anew.
  std::int64_t schedule_begin() const noexcept { return schedule_begin_; }
  /// Call before resume_at.
  void restart_schedule_at(std::int64_t step) noexcept { schedule_begin_ = step; }

  /// Continues from there: call before train.
  /// @param samples_in_epoch  samples of the current epoch that were trained on
  /// @throws CheckpointError  the position is not a step boundary of this global batch
  void resume_at(std::int64_t step, std::int64_t epoch, std::int64_t samples_in_epoch, std::int64_t samples);

 private:
  void plan();
  std::unique_ptr<data::Loader> open_loader() const;
  Outcome loop();
  void end_after_failure(std::size_t first, std::size_t begun) noexcept;
  bool go_back();
  StepReport run_step(data::Loader& loader);
  optim::UpdateReport run_micro_batch(const data::Batch& batch, std::int64_t part);
  void minimise(data::Loader& loader, StepReport& report);
  std::vector<double> parts_of_loss() const;
  double mean_loss(std::span<double> sums) const;
  /// What the ranks agreed on with a step.
  struct Agreement {
    std::optional<Outcome> outcome;  ///< the run is over
    bool goes_back = false;          ///< to its last checkpoint, instead of being advanced
  };
  Agreement agree(StepReport& report);
  bool judge(const StepReport& report);
  void tell_skipped() const;
  void advance();

  Strategy* strategy_;
  const Tables* tables_;
  data::Splits splits_;
  std::unique_ptr<data::Sampler> sampler_;
  data::LoaderOptions loader_options_;
  data::Share share_;             // of a global batch
  std::int64_t micro_batch_ = 0;  // samples, at most
  std::unique_ptr<RunBounds> bounds_;
  std::vector<std::string> rules_;  // of the schedule
  std::string rules_origin_;
  schedule::Schedule schedule_;
  schedule::RunLength schedule_length_;
  std::int64_t schedule_begin_ = 0;
  Progress progress_;
  bool save_requested_ = false;
  bool end_requested_ = false;
  bool finish_requested_ = false;
  std::exception_ptr failure_;
  TrainStep step_;
  std::function<void(Moment, const LastBatch&)> tell_;
  bool reads_gradients_ = false;  // a hook does
  NonfiniteHook* nonfinite_ = nullptr;
  std::function<bool()> roll_back_;
  Saves saves_;
  Measured measured_;
  Origin origin_;
  std::vector<double> losses_;  // of this rank's forwards in the step: of its lanes, or parts of the mean
  std::vector<std::pair<Priority, std::unique_ptr<Hook>>> hooks_;
  std::vector<Reporter> reporters_;
  EventStorage events_;

  static std::atomic<bool> stop_requested_;
};

}  // namespace lockstep::engine
