// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/best_values.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::engine {

namespace {

/// The word in a checkpoint.
const char* word_of(Better better) { return better == Better::lower ? "less" : "greater"; }

}  // namespace

bool is_metric(const std::string& full, const std::string& wanted) {
  return full == wanted || full.ends_with("/" + wanted);
}

BestValues::BestValues(const BestSettings& settings)
    : keep_(settings.keep), metric_(settings.metric.value == "auto" ? "val/loss" : settings.metric.value) {
  if (is_off()) return;
  better_ = chosen_better(metric_, settings.better, settings.metric.cite, "ckpt.better");
}

std::vector<std::int64_t> BestValues::steps() const {
  std::vector<std::int64_t> steps;
  for (const BestValue& entry : entries_) steps.push_back(entry.step);
  return steps;
}

bool BestValues::is_better(double left, double right) const {
  return better_ == Better::lower ? left < right : left > right;
}

bool BestValues::insert(BestValue entry) {
  if (!std::isfinite(entry.value)) return false;
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
               "ckpt.metric: '" + metric_ + "' is not an evaluation metric; the evaluation computes: " + names);
}

void BestValues::capture(checkpoints::Archive& archive, const std::string& group) const {
  archive.set(group, "metric", metric_);
  archive.set(group, "rule", std::string(word_of(better_)));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string path = group + "/" + std::to_string(i);
    archive.set(path, "value", entries_[i].value);
    archive.set(path, "step", entries_[i].step);
  }
}

bool BestValues::restore(const checkpoints::Archive& archive, const std::string& group) {
  if (archive.text(group, "metric") != metric_ || archive.text(group, "rule") != word_of(better_)) return false;
  entries_.clear();
  for (const std::string& number : archive.groups_in(group)) {
    const std::string path = group + "/" + number;
    insert({archive.real(path, "value"), archive.integer(path, "step")});
  }
  return true;
}

}  // namespace lockstep::engine
