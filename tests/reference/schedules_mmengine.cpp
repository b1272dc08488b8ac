// SPDX-License-Identifier: BSD-3-Clause
#include "schedules_mmengine.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace lockstep::testing::reference {

namespace {

constexpr double kNoEnd = 1e9;

/// A scheduler of the reference moves a value for the last time one step before its `end`, and stays there.
struct Frame {
  double begin;  // steps or epochs, as given
  double end;
  double unit = 1;    // steps in what is counted
  double begin_step;  // begin, converted to steps
  double end_step;
  std::string by;

  double in_units(double step) const { return step / unit; }
  std::string last() const { return text_of(in_units(end_step - 1)); }
  double width() const { return in_units(end_step - begin_step); }
};

class Translation {
 public:
  Translation(const std::string& class_name, Json args, const std::string& unit, std::size_t groups)
      : args_(std::move(args)), groups_(groups) {
    const std::map<std::string, std::string> options = {{"LR", "lr"}, {"Momentum", "momentum"}, {"ParamScheduler", ""}};
    for (const auto& [ending, option] : options) {
      if (!class_name.ends_with(ending)) continue;
      kind_ = class_name.substr(0, class_name.size() - ending.size());
      option_ = option.empty() ? take("param_name", Json("lr")).get<std::string>() : option;
    }
    frame_ = frame(unit);
  }

  Rules rules() {
    using Write = Rules (Translation::*)();
    static const std::map<std::string, Write> rows = {{"Constant", &Translation::constant},
                                                      {"Linear", &Translation::linear},
                                                      {"Exponential", &Translation::exponential},
                                                      {"Step", &Translation::step},
                                                      {"MultiStep", &Translation::multistep},
                                                      {"CosineAnnealing", &Translation::cosine},
                                                      {"Poly", &Translation::poly},
                                                      {"CosineRestart", &Translation::cosine_restart},
                                                      {"OneCycle", &Translation::one_cycle},
                                                      {"ReduceOnPlateau", &Translation::plateau}};
    Rules rules = (this->*rows.at(kind_))();
    for (std::string& rule : rules) {
      if (option_ != "lr") rule += ",of=" + option_;
      for (const auto& [key, value] : args_.items())
        rule += "," + key + "=" + value.dump();  // options that have no place here
    }
    return rules;
  }

 private:
  Json take(const std::string& key, Json otherwise) {
    Json value = args_.value(key, std::move(otherwise));
    args_.erase(key);
    return value;
  }
  double take_number(const std::string& key, double otherwise) { return number(take(key, Json(otherwise))); }

  Frame frame(const std::string& unit) {
    Frame frame{
        .begin = take_number("begin", 0), .end = take_number("end", kNoEnd), .begin_step = 0, .end_step = 0, .by = ""};
    const bool by_epoch = take("by_epoch", Json(true)).get<bool>();
    const bool is_converted = take("convert_to_iter_based", Json(false)).get<bool>();
    const double length = take_number("epoch_length", 1);
    if (is_converted) frame.unit = length;
    const auto steps = [&](double count) { return count == kNoEnd ? kNoEnd : std::floor(count * frame.unit); };
    frame.begin_step = steps(frame.begin);
    frame.end_step = steps(frame.end);
    if (is_converted) {
      frame.by = ",by=epoch,smooth=true";
    } else if (by_epoch && unit == "epoch") {
      frame.by = ",by=epoch";
    }
    return frame;
  }

  /// @param end  as Lockstep counts it
  RuleText curve(const std::string& name, const std::string& end) const {
    RuleText rule(name + frame_.by);
    if (frame_.begin != 0) rule.add("begin", frame_.begin);
    return rule.add("end", end);
  }
  bool is_one_step() const { return frame_.end_step - frame_.begin_step == 1; }

  void add_floor(RuleText& rule) {
    if (args_.contains("eta_min")) rule.add("floor", take_number("eta_min", 0));
    if (args_.contains("eta_min_ratio")) rule.add("final_factor", take_number("eta_min_ratio", 0));
  }

  Rules constant() {
    const double factor = take_number("factor", 1.0 / 3);
    // TRAP: there a window of one step never ends.
    return {curve("constant", is_one_step() ? text_of(kNoEnd) : frame_.last()).add("factor", factor).text()};
  }

  Rules linear() {
    const double start = take_number("start_factor", 1.0 / 3);
    const double end = take_number("end_factor", 1);
    if (is_one_step()) return {curve("constant", text_of(kNoEnd)).add("factor", start).text()};  // TRAP: likewise
    return {curve("linear", frame_.last()).add("start_factor", start).add("end_factor", end).text()};
  }

  Rules exponential() {
    // TRAP: conversion leaves gamma as it is, so that it counts in every step.
    return {curve("exponential", frame_.last()).add("gamma", std::pow(take_number("gamma", 0), frame_.unit)).text()};
  }

  Rules step() {
    const double size = take_number("step_size", 0);
    return {curve("step", text_of(frame_.end)).add("size", size).add("gamma", take_number("gamma", 0.1)).text()};
  }

  Rules multistep() {
    const std::vector<double> milestones = take("milestones", Json()).get<std::vector<double>>();
    return {curve("multistep", text_of(frame_.end))
                .add("milestones", text_of(milestones))
                .add("gamma", take_number("gamma", 0.1))
                .text()};
  }

