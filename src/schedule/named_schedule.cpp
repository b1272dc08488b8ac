// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/named_schedule.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <optional>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::schedule {

namespace {

/// A position or a length, counted from the first step of the run.
struct Length {
  std::string number;  ///< the text, without its unit
  double value = 0;
  bool is_in_epochs = false;

  /// The options by which a rule counts in this unit.
  std::string unit() const { return is_in_epochs ? ",by=epoch,smooth=true" : ""; }
};

/// "100", "5epochs" or "1epoch"; epochs may have fractions.
std::optional<Length> parse_length(const std::string& text) {
  Length length{.number = text};
  for (const std::string word : {"epochs", "epoch"}) {
    if (!text.ends_with(word)) continue;
    length.number = trimmed(text.substr(0, text.size() - word.size()));
    length.is_in_epochs = true;
    break;
  }
  const std::optional<double> value = parse_real(length.number);
  if (!value || *value < 0 || (!length.is_in_epochs && !parse_integer(length.number))) return std::nullopt;
  length.value = *value;
  return length;
}

Length length_in(const Section& sched, const std::string& key, const std::string& text) {
  const std::optional<Length> length = parse_length(text);
  if (length) return *length;
  throw ConfigError(sched.cite(key) + ": '" + text +
                    "' is neither a number of steps, such as 100, nor of epochs, such as 5epochs");
}

/// The text of a number, as it was written.
const std::string& written(const Section& sched, const std::string& key) {
  return sched.values().at(key).texts.front();
}

std::vector<Length> milestones_in(const Section& sched) {
  std::vector<Length> milestones;
  if (sched.text("milestones").empty()) {
    throw ConfigError(sched.cite("name") + ": step requires sched.milestones, such as 30epochs,60epochs");
  }
  for (const std::string& text : split_list(sched.text("milestones"), ',')) {
    milestones.push_back(length_in(sched, "milestones", text));
    const Length& previous = milestones[std::max<std::size_t>(milestones.size(), 2) - 2];
    if (milestones.back().is_in_epochs != previous.is_in_epochs) {
      throw ConfigError(sched.cite("milestones") + ": write all of them in steps, or all of them in epochs");
    }
    if (milestones.back().value < previous.value) {
      throw ConfigError(sched.cite("milestones") + ": each must be at least as large as the one before");
    }
  }
  return milestones;
}

/// The rule of sched.name=step: a drop at each milestone.
std::string step_rule(const Section& sched) {
  std::vector<std::string> numbers;
  const std::vector<Length> milestones = milestones_in(sched);
  for (const Length& milestone : milestones) numbers.push_back(milestone.number);
  return "multistep,milestones=" + joined(numbers, ",") + ",gamma=" + written(sched, "gamma") +
         milestones.front().unit();
}

/// The rule of the curve after the warm-up; "" for a constant value.
std::string curve_rule(const Section& sched, const Length& warmup) {
  const std::string& name = sched.text("name");
  if (name == "step") return step_rule(sched);
  if (name == "constant" || name == "one_cycle") return name == "constant" ? "" : name;
  const std::string begin = warmup.value > 0 ? ",begin=" + warmup.number + warmup.unit() : "";
  const std::string final_factor = written(sched, "final_factor");
  if (name == "linear") return "linear" + begin + ",start_factor=1,end_factor=" + final_factor;
  const std::string power = name == "polynomial" ? ",power=" + written(sched, "power") : "";
  return name + begin + power + ",final_factor=" + final_factor;
}

}  // namespace

KeySpecs named_keys() {
  const KeySpec name = keys::choice(
      "sched.name", "none",
      "Learning rate schedule, which changes the rate at every step. cosine, linear, polynomial = fall to "
      "sched.final_factor at the end of the run; step = drops at sched.milestones; one_cycle = rise over 30 % of the "
      "run, then fall; constant = only a warm-up; none = the schedule of sched.rule, if any",
      {"none", "constant", "cosine", "linear", "polynomial", "step", "one_cycle"});
  const auto only_with = [&name](const std::vector<std::string>& readers, const KeySpec& key) {
    std::vector<std::string> others = name.choices;
    std::erase_if(others, [&](const std::string& choice) { return std::ranges::count(readers, choice) > 0; });
    return keys::not_read_by(key, name.name, others);
  };
  const std::vector<std::string> with_warmup = {"constant", "cosine", "linear", "polynomial", "step"};
  return {
      name,
      only_with(with_warmup, keys::text("sched.warmup", "0",
                                        "Linear warm-up from sched.warmup_factor to 1: a number of steps, such as 100, "
                                        "or of epochs, such as 5epochs. 0 = disabled. Not with none and one_cycle")),
      only_with(with_warmup, keys::real("sched.warmup_factor", "0.01",
                                        "Factor on the learning rate in the first step of sched.warmup", 0, 1)),
      only_with({"cosine", "linear", "polynomial"},
                keys::real("sched.final_factor", "0",
                           "cosine, linear, polynomial: factor on the learning rate at the end of the run", 0, 1)),
      only_with({"polynomial"}, keys::real("sched.power", "1", "polynomial: exponent of (1 - progress)^power", 0)),
      only_with({"step"}, keys::text("sched.milestones", "",
                                     "step: positions of the drops, counted from the first step of the run: steps, "
                                     "such as 3000,6000, or epochs, such as 30epochs,60epochs")),
      only_with({"step"}, keys::real_above("sched.gamma", 0, keys::kUnlimited, "0.1",
                                           "step: factor on the learning rate at each milestone")),
  };
}

std::vector<std::string> rules_of(const Section& sched) {
  const std::string& name = sched.text("name");
  if (name == "none") return sched.texts("rule");
  const std::vector<std::string>& own = sched.texts("rule");
  if (std::any_of(own.begin(), own.end(), [](const std::string& rule) { return !rule.empty(); })) {
    throw ConfigError(sched.cite("rule") + " cannot be combined with sched.name=" + name + " (" + sched.origin("name") +
                      "); set sched.name=none, or remove the rules");
  }
  const Length warmup = name == "one_cycle" ? Length{.number = "0"} : length_in(sched, "warmup", sched.text("warmup"));
  std::vector<std::string> rules;
  if (warmup.value > 0) {
    rules.push_back("linear,start_factor=" + written(sched, "warmup_factor") + ",end=" + warmup.number + warmup.unit());
  }
  if (const std::string curve = curve_rule(sched, warmup); !curve.empty()) rules.push_back(curve);
  return rules;
}

std::string origin_of_rules(const Section& sched) {
  const std::string& name = sched.text("name");
  return name == "none" ? sched.origin("rule") : sched.origin("name") + ": sched.name=" + name;
}

}  // namespace lockstep::schedule
