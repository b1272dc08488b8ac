// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules_mmengine.hpp"
#include "schedules_where.hpp"

namespace lockstep::testing::reference {
namespace schedules_test {

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
    const auto factor =
        schedule::parse(rules_of(args, start_factor), {.total_steps = args.lr_decay_iters}, "reference");
    std::vector<double> lr;
    for (const std::int64_t step : steps) lr.push_back(args.learning_rate * factor.value(step));
    expect_close(lr, one_case.at(field).get<std::vector<double>>(), tolerance, field);
  };
  check("lr", 1.0 / static_cast<double>(args.warmup_iters + 1));
  const bool has_older = !one_case.value("lr_older_warmup", Json()).is_null();  // there is none without a warm-up
  if (has_older) check("lr_older_warmup", 0);
}

const std::vector<std::string> kMisc = {
    "hook_loops",       "wrapper",           "default_end",       "errors",
    "onecycle_overrun", "linear_zero_start", "plateau_bad_calls", "recreate_with_last_step",
    "plateau_momentum"};

TEST(SchedulesReference, EveryCaseOfEveryFile) {
  run_topic("schedules", {{.file = "nanogpt.json", .run = run_nanogpt},
                          {.file = "mmengine_lr.json", .extra_fields = {"rows"}, .run = run_mmengine},
                          {.file = "mmengine_momentum_and_generic.json", .extra_fields = {"rows"}, .run = run_mmengine},
                          {.file = "mmengine_loop_and_misc.json", .extra_fields = kMisc},
                          {.file = "torch_lr.json", .extra_fields = {"rows"}, .run = run_torch},
                          {.file = "fvcore.json", .extra_fields = {"errors"}, .run = run_fvcore},
                          {.file = "detectron2_warmup.json", .run = run_detectron2},
                          {.file = "vissl.json", .run = run_vissl}});
}

bool is_refused(const Rules& rules, const schedule::RunLength& length = {.total_steps = 100}) {
  try {
    const auto schedule = schedule::parse(rules, length, "reference");
    schedule::Numbers options = {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0}};
    schedule.apply(0, "0", options, options);
  } catch (const ConfigError&) {
    return true;
  }
  return false;
}

class ScheduleFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(root() / "schedules")) GTEST_SKIP() << "no reference data in " << root();
  }
};

// The rules that Lockstep takes although the reference does not: its plateau counts in any unit, and its cycle has no
// lr of its own that would be wrong for another option.
bool is_taken_here(const Json& error) {
  if (error.at("class") == "OneCycleParamScheduler") return true;
  return error.at("class") == "ReduceOnPlateauLR" && error.at("args").contains("by_epoch");
}

TEST_F(ScheduleFacts, WhatIsRefusedThereIsRefused) {
  for (const Json& error : load("schedules/mmengine_loop_and_misc.json").at("errors")) {
    const bool refused = is_refused(mmengine_rules(Json::array({error}), 1, "step"));
    EXPECT_EQ(refused, !error.at("accepted").get<bool>() && !is_taken_here(error)) << error;
  }
}

// Lockstep keeps the last value at the very end, where the reference has none, and one scaling for many curves is
// written once.
TEST_F(ScheduleFacts, WhatIsRefusedByPlaceIsRefused) {
  for (const Json& error : load("schedules/fvcore.json").at("errors")) {
    const bool has_place = !error.at("where").is_null();
    if (has_place) continue;
    Json args = error.at("args");
    const bool is_composite = error.at("scheduler") == "CompositeParamScheduler";
    if (is_composite && !args.at("lengths").empty()) {
      const Json constant = {{"class", "ConstantParamScheduler"}, {"args", {{"value", 0.42}}}};
      args["schedulers"] = {constant, constant};
    }
    EXPECT_EQ(is_refused({where_rule(error.at("scheduler"), args) + ",by=run"}), !error.at("accepted").get<bool>())
        << error;
  }
}

