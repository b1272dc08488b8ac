// SPDX-License-Identifier: BSD-3-Clause
// The order of the loop's moments, its counters, and what happens when something fails.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "engine/measures/flop_counter.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace loop_test {

/// Two epochs of two steps each, one evaluation after both.
const Settings kTwoEpochs = {{"data.train_size", "24"},         {"data.val_size", "8"},    {"model.name", "mlp"},
                             {"train.global_batch_size", "12"}, {"train.max_epochs", "2"}, {"model.hidden", "8"},
                             {"eval.every", "2epochs"}};

/// Writes down every moment with the step at which it comes; fails where it is told to.
class DiaryHook : public Hook {
 public:
  DiaryHook(std::string name, std::vector<std::string>& diary, std::string fails_at = "")
      : name_(std::move(name)), diary_(&diary), fails_at_(std::move(fails_at)) {}
  void before_train(RunView& view) override { note(view, "before_train"); }
  void before_epoch(RunView& view) override { note(view, "before_epoch"); }
  void before_step(RunView& view) override { note(view, "before_step"); }
  void on_forward(RunView& view, const LastBatch& last) override {
    note(view, last.is_training ? "on_forward" : "evaluated");
    EXPECT_FALSE(last.output().requires_grad());
    EXPECT_TRUE(last.losses.empty());
  }
  void on_loss(RunView& view, const LastBatch& last) override {
    if (!last.is_training) return;
    note(view, "on_loss");
    ASSERT_EQ(last.losses.size(), 1U);
    EXPECT_EQ(last.losses[0].first, "loss");
    EXPECT_FALSE(last.losses[0].second.requires_grad());
    EXPECT_EQ(last.predictions().main().size(0), last.batch->target().size(0));
  }
  void on_backward(RunView& view, const LastBatch&) override { note(view, "on_backward"); }
  void on_update(RunView& view, const LastBatch&) override { note(view, "on_update"); }
  void before_agreement(RunView& view) override { note(view, "before_agreement"); }
  void after_step(RunView& view, const StepReport&) override { note(view, "after_step"); }
  void after_epoch(RunView& view) override { note(view, "after_epoch"); }
  void before_evaluation(RunView& view) override { note(view, "before_evaluation"); }
  void after_evaluation(RunView& view, const Measured& measured) override {
    note(view, "after_evaluation");
    EXPECT_EQ(measured.step, view.progress.step);
  }
  void between_steps(RunView& view, const StepReport&) override { note(view, "between_steps"); }
  void after_train(RunView& view, Outcome outcome) override {
    note(view, outcome == Outcome::failed ? "after_train failed" : "after_train");
  }

 private:
  void note(RunView& view, const std::string& moment) {
    diary_->push_back(name_ + moment + " " + std::to_string(view.progress.step));
    if (moment == fails_at_) throw NumericError(moment + " fails");
  }

  std::string name_;
  std::vector<std::string>* diary_;
  std::string fails_at_;
};

std::vector<std::string> step_of(const std::string& step, const std::string& next) {
  std::vector<std::string> moments;
  for (const char* moment :
       {"before_step ", "on_forward ", "on_loss ", "on_backward ", "on_update ", "before_agreement "}) {
    moments.push_back(moment + step);
  }
  moments.push_back("after_step " + next);
  return moments;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST(LoopTest, EventsComeInTheOrderOfHook) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  std::vector<std::string> diary;
  run.trainer.add_hook(Priority::low, std::make_unique<DiaryHook>("", diary));
  run.trainer.add_hook(evaluate_hook(run.sections));
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  std::erase_if(diary,
                [](const std::string& line) { return line.starts_with("evaluated"); });  // written by some ranks only

  std::vector<std::string> expected = {"before_train 0", "before_epoch 0"};
  append(expected, step_of("0", "1"));
  append(expected, {"between_steps 1"});
  append(expected, step_of("1", "2"));
  append(expected, {"after_epoch 2", "between_steps 2", "before_epoch 2"});
  append(expected, step_of("2", "3"));
  append(expected, {"between_steps 3"});
  append(expected, step_of("3", "4"));
  append(expected, {"after_epoch 4", "before_evaluation 4", "after_evaluation 4", "between_steps 4", "after_train 4"});
  EXPECT_EQ(diary, expected);
}

