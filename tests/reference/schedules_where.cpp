// SPDX-License-Identifier: BSD-3-Clause
// Schedules over how far a run is, from 0 to 1.
#include "schedules_where.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace lockstep::testing::reference {

namespace {

/// A curve from one value to another as a curve with factors in [0, 1] of the larger one.
std::string between(const std::string& curve, const std::string& last_factor, double start, double end) {
  const double max = std::max(start, end);
  const double scale = max == 0 ? 1 : max;
  return RuleText(curve).add("base", max).add("start_factor", start / scale).add(last_factor, end / scale).text();
}

std::string multistep_rule(const Json& args) {
  require_known_fields(args, {"values", "num_updates", "milestones"});
  RuleText rule("multistep");
  rule.add("base", 1.0).add("values", text_of(args.at("values").get<std::vector<double>>()));
  if (!args.contains("milestones")) {
    if (!args.contains("num_updates")) rule.add("milestones", "missing");
    return rule.text();
  }
  std::vector<double> milestones = args.at("milestones");
  const double updates = args.contains("num_updates") ? number(args.at("num_updates")) : milestones.back();
  if (!args.contains("num_updates")) milestones.pop_back();
  for (double& milestone : milestones) milestone /= updates;
  return rule.add("milestones", text_of(milestones)).text();
}

std::string composite(const Json& args) {
  std::string curves;
  std::string scaling;
  for (const Json& inner : args.value("schedulers", Json::array())) {
    curves += (curves.empty() ? "" : " | ") + where_rule(inner.at("class"), inner.at("args"));
  }
  for (const std::string word : args.at("interval_scaling")) scaling += (scaling.empty() ? "" : ",") + word;
  return RuleText("composite")
      .add("curves", "(" + curves + ")")
      .add("lengths", text_of(args.at("lengths").get<std::vector<double>>()))
      .add("scaling", scaling)
      .text();
}

/// A run whose steps stand at every one of `wheres`.
std::int64_t steps_through(const std::vector<double>& wheres) {
  for (const std::int64_t total : {30, 48, 60, 10'000'000}) {
    const auto steps = static_cast<double>(total);
    const bool fits = std::all_of(wheres.begin(), wheres.end(),
                                  [steps](double where) { return std::round(where * steps) / steps == where; });
    if (fits) return total;
  }
  throw std::runtime_error("no run has steps at all of these places");
}

/// No rule here has a state: a schedule made again in the middle continues alike.
void expect_values(const std::string& rule, const Json& one_case) {
  const std::vector<double> wheres = one_case.at("where");
  const schedule::RunLength length{.total_steps = steps_through(wheres)};
  const auto values = [&] {
    const auto schedule = schedule::parse({rule + ",by=run"}, length, "reference");
    std::vector<double> found;
    for (const double where : wheres) {
      found.push_back(schedule.value(std::llround(where * static_cast<double>(length.total_steps))));
    }
    return found;
  };
  expect_close(values(), one_case.at("value").get<std::vector<double>>(), kClosedForm, rule);
}

double value_at(const std::string& rule, double where) {
  constexpr double kSteps = 1e9;
  const auto schedule = schedule::parse({rule + ",by=run"}, {.total_steps = std::llround(kSteps)}, "reference");
  return schedule.value(std::llround(where * kSteps));
}

std::string restart_rule(const Json& args) {
  const double start = number(args.at("start_value"));
  const double length = number(args.at("restart_interval_length"));
  const bool is_full = args.at("wave_type") == "full";
  const bool is_adaptive = args.at("is_adaptive");
  RuleText rule("cosine_restart");
  rule.add("base", start).add("floor", number(args.at("end_value"))).add("wave", is_full ? "full" : "half");
  if (is_full && is_adaptive) {
    // There wave k begins where the single wave is at (k + 1) times the period, the first one too.
    std::vector<double> weights;
    for (const double k : {1.0, 2.0}) weights.push_back(0.5 * (1 + std::cos(std::numbers::pi * k * length)));
    return rule.add("periods", text_of({length, length})).add("weights", text_of(weights)).text();
  }
  rule.add("periods", length).add("grow", 1.0).add("shrink", number(args.at("lr_multiplier")));
  return rule.add("adaptive", is_adaptive ? "true" : "false").text();
}

}  // namespace

