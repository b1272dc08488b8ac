// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "schedules_mmengine.hpp"

namespace lockstep::testing::reference {

namespace {

double number_or(const Json& args, const std::string& key, double otherwise) {
  return number(args.value(key, Json(otherwise)));
}

/// A value, or the one of group `g` where there is a list.
double of_group(const Json& value, std::size_t g) { return number(value.is_array() ? value.at(g) : value); }

Rules warm_restarts(const Json& args) {
  require_known_fields(args, {"T_0", "T_mult", "eta_min"});
  return {RuleText("cosine_restart")
              .add("periods", number(args.at("T_0")))
              .add("grow", number_or(args, "T_mult", 1))
              .add("floor", number_or(args, "eta_min", 0))
              .text()};
}

Rules one_cycle(const Json& args, std::size_t groups) {
  require_known_fields(args, {"max_lr", "total_steps", "epochs", "steps_per_epoch", "anneal_strategy", "pct_start",
                              "base_momentum", "max_momentum", "three_phase", "div_factor", "final_div_factor"});
  const double total = args.contains("total_steps") ? number(args.at("total_steps"))
                                                    : number(args.at("epochs")) * number(args.at("steps_per_epoch"));
  RuleText common("one_cycle");
  common.add("end", total - 1).add("rise", (number_or(args, "pct_start", 0.3) * total - 1) / (total - 1));
  common.add("shape", args.value("anneal_strategy", "cos") == "cos" ? "cosine" : "linear");
  common.add("three_phases", args.value("three_phase", Json(false)).dump());
  const double start = 1 / number_or(args, "div_factor", 25);
  Rules rules;
  for (std::size_t g = 0; g < groups; ++g) {
    rules.push_back(RuleText(common)
                        .add("group", std::to_string(g))
                        .add("base", of_group(args.at("max_lr"), g))
                        .add("start_factor", start)
                        .add("final_factor", start / number_or(args, "final_div_factor", 1e4))
                        .text());
  }
  const double base = number_or(args, "base_momentum", 0.85);
  const double max = number_or(args, "max_momentum", 0.95) / base;
  rules.push_back(
      common.add("of", "momentum").add("base", base).add("start_factor", max).add("final_factor", max).text());
  return rules;
}

Rules cyclic(const Json& args) {
  require_known_fields(args, {"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum",
                              "base_momentum", "max_momentum"});
  static const std::map<std::string, std::string> shapes = {
      {"triangular", "even"}, {"triangular2", "halved"}, {"exp_range", "exponential"}};
  RuleText common("cyclic");
  common.add("up", number_or(args, "step_size_up", 2000));
  if (args.contains("step_size_down")) common.add("down", number(args.at("step_size_down")));
  common.add("shape", shapes.at(args.value("mode", "triangular"))).add("gamma", number_or(args, "gamma", 1));
  const double peak = number(args.at("max_lr"));
  Rules rules = {RuleText(common).add("base", peak).add("start_factor", number(args.at("base_lr")) / peak).text()};
  const bool has_momentum = args.value("cycle_momentum", true);
  if (!has_momentum) return rules;
  const double base = number_or(args, "base_momentum", 0.8);
  const double max = number_or(args, "max_momentum", 0.9);
  rules.push_back(common.add("of", "momentum").add("base", base).add("start_factor", max / base).text());
  return rules;
}

Rules plateau(const Json& args, std::size_t groups) {
  require_known_fields(args, {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr"});
  Rules rules;
  for (std::size_t g = 0; g < groups; ++g) {
    rules.push_back(RuleText("plateau")
                        .add("metric", "loss")
                        .add("better", args.value("mode", "min") == "min" ? "lower" : "higher")
                        .add("factor", number_or(args, "factor", 0.1))
                        .add("patience", number_or(args, "patience", 10))
                        .add("threshold", number_or(args, "threshold", 1e-4))
                        .add("measure", args.value("threshold_mode", "rel") == "rel" ? "product" : "absolute")
                        .add("cooldown", number_or(args, "cooldown", 0))
                        .add("floor", of_group(args.value("min_lr", Json(0)), g))
                        .add("group", std::to_string(g))
                        .text());
  }
  return rules;
}

Rules multistep(const Json& args) {
  const std::vector<double> milestones = args.at("milestones");
  return {
      RuleText("multistep").add("milestones", text_of(milestones)).add("gamma", number_or(args, "gamma", 0.1)).text()};
}

/// A scheduler whose rule is one curve.
Rules curve(const std::string& kind, const Json& args) {
  const auto get = [&](const char* key, double otherwise) { return number_or(args, key, otherwise); };
  if (kind == "PolynomialLR") {
    require_known_fields(args, {"total_iters", "power"});
    return {RuleText("polynomial").add("end", get("total_iters", 5)).add("power", get("power", 1)).text()};
  }
  if (kind == "CosineAnnealingLR") {
    require_known_fields(args, {"T_max", "eta_min"});
    return {RuleText("cosine").add("length", number(args.at("T_max"))).add("floor", get("eta_min", 0)).text()};
  }
  if (kind == "StepLR") {
    require_known_fields(args, {"step_size", "gamma"});
    return {RuleText("step").add("size", number(args.at("step_size"))).add("gamma", get("gamma", 0.1)).text()};
  }
  if (kind == "MultiStepLR") {
    require_known_fields(args, {"milestones", "gamma"});
    return multistep(args);
  }
  if (kind == "ExponentialLR") {
    require_known_fields(args, {"gamma"});
    return {RuleText("exponential").add("gamma", number(args.at("gamma"))).text()};
  }
  if (kind == "LinearLR") {
    require_known_fields(args, {"start_factor", "end_factor", "total_iters"});
    return {RuleText("linear")
                .add("start_factor", get("start_factor", 1.0 / 3))
                .add("end_factor", get("end_factor", 1))
                .add("end", get("total_iters", 5))
                .text()};
  }
  if (kind == "ConstantLR") {
    require_known_fields(args, {"factor", "total_iters"});
    return {RuleText("constant").add("factor", get("factor", 1.0 / 3)).add("end", get("total_iters", 5)).text()};
  }
  throw std::runtime_error("no test knows the class '" + kind + "'");
}

/// The curve with `end`: a linear warm-up of `warmup` steps to the full rate, which then falls in a straight line to 0
/// at `end`. Without: the schedule of "Attention is all you need", min((i + 1)^-0.5, (i + 1) warmup^-1.5).
Rules lambda(const Json& args) {
  require_known_fields(args, {"warmup", "end"});
  const double warmup = number(args.at("warmup"));
  if (!args.contains("end")) {
    return {RuleText("constant").add("factor", std::pow(warmup, -0.5)).text(),
            RuleText("inverse_sqrt").add("warmup", warmup).add("offset", 1).text()};
  }
  Rules rules = {RuleText("linear")
                     .add("start_factor", 1)
                     .add("end_factor", 0)
                     .add("begin", warmup)
                     .add("end", number(args.at("end")))
                     .text()};
  if (warmup > 0) rules.push_back(RuleText("linear").add("start_factor", 1 / (warmup + 1)).add("end", warmup).text());
  return rules;
}

/// Step i multiplies by `odd` or `even`.
Rules multiplicative(const Json& args) {
  require_known_fields(args, {"odd", "even"});
  const double odd = number(args.at("odd"));
  return {RuleText("step").add("size", 2).add("gamma", number(args.at("even"))).text(),
          RuleText("constant").add("factor", odd).add("begin", 1).text(),
          RuleText("step").add("size", 2).add("gamma", odd).add("begin", 1).text()};
}

/// One scheduler after another, each counting from its own beginning.
Rules sequential(const Json& args, std::size_t rows) {
  require_known_fields(args, {"schedulers", "milestones"});
  const std::vector<double> milestones = args.at("milestones");
  if (milestones.empty() || args.at("schedulers").size() != milestones.size() + 1) {
    throw std::runtime_error("no milestone between every two schedulers");
  }
  double total = 1024;  // a power of two, so that parts of it are exact
  while (total < static_cast<double>(rows) || total <= milestones.back()) total *= 2;
  std::vector<double> lengths;
  std::string curves;
  double begin = 0;
  for (std::size_t i = 0; i <= milestones.size(); ++i) {
    const double end = i < milestones.size() ? milestones[i] : total;
    lengths.push_back((end - begin) / total);
    begin = end;
    const Json& scheduler = args.at("schedulers")[i];
    require_known_fields(scheduler, {"class", "args"});
    curves += (i == 0 ? "" : " | ") + curve(scheduler.at("class"), scheduler.at("args")).front();
  }
  return {RuleText("composite")
              .add("end", total)
              .add("scaling", "shifted")
              .add("lengths", text_of(lengths))
              .add("curves", "(" + curves + ")")
              .text()};
}

/// @param groups  parameter groups of the optimizer
/// @param rows    steps that are compared
Rules rules_of(const Json& scheduler, std::size_t groups, std::size_t rows) {
  const std::string kind = scheduler.at("class");
  const Json& args = scheduler.at("args");
  if (kind == "CosineAnnealingWarmRestarts") return warm_restarts(args);
  if (kind == "OneCycleLR") return one_cycle(args, groups);
  if (kind == "CyclicLR") return cyclic(args);
  if (kind == "ReduceLROnPlateau") return plateau(args, groups);
  if (kind == "LambdaLR") return lambda(args);
  if (kind == "MultiplicativeLR") return multiplicative(args);
  if (kind == "SequentialLR") return sequential(args, rows);
  if (kind != "ChainedScheduler") return curve(kind, args);
  require_known_fields(args, {"schedulers"});
  Rules rules;
  for (const Json& inner : args.at("schedulers")) {
    require_known_fields(inner, {"class", "args"});
    for (std::string& rule : rules_of(inner, groups, rows)) rules.push_back(std::move(rule));
  }
  return rules;
}

/// Groups of SGD or of Adam; options that the file leaves out have the values of its field `how`.
std::vector<schedule::Numbers> torch_groups(const Json& one_case) {
  std::vector<schedule::Numbers> groups;
  const bool is_adam = one_case.at("optimizer") == "adam";
  if (!is_adam && one_case.at("optimizer") != "sgd") throw std::runtime_error("no test knows the optimizer");
  for (const Json& initial : one_case.at("initial")) {
    require_known_fields(initial, {"lr", "momentum", "betas"});
    schedule::Numbers group = {{"lr", number(initial.at("lr"))}};
    if (is_adam) {
      const Json betas = initial.value("betas", Json({0.9, 0.999}));
      group.insert({{"beta1", number(betas.at(0))}, {"beta2", number(betas.at(1))}});
    } else {
      group["momentum"] = number_or(initial, "momentum", 0.9);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

void run_torch(const Json& one_case) {
  require_known_fields(one_case, {"name", "class", "args", "optimizer", "initial", "watched", "values", "resume",
                                  "step_argument", "note"});
  Played played;
  played.groups = torch_groups(one_case);
  played.shown.assign(played.groups.size(), shown_names(one_case.at("watched")));
  played.rules = rules_of(one_case, played.groups.size(), one_case.at("values").size());
  if (one_case.contains("step_argument")) {
    const std::vector<double> arguments = one_case.at("step_argument");
    if (one_case.at("class") == "ReduceLROnPlateau") {
      played.monitors = {"loss"};
      played.measured = arguments;
    } else {  // parts of epochs
      played.length.steps_per_epoch = std::lround(1 / arguments.front());
      for (std::string& rule : played.rules) rule += ",by=epoch,smooth=true";
    }
  }
  expect_played(played, flat_rows(one_case.at("values")), one_case.at("resume").at("at_step"));
}

}  // namespace lockstep::testing::reference