TEST(LoopTest, MicroBatchesNotifyForwardAndLossAndTheLastOneTheRest) {
  const mpi::Communicator world = mpi::Communicator::world();
  const std::int64_t share = 12 / world.size();
  SmallRun run(world, with(kTwoEpochs, {{"train.micro_batch", std::to_string((share + 1) / 2)}}));
  if (run.trainer.view().data.layout().micro_batches != 2) GTEST_SKIP() << "ranks with shares that do not halve";
  std::vector<std::string> diary;
  run.trainer.add_hook(Priority::low, std::make_unique<DiaryHook>("", diary));
  run.trainer.train();
  const auto count = [&](const std::string& line) { return std::count(diary.begin(), diary.end(), line); };
  EXPECT_EQ(count("on_forward 0"), 2);
  EXPECT_EQ(count("on_loss 0"), 2);
  EXPECT_EQ(count("on_backward 0"), 1);
  EXPECT_EQ(count("on_update 0"), 1);
}

// Lower bands first, equal ones in the order of registration; the same at every moment.
// An mlp multiplies each sample by every element of its matrices.
TEST(LoopTest, TheForwardOfAnMlpHasTwoOperationsPerWeight) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwelveSteps);
  std::int64_t weights = 0;
  for (const at::Tensor& parameter : run.model.wrapper->model().parameters()) {
    if (parameter.dim() == 2) weights += parameter.numel();
  }
  batch::Batch batch = run.splits.train->get(batch::draws_in_order(0, 5));
  const FlopCounter counter;
  run.model.wrapper->forward(batch);
  EXPECT_EQ(counter.count(), 2 * 5 * weights);
}

TEST(LoopTest, UtilizationIsInTheRecords) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwelveSteps);
  std::vector<double> utilization;
  std::vector<double> memory;
  run.trainer.add_reporter([&](const Record& record) {
    if (record.kind != "train") return;
    utilization.push_back(record.number("mfu").value_or(-1));
    memory.push_back(record.number("memory_mb").value_or(-1));
  });
  run.trainer.add_hook(utilization_hook(6, 1e12, at::kFloat));
  run.trainer.add_hook(log_hook(6));
  run.trainer.train();
  if (!world.is_root()) return;
  ASSERT_EQ(utilization.size(), 2U);
  for (const double each : utilization) EXPECT_GT(each, 0);
  for (const double each : memory) EXPECT_GT(each, 1);
}

TEST(LoopTest, RatesOfGroupsAreInTheRecordsIfTheyDiffer) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const char* const factor : {"1", "2"}) {
    SmallRun run(world, with(kTwelveSteps, {{"optim.paramwise", "bias_lr_mult=" + std::string(factor)}}));
    std::vector<std::pair<std::string, double>> rates;
    run.trainer.add_reporter([&](const Record& record) {
      for (const auto& [name, value] : record.values) {
        if (name.starts_with("lr/")) rates.emplace_back(name, record.number(name).value_or(-1));
      }
    });
    run.trainer.add_hook(log_hook(12));
    run.trainer.train();
    if (!world.is_root()) continue;
    std::vector<std::pair<std::string, double>> expected;
    if (std::string(factor) == "2") expected = {{"lr/rest", 0.01}, {"lr/lr*2", 0.02}};
    EXPECT_EQ(rates, expected);
  }
}

TEST(LoopTest, TheLossOfTheLogIsAMeanOverItsWindow) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const std::int64_t window : {1, 3, 100}) {
    SmallRun run(world, kTwelveSteps);
    std::vector<double> logged;
    run.trainer.add_reporter([&](const Record& record) {
      if (record.kind == "train") logged.push_back(record.number("loss").value_or(-1));
    });
    run.trainer.add_hook(log_hook(5, window));  // logs after steps 5, 10 and 12
    run.trainer.train();
    if (!world.is_root()) continue;
    ASSERT_EQ(logged.size(), 3U);
    std::size_t i = 0;
    for (const std::int64_t step : {5, 10, 12}) {
      const std::int64_t count = std::min(window, step);
      double sum = 0;
      for (std::int64_t s = step - count; s < step; ++s) sum += run.losses[static_cast<std::size_t>(s)];
      EXPECT_NEAR(logged[i++], sum / static_cast<double>(count), 1e-12) << "step " << step << ", window " << window;
    }
  }
}

