// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/best_values.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

namespace lockstep::engine {

namespace {

// Words in lower case.
constexpr std::array<std::string_view, 9> kGreater = {"acc", "top", "ar@",  "auc", "precision",
                                                      "map", "f1",  "dice", "iou"};
constexpr std::array<std::string_view, 7> kLess = {"loss", "perplexity", "ppl", "error", "mae", "mse", "mape"};

bool has_word(const auto& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(),
                     [&name](std::string_view word) { return name.find(word) != std::string::npos; });
}

const char* word_of(BestRule rule) { return rule == BestRule::less ? "less" : "greater"; }

}  // namespace

bool is_metric(const std::string& full, const std::string& wanted) {
  return full == wanted || full.ends_with("/" + wanted);
}

std::optional<BestRule> rule_of_name(const std::string& metric) {
  std::string name = metric;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_greater = has_word(kGreater, name);
  if (is_greater == has_word(kLess, name)) return std::nullopt;
  return is_greater ? BestRule::greater : BestRule::less;
}

BestRule chosen_rule(const std::string& metric, const std::string& rule, const std::string& metric_key,
                     const std::string& rule_key) {
  if (rule != "auto") return rule == "less" ? BestRule::less : BestRule::greater;
  if (const auto inferred = rule_of_name(metric)) return *inferred;
  throw ConfigError(metric_key + ": the name '" + metric +
                    "' does not determine whether less or greater values are better; set " + rule_key +
                    "=less or greater");
}

BestValues::BestValues(const BestSettings& settings)
    : keep_(settings.keep), metric_(settings.metric.value == "auto" ? "val/loss" : settings.metric.value) {
  if (is_off()) return;
  rule_ = chosen_rule(metric_, settings.rule, settings.metric.cite, "ckpt.best_rule");
}

std::vector<std::int64_t> BestValues::steps() const {
  std::vector<std::int64_t> steps;
  for (const BestValue& entry : entries_) steps.push_back(entry.step);
  return steps;
}

bool BestValues::is_better(double left, double right) const {
  return rule_ == BestRule::less ? left < right : left > right;
}

bool BestValues::insert(BestValue entry) {
  if (std::isnan(entry.value)) return false;
  for (const BestValue& known : entries_) {
    if (known.step == entry.step) return false;
  }
  const auto place = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const BestValue& known) { return is_better(entry.value, known.value); });
  if (place == entries_.end() && static_cast<std::int64_t>(entries_.size()) >= keep_) return false;
  entries_.insert(place, entry);
  if (static_cast<std::int64_t>(entries_.size()) > keep_) entries_.pop_back();
  return true;
}

bool BestValues::offer(const Measured& measured) {
  if (is_off()) return false;
  std::string names;
  for (const auto& [name, value] : measured.values) {
    if (is_metric(name, metric_)) return insert({value, measured.step});
    names += (names.empty() ? "" : ", ") + name;
  }
  throw_agreed(ExitCode::configuration,
               "ckpt.best_metric: '" + metric_ + "' is not an evaluation metric; the evaluation computes: " + names);
}

void BestValues::capture(checkpoints::Archive& archive, const std::string& group) const {
  archive.set(group, "metric", metric_);
  archive.set(group, "rule", std::string(word_of(rule_)));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string path = group + "/" + std::to_string(i);
    archive.set(path, "value", entries_[i].value);
    archive.set(path, "step", entries_[i].step);
  }
}

bool BestValues::restore(const checkpoints::Archive& archive, const std::string& group) {
  if (archive.text(group, "metric") != metric_ || archive.text(group, "rule") != word_of(rule_)) return false;
  entries_.clear();
  for (const std::string& number : archive.groups_in(group)) {
    const std::string path = group + "/" + number;
    insert({archive.real(path, "value"), archive.integer(path, "step")});
  }
  return true;
}

}  // namespace lockstep::engine
