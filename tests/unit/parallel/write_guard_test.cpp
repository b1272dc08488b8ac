// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/write_guard.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "support/program.hpp"

namespace lockstep::parallel {
namespace write_guard_test {

constexpr int kOther = 7;  // other: what the handler that was there before exits with

extern "C" void leave_with_other(int) { _exit(kOther); }

/// Two parameters of one block: elements [0, 1000) with padding to 1008, and [1008, 3008).
struct TwoParameters {
  TwoParameters() : memory(private_pages(3008 * sizeof(float))) {
    block.parameters = memory.get();
    block.count = 3008;
    block.segments = {{.name = "a.weight", .shape = {1000}, .strides = {1}, .offset = 0, .count = 1000},
                      {.name = "b.weight", .shape = {2000}, .strides = {1}, .offset = 1008, .count = 2000}};
  }
  float* values() const { return reinterpret_cast<float*>(memory.get()); }

  std::shared_ptr<std::byte> memory;
  optim::FlatBlock block;
};

/// So that the compiler cannot leave the write out.
void write_to(volatile float* place) { *place = 1; }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(WriteGuardDeathTest, AWriteEndsTheProcessAndNamesTheParameter) {
  const TwoParameters two;
  const WriteGuard guard(std::span(&two.block, 1), 3);
  const auto code = ::testing::ExitedWithCode(2);
  EXPECT_EXIT(write_to(two.values()), code, "rank 3: ddp.check_writes: parameter 'a.weight' was written outside of");
  EXPECT_EXIT(write_to(two.values() + 999), code, "'a.weight'");
  EXPECT_EXIT(write_to(two.values() + 1007), code, "'a.weight'");  // padding
  EXPECT_EXIT(write_to(two.values() + 1008), code, "'b.weight'");
  EXPECT_EXIT(write_to(two.values() + 3007), code, "'b.weight'");
}

TEST(WriteGuardDeathTest, WhatWasOpenedIsClosedAgain) {
  const TwoParameters two;
  WriteGuard guard(std::span(&two.block, 1), 0);
  try {
    const WriteGuard::Opened opened(&guard);
    write_to(two.values());
    throw std::runtime_error("in the middle");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(two.values()[0], 1);
  }
  EXPECT_EXIT(write_to(two.values()), ::testing::ExitedWithCode(2), "'a.weight'");
  const WriteGuard::Opened without_guard(nullptr);
}

TEST(WriteGuardDeathTest, OtherFaultsGoToTheHandlerThatWasThere) {
  const auto foreign = private_pages(4096);
  ASSERT_EQ(mprotect(foreign.get(), 4096, PROT_READ), 0);
  auto* const place = reinterpret_cast<float*>(foreign.get());
  const TwoParameters two;
  {
    const WriteGuard guard(std::span(&two.block, 1), 0);
    EXPECT_EXIT(write_to(place), ::testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(raise(SIGSEGV), ::testing::KilledBySignal(SIGSEGV), "");
  }
  struct sigaction before {};
  struct sigaction mine {};
  mine.sa_handler = leave_with_other;
  sigaction(SIGSEGV, &mine, &before);
  {
    const WriteGuard guard(std::span(&two.block, 1), 0);
    EXPECT_EXIT(write_to(place), ::testing::ExitedWithCode(kOther), "");
    EXPECT_EXIT(raise(SIGSEGV), ::testing::ExitedWithCode(kOther), "");
    EXPECT_EXIT(write_to(two.values()), ::testing::ExitedWithCode(2), "'a.weight'");
  }
  struct sigaction now {};
  sigaction(SIGSEGV, &before, &now);
  EXPECT_EQ(now.sa_handler, leave_with_other);
}

TEST(WriteGuardDeathTest, SeveralGuardsKeepWatch) {
  const TwoParameters one;
  const TwoParameters other;
  auto first = std::make_unique<WriteGuard>(std::span(&one.block, 1), 1);
  auto second = std::make_unique<WriteGuard>(std::span(&other.block, 1), 2);
  EXPECT_EXIT(write_to(one.values()), ::testing::ExitedWithCode(2), "rank 1: ");
  EXPECT_EXIT(write_to(other.values()), ::testing::ExitedWithCode(2), "rank 2: ");
  first.reset();
  write_to(one.values());
  EXPECT_EXIT(write_to(other.values()), ::testing::ExitedWithCode(2), "rank 2: ");
  second.reset();
  write_to(other.values());
  EXPECT_EQ(one.values()[0] + other.values()[0], 2);
}

// Lawful training continues until then; the other ranks end with the one that fails.
TEST(WriteGuardTest, AnIllegalInPlaceWriteEndsTheJob) {
  for (const int ranks : {2, 3}) {
    for (const std::string where : {"shared", "private"}) {
      SCOPED_TRACE(where + " parameters, " + std::to_string(ranks) + " ranks");
      const std::string helper = LOCKSTEP_WRITE_HELPER;
      const auto outcome = testing::run_shell(testing::mpirun_command(ranks) + " " + helper + " " + where, 60);
      EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
      const std::string sentence = "lockstep: rank " + std::to_string(ranks - 1) +
                                   ": ddp.check_writes: parameter 'second.weight' was written outside of "
                                   "ParameterStore::write";
      const std::size_t position = outcome.output.find(sentence);
      ASSERT_NE(position, std::string::npos) << outcome.output;
      EXPECT_EQ(outcome.output.find("ddp.check_writes", position + sentence.size()), std::string::npos)
          << outcome.output;
      EXPECT_TRUE(has(outcome.output, "parallel_write_helper(")) << outcome.output;  // a frame of its stack
      EXPECT_TRUE(has(outcome.output, "step 2\n")) << outcome.output;
      EXPECT_FALSE(has(outcome.output, "step 3\n")) << outcome.output;
    }
  }
}

}  // namespace write_guard_test
}  // namespace lockstep::parallel