TEST(LoopTest, HooksKeepOneOrder) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  std::vector<std::string> diary;
  run.trainer.add_hook(Priority::very_low, std::make_unique<DiaryHook>("d ", diary));
  run.trainer.add_hook(Priority::normal, std::make_unique<DiaryHook>("b ", diary));
  run.trainer.add_hook(Priority::normal, std::make_unique<DiaryHook>("c ", diary));
  run.trainer.add_hook(Priority::high, std::make_unique<DiaryHook>("a ", diary));
  run.trainer.train();
  ASSERT_EQ(diary.size() % 4, 0U);
  for (std::size_t i = 0; i < diary.size(); ++i) {
    EXPECT_EQ(diary[i].front(), "abcd"[i % 4]) << diary[i];
    EXPECT_EQ(diary[i].substr(2), diary[i - i % 4].substr(2));
  }
}

class WhereHook : public Hook {
 public:
  explicit WhereHook(std::vector<double>& seen) : seen_(&seen) {}
  void before_step(RunView& view) override { seen_->push_back(view.progress.where()); }

 private:
  std::vector<double>* seen_;
};

// training-loop.md 15.3
TEST(LoopTest, WhereIsThePartThatIsDone) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  std::vector<double> seen;
  run.trainer.add_hook(Priority::normal, std::make_unique<WhereHook>(seen));
  run.trainer.train();
  EXPECT_EQ(seen, (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(run.trainer.progress().where(), 1);
  EXPECT_EQ(run.trainer.progress().samples, 48);
  EXPECT_EQ(run.trainer.progress().epoch, 2);
}

std::string failure_of(SmallRun& run) {
  try {
    run.trainer.train();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// training-loop.md 3.2: after_train sees the step that failed, and the first error continues.
TEST(LoopTest, AfterTrainAlwaysComesAndMasksNothing) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const char* moment : {"before_epoch", "before_step", "on_forward", "on_loss", "on_backward", "on_update",
                             "before_agreement", "after_step", "after_epoch", "between_steps"}) {
    SmallRun run(world, kTwoEpochs);
    std::vector<std::string> diary;
    run.trainer.add_hook(Priority::high, std::make_unique<DiaryHook>("a ", diary, moment));
    run.trainer.add_hook(Priority::low, std::make_unique<DiaryHook>("b ", diary, "after_train failed"));
    run.trainer.add_hook(Priority::very_low, std::make_unique<DiaryHook>("c ", diary));
    EXPECT_EQ(failure_of(run), std::string(moment) + " fails");
    const std::string step = std::to_string(run.trainer.progress().step);
    ASSERT_GE(diary.size(), 3U);
    EXPECT_EQ(std::vector<std::string>(diary.end() - 3, diary.end()),
              (std::vector<std::string>{"a after_train failed " + step, "b after_train failed " + step,
                                        "c after_train failed " + step}));
    run.model.wrapper->reset_state();
  }
}

TEST(LoopTest, WhoHasNotBegunDoesNotEnd) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  std::vector<std::string> diary;
  run.trainer.add_hook(Priority::high, std::make_unique<DiaryHook>("a ", diary));
  run.trainer.add_hook(Priority::low, std::make_unique<DiaryHook>("b ", diary, "before_train"));
  run.trainer.add_hook(Priority::very_low, std::make_unique<DiaryHook>("c ", diary));
  EXPECT_EQ(failure_of(run), "before_train fails");
  EXPECT_EQ(diary, (std::vector<std::string>{"a before_train 0", "b before_train 0", "a after_train failed 0"}));
}