  Rules cosine() {
    RuleText rule = curve("cosine", frame_.last());
    rule.add("length", take_number("T_max", frame_.width()));
    add_floor(rule);
    return {rule.text()};
  }

  Rules poly() {
    RuleText rule = curve("polynomial", frame_.last());
    rule.add("power", take_number("power", 1));
    add_floor(rule);
    return {rule.text()};
  }

  Rules cosine_restart() {
    const std::vector<double> periods = take("periods", Json()).get<std::vector<double>>();
    const double sum = std::accumulate(periods.begin(), periods.end(), 0.0) * frame_.unit;
    const double last = std::min(frame_.end_step, frame_.begin_step + sum) - 1;
    RuleText rule = curve("cosine_restart", text_of(frame_.in_units(last)));
    rule.add("periods", text_of(periods));
    rule.add("weights", text_of(take("restart_weights", Json({1.0})).get<std::vector<double>>()));
    add_floor(rule);
    return {rule.text()};
  }

  /// A list of values for the groups becomes a rule for each group.
  Rules for_each_group(const std::string& rule, const std::string& key, const Json& values) const {
    if (!values.is_array()) return {rule + "," + key + "=" + text_of(number(values))};
    if (values.size() != groups_) return {rule + "," + key + "=" + text_of(values.get<std::vector<double>>())};
    Rules rules;
    for (std::size_t g = 0; g < groups_; ++g) {
      rules.push_back(rule + "," + key + "=" + text_of(number(values[g])) + ",group=" + std::to_string(g));
    }
    return rules;
  }

  Rules one_cycle() {
    const double total = take_number("total_steps", frame_.width()) * frame_.unit;
    const double last = total > 0 ? frame_.begin_step + total - 1 : 0;
    const double start = 1 / take_number("div_factor", 25);
    RuleText rule = curve("one_cycle", text_of(frame_.in_units(last)));
    rule.add("rise", (take_number("pct_start", 0.3) * total - 1) / (total - 1)).add("start_factor", start);
    rule.add("final_factor", start / take_number("final_div_factor", 1e4));
    const std::string shape = take("anneal_strategy", Json("cos"));
    rule.add("shape", shape == "cos" ? "cosine" : shape);
    rule.add("three_phases", take("three_phase", Json(false)).dump());
    return for_each_group(rule.text(), "base", take("eta_max", Json(0)));
  }

  Rules plateau() {
    static const std::map<std::string, std::string> measures = {{"rel", "product"}, {"abs", "absolute"}};
    const std::string measure = take("threshold_rule", Json("rel"));
    RuleText rule = curve("plateau", text_of(frame_.end));
    rule.add("metric", take("monitor", Json("loss")).get<std::string>());
    rule.add("better", take("rule", Json("less")) == "less" ? "lower" : "higher");
    rule.add("measure", measures.contains(measure) ? measures.at(measure) : measure);
    rule.add("factor", take_number("factor", 0.1)).add("patience", take_number("patience", 10));
    rule.add("threshold", take_number("threshold", 1e-4)).add("cooldown", take_number("cooldown", 0));
    rule.add("eps", take_number("eps", 1e-8));
    return for_each_group(rule.text(), "floor", take("min_value", Json(0)));
  }

  Json args_;
  std::size_t groups_;
  std::string kind_;
  std::string option_;
  Frame frame_;
};

/// {"lr": [..], "betas": [[..], ..], ..} as options of each group.
std::vector<schedule::Numbers> groups_of(const Json& initial) {
  std::vector<schedule::Numbers> groups(initial.at("lr").size());
  for (const auto& [name, values] : initial.items()) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (name == "betas") {
        groups[g]["beta1"] = number(values[g][0]);
        groups[g]["beta2"] = number(values[g][1]);
      } else {
        groups[g][name] = number(values[g]);
      }
    }
  }
  return groups;
}

}  // namespace

Rules mmengine_rules(const Json& schedulers, std::size_t groups, const std::string& unit) {
  Rules all;
  for (const Json& scheduler : schedulers) {
    for (std::string& rule : Translation(scheduler.at("class"), scheduler.at("args"), unit, groups).rules()) {
      all.push_back(std::move(rule));
    }
  }
  return all;
}

std::vector<std::string> shown_names(const Json& watched) {
  std::vector<std::string> names;
  for (const std::string name : watched) {
    if (name == "betas") {
      names.insert(names.end(), {"beta1", "beta2"});
    } else {
      names.push_back(name);
    }
  }
  return names;
}

void run_mmengine(const Json& one_case) {
  require_known_fields(one_case, {"name", "optimizer", "initial", "schedulers", "fields_after_construction", "watched",
                                  "note", "metrics", "values", "resume"});
  Played played;
  played.groups = groups_of(one_case.at("initial"));
  played.shown.assign(played.groups.size(), shown_names(one_case.at("watched")));
  played.rules = mmengine_rules(one_case.at("schedulers"), played.groups.size(), "step");
  for (const Json& scheduler : one_case.at("schedulers")) {
    const Json& args = scheduler.at("args");
    if (args.contains("epoch_length")) played.length.steps_per_epoch = args.at("epoch_length");
  }
  played.monitors = {"loss", "acc"};
  if (one_case.contains("metrics")) played.measured = one_case.at("metrics").get<std::vector<double>>();
  expect_played(played, flat_rows(one_case.at("values")), one_case.at("resume").at("at_step"));
}

}  // namespace lockstep::testing::reference
