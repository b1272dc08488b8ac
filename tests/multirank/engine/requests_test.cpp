// SPDX-License-Identifier: BSD-3-Clause
// What rank 0 asks for, all ranks hear of with the same step.
#include <gtest/gtest.h>

#include "small_run.hpp"

namespace lockstep::engine {
namespace requests_test {

const Settings kSettings = {{"data.train_size", "48"},
                            {"data.val_size", "8"},
                            {"model.name", "mlp"},
                            {"train.global_batch_size", "12"},
                            {"train.max_steps", "6"}};

using Request = void (RunRequests::*)() noexcept;

/// Asks at one step, on one rank; notes the steps whose report says that a save is due.
class AskingHook : public Hook {
 public:
  AskingHook(std::int64_t step, int rank, Request request, std::vector<std::int64_t>& saves)
      : step_(step), rank_(rank), request_(request), saves_(&saves) {}
  void before_agreement(RunView& view) override {
    if (view.progress.step + 1 == step_ && view.world.rank() == rank_) (view.requests.*request_)();
  }
  void after_step(RunView&, const StepReport& report) override {
    if (report.is_save_due) saves_->push_back(report.progress.step);
  }

 private:
  std::int64_t step_;
  int rank_;
  Request request_;
  std::vector<std::int64_t>* saves_;
};

struct Ending {
  Outcome outcome;
  std::int64_t step;
  std::vector<std::int64_t> saves;
};

Ending run_asking(int rank, std::vector<std::pair<std::int64_t, Request>> requests) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kSettings);
  Ending ending{};
  std::vector<std::int64_t> ignored;
  for (const auto& [step, request] : requests) {
    auto& saves = &request == &requests.front().second ? ending.saves : ignored;
    run.trainer.add_hook(Priority::low, std::make_unique<AskingHook>(step, rank, request, saves));
  }
  ending.outcome = run.trainer.train();
  ending.step = run.trainer.progress().step;
  return ending;
}

TEST(RequestsTest, RankZerosWishesReachAllRanksWithThatStep) {
  const Ending ending = run_asking(0, {{2, &RunRequests::save}, {4, &RunRequests::save}});
  EXPECT_EQ(ending.outcome, Outcome::done);
  EXPECT_EQ(ending.saves, (std::vector<std::int64_t>{2, 4}));
}

TEST(RequestsTest, AnEndIsNoSaveAndASaveIsNoEnd) {
  const Ending ended = run_asking(0, {{3, &RunRequests::end}});
  EXPECT_EQ(ended.outcome, Outcome::ended);
  EXPECT_EQ(ended.step, 3);
  EXPECT_TRUE(ended.saves.empty());
  const Ending both = run_asking(0, {{3, &RunRequests::end}, {3, &RunRequests::save}});
  EXPECT_EQ(both.outcome, Outcome::ended);
  EXPECT_EQ(both.saves, std::vector<std::int64_t>{3});
}

TEST(RequestsTest, AnEndAtTheLastStepIsDone) {
  EXPECT_EQ(run_asking(0, {{6, &RunRequests::end}}).outcome, Outcome::done);
}

TEST(RequestsTest, OtherRanksWishesAreIgnored) {
  const int last = mpi::Communicator::world().size() - 1;
  if (last == 0) GTEST_SKIP() << "needs two ranks";
  const Ending ending = run_asking(last, {{2, &RunRequests::save}, {3, &RunRequests::end}});
  EXPECT_EQ(ending.outcome, Outcome::done);
  EXPECT_TRUE(ending.saves.empty());
}

TEST(RequestsTest, KnowsTheLastSaveAndTheLongest) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kSettings);
  EXPECT_EQ(run.trainer.view().saves.last_step, -1);
  run.trainer.view().saves.note(10, 2.5);
  run.trainer.view().saves.note(20, 1.5);
  EXPECT_EQ(run.trainer.view().saves.last_step, 20);
  EXPECT_EQ(run.trainer.view().saves.longest_seconds, 2.5);
}

// 2 saves + 1 step + 5 % of the limit, at most 30 s; twice the margin where no save has been measured.
TEST(RequestsTest, TheLeadHoldsTwoSavesAStepAndAMargin) {
  EXPECT_DOUBLE_EQ(stop_lead(100, {.last_step = 7, .longest_seconds = 4}, 3), 2 * 4 + 3 + 5);
  EXPECT_DOUBLE_EQ(stop_lead(86400, {.last_step = 7, .longest_seconds = 4}, 3), 2 * 4 + 3 + 30);
  EXPECT_DOUBLE_EQ(stop_lead(100, {}, 3), 3 + 2 * 5);
  EXPECT_DOUBLE_EQ(stop_lead(86400, {}, 3), 3 + 2 * 30);
}

TEST(RequestsTest, TooLittleTimeForASaveIsReportedWithBothNumbers) {
  const Saves saves{.last_step = 7, .longest_seconds = 20.5};
  EXPECT_EQ(grace_warning(20.5, saves, "Slurm's time limit"), "");
  EXPECT_EQ(grace_warning(12, {}, "Slurm's time limit"), "");  // nothing is known yet
  const std::string words = "12.0 s left until Slurm's time limit, but the longest save so far took 20.5 s: ";
  EXPECT_TRUE(grace_warning(12, saves, "Slurm's time limit").starts_with(words));
  EXPECT_TRUE(grace_warning(-3, saves, "train.time_limit").starts_with("0.0 s left until train.time_limit, but "));
}

}  // namespace requests_test
}  // namespace lockstep::engine
