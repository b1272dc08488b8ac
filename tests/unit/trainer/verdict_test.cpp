// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "trainer/failure/rank_state.hpp"

namespace lockstep::trainer {
namespace verdict_test {

/// A rank that has waited for the others in step 12 for 8 s.
RankState waiting(int rank) {
  return {.rank = rank,
          .host = "node7",
          .pid = 100 + rank,
          .process = 'S',
          .place = {.activity = Activity::training, .phase = Phase::communication},
          .seconds = 8,
          .step = 12,
          .call = "all_reduce #17",
          .has_answered = true,
          .configuration = 1,
          .program = 1};
}

/// A rank that is elsewhere.
RankState busy(int rank, Phase phase) {
  RankState state = waiting(rank);
  state.place.phase = phase;
  return state;
}

const FailureCause kTimeOut = {.message = "comm: rank 0 waited 8.0 s for rank 1"};

TEST(VerdictTest, ADeadRankComesFirst) {
  RankState dead = busy(1, Phase::forward);
  dead.is_dead = true;
  dead.end = {.signal = SIGKILL};
  RankState stopped = busy(2, Phase::data);
  stopped.process = 'T';
  EXPECT_EQ(verdict_on({waiting(0), dead, stopped}, kTimeOut),
            "rank 1 (process 101 on node7) was killed by signal 9 (KILL) in the forward pass of step 12");
  FailureCause lacking = kTimeOut;
  lacking.memory_kills = 1;
  EXPECT_EQ(
      verdict_on({waiting(0), dead}, lacking),
      "rank 1 (process 101 on node7) was killed by signal 9 (KILL) because memory was lacking, in the forward pass "
      "of step 12");
  dead.end = {.signal = SIGSEGV};
  EXPECT_EQ(verdict_on({waiting(0), dead}, kTimeOut),
            "rank 1 (process 101 on node7) crashed with signal 11 (SEGV) in the forward pass of step 12");
  dead.end = {.code = 70};
  EXPECT_EQ(verdict_on({waiting(0), dead}, kTimeOut),
            "rank 1 (process 101 on node7) has ended with exit code 70 in the forward pass of step 12");
}

TEST(VerdictTest, TheEndIsNotedOrKnownToTheSystemOrAKill) {
  const ProcessFacts reaped = {};
  EXPECT_EQ(end_of(reaped, {}).signal, SIGKILL);
  EXPECT_EQ(end_of(reaped, {.signal = SIGSEGV}).signal, SIGSEGV);
  EXPECT_EQ(end_of(reaped, {.code = 70}).code, 70);
  EXPECT_EQ(end_of(reaped, {.code = 70}).signal, 0);
  ProcessFacts zombie = {.state = 'Z', .exit_status = SIGTERM, .has_status = true};
  EXPECT_EQ(end_of(zombie, {}).signal, SIGTERM);
  zombie.exit_status = 3 << 8;  // the status of _exit(3)
  EXPECT_EQ(end_of(zombie, {}).code, 3);
}

TEST(VerdictTest, AStepIsCompletedBeforeItsHooks) {
  EXPECT_EQ(completed_steps(busy(0, Phase::update)), 11);
  EXPECT_EQ(completed_steps(busy(0, Phase::hooks)), 12);
  RankState evaluating = busy(0, Phase::forward);
  evaluating.place.activity = Activity::evaluation;
  EXPECT_EQ(completed_steps(evaluating), 12);
}

TEST(VerdictTest, AStoppedRankCanContinue) {
  RankState stopped = busy(1, Phase::update);
  stopped.process = 'T';
  EXPECT_EQ(verdict_on({waiting(0), stopped}, kTimeOut),
            "rank 1 (process 101 on node7) is stopped, in the update of step 12 for 8.0 s; kill -CONT 101 lets it "
            "continue");
}

TEST(VerdictTest, ALateRankStatesWhatItDoes) {
  RankState late = busy(1, Phase::data);
  late.answer.workers = {"loader thread 0 loads sample 3 (a.jpg) of the training data"};
  EXPECT_EQ(
      verdict_on({waiting(0), late}, kTimeOut),
      "rank 1 (process 101 on node7) is late: it has been waiting for data of step 12 for 8.0 s, and loader thread 0 "
      "loads sample 3 (a.jpg) of the training data");
  late = busy(1, Phase::forward);
  late.answer.block = "layer3.conv1";
  EXPECT_EQ(
      verdict_on({waiting(0), late}, kTimeOut),
      "rank 1 (process 101 on node7) is late: it has been in the forward pass of step 12 (block layer3.conv1) for "
      "8.0 s");
  late.process = 'D';
  late.answer.block.clear();
  late.has_answered = false;
  EXPECT_EQ(
      verdict_on({waiting(0), late}, kTimeOut),
      "rank 1 (process 101 on node7) is late: it has been in the forward pass of step 12 for 8.0 s, and waits for a "
      "disk");
}

TEST(VerdictTest, OfSeveralLateRanksTheLatestIsToBlame) {
  RankState short_late = busy(1, Phase::backward);
  short_late.seconds = 2;
  EXPECT_TRUE(verdict_on({waiting(0), short_late, busy(2, Phase::update)}, kTimeOut).starts_with("rank 2 "));
}

TEST(VerdictTest, RanksThatWaitInDifferentPlacesWaitForEachOther) {
  RankState elsewhere = busy(1, Phase::agreement);
  elsewhere.place.activity = Activity::evaluation;
  elsewhere.configuration = 2;
  EXPECT_EQ(
      verdict_on({waiting(0), elsewhere}, kTimeOut),
      "the ranks wait for each other: rank 0 is in all_reduce #17 of step 12, and rank 1 is waiting for the agreement "
      "of all ranks in the evaluation after step 12; rank 1 has another configuration than rank 0");
}

TEST(VerdictTest, DifferentCallsHaveTheirReason) {
  const FailureCause cause = {.message = "comm: the ranks call different operations: ..."};
  EXPECT_EQ(verdict_on({waiting(0), waiting(1)}, cause), cause.message);
  RankState other = waiting(1);
  other.program = 2;
  EXPECT_EQ(verdict_on({waiting(0), other}, cause), cause.message + "; rank 1 has another program than rank 0");
  other = waiting(1);
  other.step = 13;
  EXPECT_EQ(verdict_on({waiting(0), other}, cause),
            cause.message + "; rank 1 is ahead, in step 13, and rank 0 is in step 12");
}

TEST(VerdictTest, AnErrorOfARankIsTheVerdict) {
  RankState late = busy(1, Phase::data);
  EXPECT_EQ(verdict_on({waiting(0), late}, {.message = "the hook fails", .is_of_rank = true}), "the hook fails");
}

TEST(VerdictTest, RanksOfOtherHostsAreNotSeen) {
  const RankState other = {.rank = 1, .host = "node8", .is_seen = false, .configuration = 1, .program = 1};
  EXPECT_EQ(verdict_on({waiting(0), other}, kTimeOut), kTimeOut.message);
  EXPECT_EQ(
      verdict_on({waiting(0), other}, {}),
      "rank 0 (process 100 on node7) has been in all_reduce #17 of step 12 for 8.0 s, and the late rank is on a host "
      "that does not answer");
}

TEST(VerdictTest, ARunThatContinuesHasNoLateRank) {
  RankState brief = waiting(0);
  brief.seconds = 0.2;
  EXPECT_EQ(verdict_on({brief, busy(1, Phase::forward)}, {}),
            "no rank is late; rank 0 (process 100 on node7) is in all_reduce #17 of step 12");
}

TEST(RankAnswerTest, TravelsAsTextThatFits) {
  RankAnswer answer{
      .block = "head", .workers = {"loader thread 0 loads sample 3"}, .threads = {}, .peak_memory_mb = 12.5};
  answer.largest_blocks = {{.block = "layer1", .parameters_mb = 3, .forward_mb = 40.5}};
  for (int id = 1; id <= 20; ++id) {
    answer.threads.push_back({.id = id, .name = "trainer", .state = 'S', .kernel = "futex", .frames = {"f()", "main"}});
  }
  const RankAnswer whole = unpacked_answer(packed(answer, 1 << 16));
  EXPECT_EQ(whole.block, answer.block);
  EXPECT_EQ(whole.workers, answer.workers);
  EXPECT_EQ(whole.peak_memory_mb, 12.5);
  ASSERT_EQ(whole.largest_blocks.size(), 1U);
  EXPECT_EQ(text_of(whole.largest_blocks[0]), "layer1 (parameters 3 MiB, first forward pass 41 MiB)");
  ASSERT_EQ(whole.threads.size(), 20U);
  EXPECT_EQ(whole.threads[19].id, 20);
  EXPECT_EQ(whole.threads[19].frames, answer.threads[19].frames);
  const std::string less = packed(answer, 600);
  EXPECT_LT(less.size(), 600U);
  const std::size_t kept = unpacked_answer(less).threads.size();
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, 20U);
  EXPECT_EQ(unpacked_answer("{").threads.size(), 0U);
}

// Hosts send each other the array of failure.json.
TEST(RankStateTest, TravelsBetweenHosts) {
  RankState dead = busy(1, Phase::data);
  dead.process = 'Z';
  dead.is_dead = true;
  dead.end = {.signal = SIGSEGV};
  dead.place.activity = Activity::evaluation;
  dead.answer = {.block = "head", .workers = {"loader thread 0 loads sample 3"}, .threads = {}, .peak_memory_mb = 0};
  dead.answer.threads = {{.id = 7, .name = "trainer", .state = 'S', .kernel = "", .frames = {"main"}}};
  const RankState other = {.rank = 2, .host = "node8", .is_seen = false};
  const std::string json = ranks_json({waiting(0), dead, other});
  const std::vector<RankState> read = unpacked_ranks(json);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_FALSE(read[2].is_seen);
  EXPECT_EQ(end_text(read[1]), "crashed with signal 11 (SEGV)");
  EXPECT_EQ(place_text(read[1]), place_text(dead));
  EXPECT_EQ(read[1].answer.threads.size(), 1U);
  EXPECT_EQ(verdict_on(read, kTimeOut), verdict_on({waiting(0), dead, other}, kTimeOut));
  EXPECT_TRUE(unpacked_ranks("{").empty());
}

TEST(FailurePageTest, ShowsEachRankAndItsThreads) {
  RankState late = busy(1, Phase::data);
  late.answer.threads = {
      {.id = 7, .name = "trainer", .state = 'S', .kernel = "pipe_read", .frames = {"read<T>()", "main"}}};
  const std::string page = failure_page("run", "rank 1 is late", {{"exit code", "5"}}, {waiting(0), late});
  for (const char* text : {"rank 1 is late", "exit code", "all_reduce #17", "waiting for data of step 12", "pipe_read",
                           "read&lt;T&gt;()"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
}

}  // namespace verdict_test
}  // namespace lockstep::trainer