std::string where_rule(const std::string& class_name, const Json& args) {
  const auto get = [&](const char* key) { return number(args.at(key)); };
  if (class_name == "ConstantParamScheduler") return RuleText("constant").add("base", get("value")).text();
  if (class_name == "LinearParamScheduler")
    return between("linear", "end_factor", get("start_value"), get("end_value"));
  if (class_name == "CosineParamScheduler") {
    return between("cosine", "final_factor", get("start_value"), get("end_value"));
  }
  if (class_name == "ExponentialParamScheduler") {
    return RuleText("exponential").add("base", get("start_value")).add("gamma", get("decay")).text();
  }
  if (class_name == "PolynomialDecayParamScheduler") {
    return RuleText("polynomial").add("base", get("base_value")).add("power", get("power")).text();
  }
  if (class_name == "StepParamScheduler" || class_name == "MultiStepParamScheduler") return multistep_rule(args);
  if (class_name == "StepWithFixedGammaParamScheduler") {
    return RuleText("step")
        .add("base", get("base_value"))
        .add("gamma", get("gamma"))
        .add("size", 1 / (get("num_decays") + 1))
        .text();
  }
  if (class_name == "CompositeParamScheduler") return composite(args);
  throw std::runtime_error("no test knows the class '" + class_name + "'");
}

void run_fvcore(const Json& one_case) {
  require_known_fields(one_case, {"name", "scheduler", "where", "value"});
  const Json& scheduler = one_case.at("scheduler");
  expect_values(where_rule(scheduler.at("class"), scheduler.at("args")), one_case);
}

void run_vissl(const Json& one_case) {
  require_known_fields(one_case, {"class", "args", "where", "value"});
  const Json& args = one_case.at("args");
  if (one_case.at("class") == "CosineWarmRestartScheduler") return expect_values(restart_rule(args), one_case);
  if (one_case.at("class") != "InverseSqrtScheduler") throw std::runtime_error("no test knows this class");
  const double warmup = number(args.at("warmup_interval_length"));
  RuleText rule("inverse_sqrt");
  rule.add("base", number(args.at("start_value"))).add("rise", "false").add("warmup", warmup == 0 ? 1 : warmup);
  expect_values(rule.text(), one_case);
}

/// A warm-up is a composite of its own straight line and the schedule behind it.
void run_detectron2(const Json& one_case) {
  require_known_fields(one_case, {"name", "inner", "warmup_factor", "warmup_length", "method", "rescale_interval",
                                  "max_iter", "initial_lr", "values", "error"});
  const std::string inner = where_rule(one_case.at("inner").at("class"), one_case.at("inner").at("args"));
  const double length = number(one_case.at("warmup_length"));
  const bool is_rescaled = one_case.at("rescale_interval");
  const double first = value_at(inner, 0) * number(one_case.at("warmup_factor"));
  const double last = value_at(inner, is_rescaled ? 0 : length);
  const std::string warmup = one_case.at("method") == "constant" ? RuleText("constant").add("base", first).text()
                                                                 : between("linear", "end_factor", first, last);
  const std::string curves = "(" + warmup + " | " + inner + ")";
  Played played;
  played.length.total_steps = one_case.at("max_iter");
  // Its value is a factor on what a group has, so a group of 1 is scaled.
  played.rules = {RuleText("composite")
                      .add("curves", curves)
                      .add("lengths", text_of({length, 1 - length}))
                      .add("scaling", is_rescaled ? "rescaled" : "rescaled,fixed")
                      .add("by", "run")
                      .text()};
  played.groups = {{{"lr", 1.0}}};
  played.shown = {{"lr"}};
  std::vector<std::vector<double>> rows = flat_rows(one_case.at("values"));
  for (std::vector<double>& row : rows) row.front() /= number(one_case.at("initial_lr")[0]);
  expect_played(played, rows, rows.size() / 2);
}

}  // namespace lockstep::testing::reference