TEST(LoopTest, AFailureAtTheEndReachesThoseThatHaveNotEnded) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  std::vector<std::string> diary;
  run.trainer.add_hook(Priority::high, std::make_unique<DiaryHook>("a ", diary));
  run.trainer.add_hook(Priority::low, std::make_unique<DiaryHook>("b ", diary, "after_train"));
  run.trainer.add_hook(Priority::very_low, std::make_unique<DiaryHook>("c ", diary));
  EXPECT_EQ(failure_of(run), "after_train fails");
  EXPECT_EQ(std::vector<std::string>(diary.end() - 3, diary.end()),
            (std::vector<std::string>{"a after_train 4", "b after_train 4", "c after_train failed 4"}));
}

/// Says on one rank that it cannot continue.
class FailingRankHook : public Hook {
 public:
  void before_agreement(RunView& view) override {
    const mpi::Communicator& world = view.world;
    if (view.progress.step == 2 && world.rank() == world.size() - 1) {
      view.requests.fail(std::make_exception_ptr(DataError("shard 7", "is gone")));
    }
  }
};

TEST(LoopTest, AFailureOfOneRankIsEveryonesWithThatStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  run.trainer.add_hook(Priority::normal, std::make_unique<FailingRankHook>());
  EXPECT_NE(failure_of(run).find("shard 7"), std::string::npos);
  EXPECT_EQ(run.trainer.progress().step, 2);
}

class FinishingHook : public Hook {
 public:
  void before_agreement(RunView& view) override {
    if (view.progress.step == 1) view.requests.finish();
  }
};

TEST(LoopTest, ARunMayBeDoneBeforeItsLastStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEpochs);
  run.trainer.add_hook(Priority::normal, std::make_unique<FinishingHook>());
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  EXPECT_EQ(run.trainer.progress().step, 2);
}

class OfRankHook : public Hook {
 public:
  explicit OfRankHook(bool differs) : differs_(differs) {}
  void after_step(RunView& view, const StepReport&) override {
    const int rank = view.world.rank();
    view.events.put_of_rank("l1", 1 + 2.0 * rank);
    view.events.put_of_rank(differs_ && rank == 1 ? "l3" : "l2", 3 + 2.0 * rank);
  }

 private:
  bool differs_;
};

double number(const Record& record, const std::string& name) {
  for (const auto& [key, value] : record.values) {
    if (key == name) return std::get<double>(value);
  }
  throw std::out_of_range(name);
}

// training-loop.md 4.3: with two ranks l1 is 2, l2 is 4, and of times the longest counts. One record for each line of
// the log, late but none lost.
TEST(LoopTest, NumbersOfRanksComeTogether) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwoEpochs, {{"log.every", "1"}}));
  std::vector<Record> records;
  run.trainer.add_reporter([&](const Record& record) { records.push_back(record); });
  run.trainer.add_hook(Priority::highest, std::make_unique<OfRankHook>(false));
  run.trainer.add_hook(rank_events_hook(LogSettings::from(run.sections.at("log")).every, world));
  run.trainer.train();
  if (!world.is_root() || world.size() == 1) return;
  ASSERT_EQ(records.size(), 4U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    EXPECT_EQ(record.kind, "ranks");
    EXPECT_EQ(std::get<std::int64_t>(record.values.front().second), static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(number(record, "l1/mean"), world.size());
    EXPECT_EQ(number(record, "l2/mean"), 2 + world.size());
    EXPECT_EQ(number(record, "l1/min"), 1);
    EXPECT_EQ(number(record, "l1/max"), 2 * world.size() - 1);
    EXPECT_GE(number(record, "data_seconds/max"), number(record, "data_seconds/mean"));
    EXPECT_GE(number(record, "step_seconds/min"), number(record, "data_seconds/min"));
  }
}

TEST(LoopTest, RanksThatMeasureOtherThingsStopTogether) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwoEpochs, {{"log.every", "1"}}));
  run.trainer.add_hook(Priority::highest, std::make_unique<OfRankHook>(true));
  run.trainer.add_hook(rank_events_hook(LogSettings::from(run.sections.at("log")).every, world));
  const std::string failure = failure_of(run);
  if (world.size() == 1) return;
  EXPECT_NE(failure.find("ranks measured different values up to step"), std::string::npos) << failure;
}

}  // namespace loop_test
}  // namespace lockstep::engine
