// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/status_line.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {
namespace status_line_test {

Place place_of(const StatusLine& line) { return unpacked_place(line.place.load()); }

class StatusLineTest : public ::testing::Test {
 protected:
  StatusLineTest() { use_status_line(&line_); }
  ~StatusLineTest() override { use_status_line(nullptr); }

  StatusLine line_;
};

TEST_F(StatusLineTest, APlaceFitsIntoAWord) {
  const std::int64_t eight_years = std::int64_t{8} * 365 * 24 * 3600 * 1'000'000;
  const Place place =
      unpacked_place(packed({.activity = Activity::evaluation, .phase = Phase::agreement, .since_us = eight_years}));
  EXPECT_EQ(place.activity, Activity::evaluation);
  EXPECT_EQ(place.phase, Phase::agreement);
  EXPECT_EQ(place.since_us, eight_years);
  EXPECT_EQ(unpacked_place(~std::uint64_t{0}).phase, Phase::agreement);  // a damaged word
}

TEST_F(StatusLineTest, AnInterruptedPhaseContinues) {
  const std::int64_t before = monotonic_us();
  const ScopedActivity training(Activity::training);
  set_phase(Phase::backward);
  const Place backward = place_of(line_);
  EXPECT_GE(backward.since_us, before);
  {
    const ScopedPhase waiting(17, 3);
    EXPECT_EQ(place_of(line_).phase, Phase::communication);
    EXPECT_EQ(place_of(line_).activity, Activity::training);
    EXPECT_EQ(sequence_of(line_.call.load()), 17U);
    EXPECT_EQ(kind_of(line_.call.load()), 3);
  }
  EXPECT_EQ(place_of(line_).phase, Phase::backward);
  EXPECT_EQ(place_of(line_).since_us, backward.since_us);
}

TEST_F(StatusLineTest, AnExceptionKeepsThePlace) {
  EXPECT_THROW(
      {
        const ScopedActivity saving(Activity::saving);
        const ScopedPhase waiting(Phase::agreement);
        throw std::runtime_error("");
      },
      std::runtime_error);
  EXPECT_EQ(place_of(line_).activity, Activity::saving);
  EXPECT_EQ(place_of(line_).phase, Phase::agreement);
}

TEST_F(StatusLineTest, TheFirstEndIsNoted) {
  EXPECT_EQ(unpacked_end(line_.end.load()).code, -1);
  note_exit(0);
  EXPECT_EQ(unpacked_end(line_.end.load()).code, 0);
  note_signal(SIGSEGV);
  EXPECT_EQ(unpacked_end(line_.end.load()).signal, 0);
  line_.end.store(0);
  note_signal(SIGSEGV);
  EXPECT_EQ(unpacked_end(line_.end.load()).signal, SIGSEGV);
  EXPECT_EQ(unpacked_end(line_.end.load()).code, -1);
}

TEST_F(StatusLineTest, AnotherLineContinuesThePlace) {
  set_phase(Phase::update);
  set_step(12);
  StatusLine other;
  use_status_line(&other);
  EXPECT_EQ(place_of(other).phase, Phase::update);
  EXPECT_EQ(other.step.load(), 12);
}

TEST_F(StatusLineTest, WorkersTellAsLongAsTheyExist) {
  {
    const WorkerReport one([] { return std::vector<std::string>{"one loads a"}; });
    const WorkerReport two([] { return std::vector<std::string>{"two loads b"}; });
    EXPECT_EQ(worker_lines(), (std::vector<std::string>{"one loads a", "two loads b"}));
  }
  EXPECT_TRUE(worker_lines().empty());
}

}  // namespace status_line_test
}  // namespace lockstep