TEST_F(ScheduleFacts, TheEndHasTheLastValue) {
  for (const Json& error : load("schedules/fvcore.json").at("errors")) {
    if (error.at("where").is_null()) continue;
    const std::string rule = where_rule(error.at("scheduler"), error.at("args")) + ",by=run";
    const auto schedule = schedule::parse({rule}, {.total_steps = 1'000'000}, "reference");
    const double at_end = schedule.value(1'000'000);
    EXPECT_NEAR(at_end, schedule.value(999'999), 1e-9) << rule;
    if (!error.contains("value")) continue;
    EXPECT_NEAR(at_end, number(error.at("value")), 1e-15) << rule;
  }
}

// Rules that count epochs and rules that count steps, in a loop of epochs; what is measured at the end of each.
TEST_F(ScheduleFacts, LoopsOfEpochsUseTheSameRates) {
  for (const Json& loop : load("schedules/mmengine_loop_and_misc.json").at("hook_loops")) {
    const std::int64_t per_epoch = loop.at("iters_per_epoch");
    const auto epochs = loop.at("epochs").get<std::int64_t>();
    const auto losses = loop.value("val_loss_per_epoch", std::vector<double>());
    const Rules rules = mmengine_rules(loop.at("schedulers"), 1, "epoch");
    const schedule::RunLength length{.total_steps = epochs * per_epoch, .steps_per_epoch = per_epoch};
    auto schedule = schedule::parse(rules, length, "reference");
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<double> used;
      for (std::int64_t i = 0; i < per_epoch; ++i) {
        used.push_back(
            schedule.value(epoch * per_epoch + i, {.option = "lr", .group = "", .base = loop.at("initial_lr")}));
      }
      expect_close(used, loop.at("lr_used").at(epoch), kClosedForm, rules.front() + " epoch " + std::to_string(epoch));
      if (losses.empty()) continue;
      auto resumed = schedule::parse(rules, length, "reference");
      resumed.load_state(schedule.state());
      std::swap(schedule, resumed);
      schedule.observe((epoch + 1) * per_epoch, {{"loss", losses.at(epoch)}});
    }
  }
}

TEST_F(ScheduleFacts, GroupsKeepTheirRatios) {
  const Json wrapper = load("schedules/mmengine_loop_and_misc.json").at("wrapper");
  const Json schedulers = {{{"class", "LinearLR"}, {"args", wrapper.at("warmup")}},
                           {{"class", "CosineAnnealingLR"}, {"args", wrapper.at("cosine")}}};
  const double lr = wrapper.at("lr");
  const double multiplier = wrapper.at("lr_mult_of_0.weight");
  Played played;
  played.rules = mmengine_rules(schedulers, 4, "step");
  for (const double factor : {multiplier, 1.0, 1.0, 1.0}) played.groups.push_back({{"lr", lr * factor}});
  played.shown.assign(4, {"lr"});
  std::vector<std::vector<double>> rows;
  for (const Json& row : wrapper.at("values")) rows.push_back(row.at("get_lr").at("lr"));
  expect_played(played, rows, rows.size() / 2);
}

// A rule without an end continues to the end of the run, in its own unit; what a unit needs must be known.
TEST_F(ScheduleFacts, DefaultEndsAreThoseOfTheRun) {
  for (const Json& row : load("schedules/mmengine_loop_and_misc.json").at("default_end")) {
    const Json& dispatch = row.at("dispatch");
    const schedule::RunLength length{
        .total_steps = dispatch.value("max_iters", 0),
        .steps_per_epoch = dispatch.contains("max_epochs") ? dispatch.value("epoch_length", 0) : 0};
    const bool has_result = row.at("result").is_array();
    for (std::size_t i = 0; i < row.at("configs").size(); ++i) {
      const Json& config = row.at("configs")[i];
      const bool converts = config.value("convert_to_iter_based", false);
      const bool by_epoch = config.value("by_epoch", true);
      const std::string unit = converts ? ",by=epoch,smooth=true" : by_epoch ? ",by=epoch" : "";
      const std::string begin = ",begin=" + text_of(config.value("begin", 0.0));
      if (!has_result) {
        EXPECT_TRUE(is_refused({"cosine" + unit}, length)) << row;
        continue;
      }
      if (config.contains("end")) continue;
      const double steps = by_epoch && !converts ? number(dispatch.at("epoch_length")) : 1;
      const double last = number(row.at("result")[i].at("end")) * steps;
      const double first = number(row.at("result")[i].at("begin")) * steps;
      const auto schedule = schedule::parse({"linear,start_factor=0" + unit + begin}, length, "reference");
      EXPECT_EQ(schedule.value(std::llround(first)), 0) << row;
      EXPECT_LT(schedule.value(std::llround(last) - 1), 1) << row;
      EXPECT_EQ(schedule.value(std::llround(last)), 1) << row;
    }
  }
}

// TRAPS: there an over-long run is first extrapolated and then ends in an error, a warm-up from 0 fails at its first
// step, and a scheduler that is made again loses its window.
TEST_F(ScheduleFacts, TrapsAreNone) {
  const Json misc = load("schedules/mmengine_loop_and_misc.json");
  const Json& overrun = misc.at("onecycle_overrun");
  const std::vector<double> lr = overrun.at("lr");
  const std::int64_t total = overrun.at("total_steps");
  // They follow from the rates, as long as one of them is the highest of the curve, without the field `args`.
  const auto peak = std::max_element(lr.begin(), lr.begin() + total);
  const double steps_up = static_cast<double>(peak - lr.begin()) + 1;
  const double last = lr.at(static_cast<std::size_t>(total) - 1);
  const Json args = overrun.value("args", Json{{"eta_max", *peak},
                                               {"total_steps", total},
                                               {"pct_start", steps_up / static_cast<double>(total)},
                                               {"div_factor", *peak / lr.front()},
                                               {"final_div_factor", lr.front() / last}});
  const Rules cycle = mmengine_rules(Json::array({Json{{"class", "OneCycleLR"}, {"args", args}}}), 1, "step");
  const auto one_cycle = schedule::parse(cycle, {.total_steps = total}, "reference");
  for (std::int64_t step = 0; step < total; ++step) EXPECT_NEAR(one_cycle.value(step), lr.at(step), 1e-12);
  EXPECT_EQ(one_cycle.value(total), one_cycle.value(total - 1));
  EXPECT_EQ(one_cycle.value(100 * total), one_cycle.value(total - 1));

  const auto from_zero = schedule::parse({"linear,start_factor=0,end=4"}, {.total_steps = 10}, "reference");
  EXPECT_EQ(from_zero.value(0), 0);
  EXPECT_EQ(from_zero.value(1), 0.25);

  for (const Json& again : misc.at("recreate_with_last_step")) {
    const auto schedule =
        schedule::parse(mmengine_rules(Json::array({again}), 1, "step"), {.total_steps = 1'000'000'000}, "reference");
    const std::vector<double> after = again.at("lr_after");
    const std::int64_t first = again.at("rounds_before").get<std::int64_t>() + 1;
    std::vector<double> found;
    for (std::size_t i = 0; i < after.size(); ++i) {
      found.push_back(
          schedule.value(first + static_cast<std::int64_t>(i), {.option = "lr", .group = "", .base = 0.05}));
    }
    expect_close(found, after, {.absolute = 1e-15, .relative = 1e-9}, again.at("class"));
  }
}

TEST_F(ScheduleFacts, APlateauSaysWhatIsMeasured) {
  for (const Json& call : load("schedules/mmengine_loop_and_misc.json").at("plateau_bad_calls")) {
    if (!call.at("metrics").is_object()) continue;  // cannot be written here
    auto schedule = schedule::parse({"plateau,metric=loss"}, {.total_steps = 10}, "reference");
    EXPECT_THROW(schedule.observe(0, call.at("metrics").get<schedule::Numbers>()), ConfigError);
  }
}

TEST_F(ScheduleFacts, APlateauMovesMomentum) {
  const Json plateau = load("schedules/mmengine_loop_and_misc.json").at("plateau_momentum");
  Played played;
  played.rules = {"plateau,of=momentum,metric=loss,patience=1,factor=0.5"};
  played.groups = {{{"lr", 0.05}, {"momentum", number(plateau.at("momentum").at(0))}}};
  played.shown = {{"momentum"}};
  played.monitors = {"loss"};
  played.measured = plateau.at("metrics").get<std::vector<double>>();
  std::vector<std::vector<double>> rows;
  for (const double momentum : plateau.at("momentum")) rows.push_back({momentum});
  expect_played(played, rows, 4);
}

}  // namespace schedules_test
}  // namespace lockstep::testing::reference
