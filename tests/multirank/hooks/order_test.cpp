// SPDX-License-Identifier: BSD-3-Clause
// Hooks come in the order of their priorities, equal ones in that of registration, and at every moment the same.
#include <gtest/gtest.h>

#include <map>

#include "hooked_run.hpp"

namespace lockstep::engine {
namespace order_test {

using Calls = std::map<std::string, std::vector<int>>;  // numbers of hooks, by moment

std::unique_ptr<Hook> noting(int number, Calls& calls) {
  const auto note = [number, &calls](const char* moment) {
    return [number, &calls, moment](auto&&...) { calls[moment].push_back(number); };
  };
  return callback_hook({.before_train = note("before_train"),
                        .before_epoch = note("before_epoch"),
                        .before_step = note("before_step"),
                        .on_forward = note("on_forward"),
                        .on_loss = note("on_loss"),
                        .on_backward = note("on_backward"),
                        .on_update = note("on_update"),
                        .before_agreement = note("before_agreement"),
                        .after_step = note("after_step"),
                        .after_epoch = note("after_epoch"),
                        .between_steps = note("between_steps"),
                        .before_evaluation = note("before_evaluation"),
                        .after_evaluation = note("after_evaluation"),
                        .after_train = note("after_train")});
}

TEST(HookOrderTest, IsTheSameAtEveryMoment) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwelveSteps);
  Calls calls;
  // The numbers rise in the expected order.
  const std::vector<std::pair<Priority, int>> hooks = {
      {Priority::lowest, 9}, {Priority::normal, 4},      {Priority::highest, 0},  {Priority::low, 7},
      {Priority::normal, 5}, {Priority::very_high, 1},   {Priority::very_low, 8}, {Priority::above_normal, 3},
      {Priority::high, 2},   {Priority::below_normal, 6}};
  for (const auto& [priority, number] : hooks) run.trainer.add_hook(priority, noting(number, calls));
  run.trainer.add_hook(evaluate_hook(run.sections));
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  EXPECT_EQ(calls.size(), 14U);
  for (const auto& [moment, numbers] : calls) {
    EXPECT_EQ(numbers.size() % hooks.size(), 0U) << moment;
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i % hooks.size()) << moment;
  }
}

}  // namespace order_test
}  // namespace lockstep::engine
