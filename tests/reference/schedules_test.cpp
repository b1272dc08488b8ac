// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace {

/// The shortest text that gives the same double back.
std::string text_of(double value) { return Json(value).dump(); }

struct NanoGpt {
  double learning_rate;
  std::int64_t warmup_iters;
  std::int64_t lr_decay_iters;
  double min_lr;
};

NanoGpt nanogpt_args(const Json& args) {
  require_known_fields(args, {"learning_rate", "warmup_iters", "lr_decay_iters", "min_lr"});
  return {.learning_rate = number(args.at("learning_rate")),
          .warmup_iters = args.at("warmup_iters"),
          .lr_decay_iters = args.at("lr_decay_iters"),
          .min_lr = number(args.at("min_lr"))};
}

/// Warm-up from `start_factor`, then a cosine down to min_lr.
std::vector<std::string> rules_of(const NanoGpt& args, double start_factor) {
  const std::string warmup = std::to_string(args.warmup_iters);
  std::vector<std::string> rules = {"cosine,begin=" + warmup + ",end=" + std::to_string(args.lr_decay_iters) +
                                    ",final_factor=" + text_of(args.min_lr / args.learning_rate)};
  if (args.warmup_iters > 0) rules.push_back("linear,start_factor=" + text_of(start_factor) + ",end=" + warmup);
  return rules;
}

void run_nanogpt(const Json& one_case) {
  require_known_fields(one_case, {"args", "iter", "lr", "lr_older_warmup"});
  const NanoGpt args = nanogpt_args(one_case.at("args"));
  const std::vector<std::int64_t> steps = one_case.at("iter");
  // One closed formula in double: a few roundings of 1.1e-16 each.
  const Tolerance tolerance{.relative = 1e-14};
  const auto check = [&](const char* field, double start_factor) {
    const auto factor = schedule::parse(rules_of(args, start_factor), args.lr_decay_iters, "reference");
    std::vector<double> lr;
    for (const std::int64_t step : steps) lr.push_back(args.learning_rate * factor(step));
    expect_close(lr, one_case.at(field).get<std::vector<double>>(), tolerance, field);
  };
  check("lr", 1.0 / static_cast<double>(args.warmup_iters + 1));
  const bool has_older = !one_case.value("lr_older_warmup", Json()).is_null();  // without a warm-up there is none
  if (has_older) check("lr_older_warmup", 0);
}

TEST(SchedulesReference, EveryCaseOfEveryFile) {
  run_topic("schedules", {{.file = "nanogpt.json", .run = run_nanogpt}});
}

}  // namespace
}  // namespace lockstep::testing::reference
