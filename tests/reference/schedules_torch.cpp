// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <map>
#include <stdexcept>

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
  const double most = number_or(args, "max_momentum", 0.95) / base;
  rules.push_back(
      common.add("of", "momentum").add("base", base).add("start_factor", most).add("final_factor", most).text());
  return rules;
}

Rules cyclic(const Json& args) {
  require_known_fields(args,
                       {"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum"});
  static const std::map<std::string, std::string> shapes = {
      {"triangular", "even"}, {"triangular2", "halved"}, {"exp_range", "exponential"}};
  RuleText common("cyclic");
  common.add("up", number(args.at("step_size_up")));
  if (args.contains("step_size_down")) common.add("down", number(args.at("step_size_down")));
  common.add("shape", shapes.at(args.value("mode", "triangular"))).add("gamma", number_or(args, "gamma", 1));
  const double peak = number(args.at("max_lr"));
  Rules rules = {RuleText(common).add("base", peak).add("start_factor", number(args.at("base_lr")) / peak).text()};
  const bool with_momentum = args.value("cycle_momentum", true);  // from 0.9 down to 0.8
  if (with_momentum)
    rules.push_back(common.add("of", "momentum").add("base", 0.8).add("start_factor", 0.9 / 0.8).text());
  return rules;
}

Rules plateau(const Json& args, std::size_t groups) {
  require_known_fields(args, {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr"});
  Rules rules;
  for (std::size_t g = 0; g < groups; ++g) {
    rules.push_back(RuleText("plateau")
                        .add("monitor", "loss")
                        .add("better", args.at("mode") == "min" ? "less" : "greater")
                        .add("factor", number(args.at("factor")))
                        .add("patience", number(args.at("patience")))
                        .add("threshold", number_or(args, "threshold", 1e-4))
                        .add("measure", args.value("threshold_mode", "rel") == "rel" ? "product" : "absolute")
                        .add("cooldown", number_or(args, "cooldown", 0))
                        .add("floor", of_group(args.value("min_lr", Json(0)), g))
                        .add("group", std::to_string(g))
                        .text());
  }
  return rules;
}

/// Those that need nothing but their arguments.
Rules plain(const std::string& kind, const Json& args) {
  const auto get = [&](const char* key) { return number(args.at(key)); };
  if (kind == "PolynomialLR") {
    return {RuleText("polynomial").add("end", get("total_iters")).add("power", get("power")).text()};
  }
  if (kind == "CosineAnnealingLR") {
    return {RuleText("cosine").add("length", get("T_max")).add("floor", get("eta_min")).text()};
  }
  if (kind == "StepLR") return {RuleText("step").add("size", get("step_size")).add("gamma", get("gamma")).text()};
  if (kind == "MultiStepLR") {
    const std::vector<double> milestones = args.at("milestones");
    return {RuleText("multistep").add("milestones", text_of(milestones)).add("gamma", get("gamma")).text()};
  }
  if (kind == "ExponentialLR") return {RuleText("exponential").add("gamma", get("gamma")).text()};
  if (kind == "LinearLR") {
    return {RuleText("linear")
                .add("start_factor", get("start_factor"))
                .add("end_factor", get("end_factor"))
                .add("end", get("total_iters"))
                .text()};
  }
  if (kind == "ConstantLR")
    return {RuleText("constant").add("factor", get("factor")).add("end", get("total_iters")).text()};
  throw std::runtime_error("no test knows the class '" + kind + "'");
}

/// Those whose arguments stand in a note in words.
Rules noted(const std::string& name) {
  static const std::map<std::string, Rules> rules = {
      {"lambda_warmup_linear_decay",
       {"linear,start_factor=" + text_of(1.0 / 11) + ",end=10", "linear,start_factor=1,end_factor=0,begin=10,end=70"}},
      {"lambda_noam", {"constant,factor=" + text_of(std::pow(10, -0.5)), "inverse_sqrt,warmup=10,offset=1"}},
      {"multiplicative", {"step,size=2,gamma=0.9", "constant,factor=0.95,begin=1", "step,size=2,gamma=0.95,begin=1"}},
      {"sequential_linear_cosine_exp",
       {"composite,end=1000,scaling=shifted,lengths=0.01/0.03/0.96,curves=(linear,start_factor=0.1 | "
        "cosine,floor=0.001 | exponential,gamma=0.9)"}},
      {"sequential_constant_step",
       {"composite,end=1000,scaling=shifted,lengths=0.01/0.99,curves=(constant,factor=0.1 | step,size=5,gamma=0.5)"}},
      {"chained_constant_exp", {"constant,factor=0.1,end=4", "exponential,gamma=0.9"}}};
  return rules.at(name);
}

Rules rules_of(const Json& one_case, std::size_t groups) {
  const std::string kind = one_case.at("class");
  const Json& args = one_case.at("args");
  if (kind == "CosineAnnealingWarmRestarts") return warm_restarts(args);
  if (kind == "OneCycleLR") return one_cycle(args, groups);
  if (kind == "CyclicLR") return cyclic(args);
  if (kind == "ReduceLROnPlateau") return plateau(args, groups);
  return args.empty() ? noted(one_case.at("name")) : plain(kind, args);
}

/// Groups of SGD with momentum 0.9, or of Adam.
std::vector<schedule::Numbers> groups_of(const Json& one_case) {
  std::vector<schedule::Numbers> groups;
  for (const Json& initial : one_case.at("initial")) {
    schedule::Numbers group = {{"lr", number(initial.at("lr"))}};
    if (one_case.at("optimizer") == "adam") {
      group.insert({{"beta1", 0.9}, {"beta2", 0.999}});
    } else {
      group["momentum"] = 0.9;
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
  played.groups = groups_of(one_case);
  played.shown.assign(played.groups.size(), shown_names(one_case.at("watched")));
  played.rules = rules_of(one_case, played.groups.size());
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
