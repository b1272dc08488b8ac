// SPDX-License-Identifier: BSD-3-Clause
// Targets that are no classes.
#include "engine/evaluation/target_check.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "changed_digits.hpp"
#include "engine/settings/agreed.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace target_check_test {

constexpr std::int64_t kMislabeled = 20;

/// The source "mislabeled": digits of which one has the class 10, one after the last.
Registry registry_with_mislabeled() {
  return registry_with_changed_digits(
      "mislabeled",
      []() -> ChangeBatch {
        return [](batch::Batch& batch, std::span<const batch::Draw> draws) {
          for (std::size_t i = 0; i < draws.size(); ++i) {
            if (draws[i].index != kMislabeled) continue;
            batch.set(batch.target_key(), batch.target().clone());
            batch.target()[static_cast<std::int64_t>(i)].fill_(10);
          }
        };
      },
      ChangedSplits::train_and_val);
}

// The rank that loads it names the sample; the others hear of it.
TEST(TargetCheckTest, ATargetThatIsNoClassEndsTheRunOnEveryRank) {
  const Registry registry = registry_with_mislabeled();
  const mpi::Communicator world = mpi::Communicator::world();
  for (const char* const workers : {"0", "2"}) {
    SmallRun run(world, with(kTwelveSteps, {{"data.name", "mislabeled"}, {"data.workers", workers}}), registry);
    int names_it = 0;
    try {
      heard_by_peers(*run.resources.collectives, [&] { return run.trainer.train(); });
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::data) << error.what();
      names_it = std::string(error.what())
                         .find(
                             "sample 20 of the training data: the target 10 is not one of the 10 "
                             "classes") != std::string::npos &&
                 !error.is_remote();
    }
    EXPECT_EQ(world.all_reduce(names_it), 1);
    EXPECT_LT(run.losses.size(), 12U);
  }
}

TEST(TargetCheckTest, EvaluationsRefuseItToo) {
  const Registry registry = registry_with_mislabeled();
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"data.name", "mislabeled"}, {"data.val_size", "40"}}), registry);
  try {
    heard_by_peers(*run.resources.collectives, [&] { return evaluate(run, *run.splits.val, 100); });
    if (world.is_root()) ADD_FAILURE() << "not refused";  // which has the only batch
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sample 20 of the evaluated data: the target 10 is not"),
              std::string::npos)
        << error.what();
  }
}

std::string fault_in(const at::Tensor& target, const models::ClassRange& range) {
  const std::int64_t samples = target.dim() == 0 ? 0 : target.size(0);
  const auto fault = fault_of_targets(batch::Batch(at::zeros({samples, 1}), target), range);
  return fault ? std::to_string(fault->row) + ": " + fault->text.substr(0, fault->text.find(" is not")) : "";
}

TEST(TargetCheckTest, FindsTheFirstSampleWithAFault) {
  const models::ClassRange three{.classes = 3};
  EXPECT_EQ(fault_in(torch::tensor({0, 2, 1, -100}), three), "");
  EXPECT_EQ(fault_in(torch::tensor({0, 2, 3, 4}), three), "2: the target 3");
  EXPECT_EQ(fault_in(torch::tensor({0, -1}), three), "1: the target -1");
  EXPECT_EQ(fault_in(torch::tensor({0, -1}), {.classes = 3, .ignored = -1}), "");
  EXPECT_EQ(fault_in(torch::tensor({0, 255}, at::kByte), three), "1: the target 255");
  EXPECT_EQ(fault_in(torch::tensor({0.5, 7.0}), three), "") << "probabilities";
  EXPECT_EQ(fault_in(torch::zeros({0}, at::kLong), three), "");
  at::Tensor masks = at::zeros({4, 40, 50}, at::kLong);
  EXPECT_EQ(fault_in(masks, three), "");
  masks[2][39][49] = 3;
  EXPECT_EQ(fault_in(masks, three), "2: the target 3");
  EXPECT_EQ(fault_in(masks.transpose(1, 2), three), "2: the target 3");
}

TEST(TargetCheckTest, TheLossDecidesWhatIsAClass) {
  const mpi::Communicator world = mpi::Communicator::world();
  const auto range_with = [&world](const Settings& settings) {
    SmallRun run(world, with(kTwelveSteps, settings));
    return models::target_classes(run.model.wrapper->model(), run.splits.train->task());
  };
  EXPECT_EQ(range_with({}).classes, 10);
  const models::ClassRange smoothed = range_with({{"loss.label_smoothing", "0.1"}, {"loss.ignore_index", "255"}});
  EXPECT_EQ(smoothed.classes, 10);
  EXPECT_EQ(smoothed.ignored, 255);
  EXPECT_EQ(range_with({{"loss.name", "focal"}}).classes, 10);
  Registry registry;
  registry.losses.push_back({.name = "own", .help = "", .keys = {}, .make = [](const Section&, const Task&) {
                               return models::loss_of_target(
                                   [](const at::Tensor& output, const at::Tensor&, bool) { return output.mean(); });
                             }});
  SmallRun own(world, with(kTwelveSteps, {{"loss.name", "own"}}), registry);
  EXPECT_EQ(models::target_classes(own.model.wrapper->model(), own.splits.train->task()).classes, 0);
}

}  // namespace target_check_test
}  // namespace lockstep::engine
