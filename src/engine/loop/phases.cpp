// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/phases.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <charconv>
#include <string_view>

#include "core/option_list.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kLongestPattern = 1000000;

struct Part {
  std::string word;
  std::int64_t count = 1;
};

/// "train:2" -> {train, 2}.
Part part_of(const std::string& text, const std::string& cited) {
  const std::size_t colon = text.find(':');
  Part part{.word = text.substr(0, colon), .count = 1};
  if (colon != std::string::npos) {
    const std::string_view digits = std::string_view(text).substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), part.count);
    if (error != std::errc() || end != digits.data() + digits.size()) part.count = 0;
  }
  const bool is_known = part.word == "train" || part.word == "test";
  if (is_known && part.count >= 1 && part.count <= kLongestPattern) return part;
  throw ConfigError(cited + ": '" + text + "' is neither train:N nor test, such as in train:2,test");
}

}  // namespace

KeySpecs PhaseSettings::keys() {
  return {keys::text("train.phases", "",
                     "Repeated pattern of training epochs and evaluations, for example train:2,test. If empty, the "
                     "keys of section eval apply")};
}

PhaseSettings PhaseSettings::from(const Section& train, const Section& eval) {
  return {.pattern = cited_text(train, "phases"),
          .interval = Intervals::parse(eval.text("interval"), 0, eval.cite("interval")),
          .every_epochs = Intervals::parse(eval.text("every_epochs"), 1, eval.cite("every_epochs")),
          .begin_epoch = eval.integer("begin_epoch")};
}

Phases::Phases(const PhaseSettings& settings) : every_(settings.every_epochs), begin_(settings.begin_epoch) {
  const auto& [text, cited] = settings.pattern;
  if (text.empty()) return;
  for (const std::string& word : split_list(text, ',')) {
    const Part part = part_of(word, cited);
    if (part.word == "train") {
      pattern_.insert(pattern_.end(), static_cast<std::size_t>(part.count), false);
    } else if (pattern_.empty()) {
      throw ConfigError(
          cited +
          ": the pattern must start with training, for example train:2,test; use `trainer eval` to evaluate only");
    } else {
      pattern_.back() = true;
    }
  }
  if (every_ != Intervals(1) || begin_ != 1 || !settings.interval.is_off()) {
    throw ConfigError(cited +
                      " defines the evaluations; do not set eval.interval, eval.every_epochs and eval.begin_epoch");
  }
}

bool Phases::is_test_due(std::int64_t epochs, bool is_last) const {
  if (is_last) return true;
  if (epochs < 1) return false;
  if (pattern_.empty()) return epochs >= begin_ && every_.is_due(epochs);
  return pattern_[static_cast<std::size_t>(epochs - 1) % pattern_.size()];
}

std::string Phases::plan(std::int64_t epochs) const {
  std::string plan;
  for (std::int64_t done = 1; done <= epochs; ++done) plan += is_test_due(done, done == epochs) ? "Tt" : "T";
  return plan;
}

std::int64_t Phases::done_before(std::int64_t epochs) const {
  std::int64_t phases = epochs;
  for (std::int64_t done = 1; done < epochs; ++done) phases += is_test_due(done, false) ? 1 : 0;
  return phases;
}

}  // namespace lockstep::engine
