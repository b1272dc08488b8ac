// SPDX-License-Identifier: BSD-3-Clause
// What ranks ask of the loop, and what becomes of it in the sum over ranks.
#include "engine/loop/step_agreement.hpp"

#include <lockstep/engine/run_view.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::engine {
namespace step_agreement_test {

/// The answer that all know when the ranks have said this, the first one being rank 0.
StepAgreement agreement_of(const std::vector<StepWishes>& ranks, const std::vector<double>& losses = {1.5}) {
  std::vector<double> sums(4 + losses.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double> numbers = pack(ranks[rank], rank == 0, losses);
    EXPECT_EQ(numbers.size(), sums.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[i] += numbers[i];
  }
  return unpack(sums);
}

TEST(StepAgreementTest, NumbersComeInOneOrder) {
  const std::vector<double> losses = {0.25, -2};
  EXPECT_EQ(pack({}, true, losses), (std::vector<double>{0, 0, 0, 1, 0.25, -2}));
  EXPECT_EQ(pack({.stops = true}, true, losses), (std::vector<double>{1, 0, 0, 1, 0.25, -2}));
  EXPECT_EQ(pack({.saves = true, .has_failed = true}, true, losses), (std::vector<double>{0, 1, 1, 1, 0.25, -2}));
  EXPECT_EQ(pack({.saves = true, .ends = true}, true, {}), (std::vector<double>{0, 3, 0, 1}));
  EXPECT_EQ(pack({.saves = true, .evaluates = true}, true, {}), (std::vector<double>{0, 5, 0, 1}));
  EXPECT_EQ(pack({.reads_report = false}, true, {}), (std::vector<double>{0, 0, 0, 0}));
}

TEST(StepAgreementTest, LossesAreAdded) {
  const StepAgreement quiet = agreement_of({{}, {}, {}}, {1, 2.5});
  EXPECT_EQ(quiet.losses, (std::vector<double>{3, 7.5}));
  EXPECT_FALSE(quiet.stops || quiet.saves || quiet.ends || quiet.has_failed);
}

TEST(StepAgreementTest, AnyRankStopsAndFailsButOnlyRankZeroSavesAndEnds) {
  const StepAgreement of_last =
      agreement_of({{}, {}, {.stops = true, .saves = true, .ends = true, .has_failed = true}});
  EXPECT_TRUE(of_last.stops);
  EXPECT_TRUE(of_last.has_failed);
  EXPECT_FALSE(of_last.saves);
  EXPECT_FALSE(of_last.ends);
  const StepAgreement saves = agreement_of({{.saves = true}, {.ends = true}});
  EXPECT_TRUE(saves.saves);
  EXPECT_FALSE(saves.ends);
  EXPECT_FALSE(saves.stops);
  const StepAgreement ends = agreement_of({{.ends = true}, {.saves = true}});
  EXPECT_FALSE(ends.saves);
  EXPECT_TRUE(ends.ends);
  EXPECT_TRUE(agreement_of({{.evaluates = true}, {}}).evaluates);
  EXPECT_FALSE(agreement_of({{}, {.evaluates = true}}).evaluates);
  EXPECT_FALSE(saves.evaluates || ends.evaluates);
}

TEST(StepAgreementTest, RanksThatReadTheReportAreCounted) {
  EXPECT_EQ(agreement_of({{}, {}, {}}).readers, 3);
  EXPECT_EQ(agreement_of({{.reads_report = false}, {}, {.reads_report = false}}).readers, 1);
  EXPECT_EQ(agreement_of({{.reads_report = false}}).readers, 0);
}

TEST(RunRequestsTest, AreThereUntilTheyAreTakenBack) {
  RunRequests requests;
  EXPECT_FALSE(requests.is_save_requested() || requests.is_end_requested() || requests.is_finish_requested());
  EXPECT_FALSE(requests.is_evaluation_requested());
  requests.save();
  requests.evaluate();
  requests.end();
  requests.finish();
  EXPECT_TRUE(requests.is_save_requested() && requests.is_end_requested() && requests.is_finish_requested());
  EXPECT_TRUE(requests.is_evaluation_requested());
  requests.clear_step_requests();
  EXPECT_FALSE(requests.is_save_requested() || requests.is_evaluation_requested());
  EXPECT_TRUE(requests.is_end_requested());
  EXPECT_FALSE(RunRequests().is_end_requested());
}

TEST(RunRequestsTest, TheFirstFailureCounts) {
  RunRequests requests;
  EXPECT_EQ(requests.failure(), nullptr);
  requests.fail(std::make_exception_ptr(std::runtime_error("first")));
  requests.fail(std::make_exception_ptr(std::runtime_error("second")));
  try {
    std::rethrow_exception(requests.failure());
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

}  // namespace step_agreement_test
}  // namespace lockstep::engine
