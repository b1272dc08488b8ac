// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/better.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace lockstep {

namespace {

// Words in lower case.
constexpr std::array<std::string_view, 9> kHigher = {"acc", "top", "ar@",  "auc", "precision",
                                                     "map", "f1",  "dice", "iou"};
constexpr std::array<std::string_view, 7> kLower = {"loss", "perplexity", "ppl", "error", "mae", "mse", "mape"};

bool has_word(const auto& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(),
                     [&name](std::string_view word) { return name.find(word) != std::string::npos; });
}

}  // namespace

std::optional<Better> better_by_name(const std::string& metric) {
  std::string name = metric;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_higher = has_word(kHigher, name);
  if (is_higher == has_word(kLower, name)) return std::nullopt;
  return is_higher ? Better::higher : Better::lower;
}

Better chosen_better(const std::string& metric, const std::string& better, const std::string& metric_key,
                     const std::string& better_key) {
  if (better != "auto") return better == "lower" ? Better::lower : Better::higher;
  if (const auto inferred = better_by_name(metric)) return *inferred;
  throw ConfigError(metric_key + ": the name '" + metric +
                    "' does not determine whether lower or higher values are better; set " + better_key +
                    "=lower or higher");
}

KeySpec better_key(const std::string& name, const std::string& former_name) {
  KeySpec key = keys::choice(
      name, "auto",
      "Whether lower or higher values of the metric are better. auto = derived from the name of the metric",
      {"auto", "lower", "higher"});
  const bool is_same_name = former_name == name;
  const auto translate = [is_same_name](const std::string& former, const std::string&) -> std::string {
    if (former == "less") return "lower";
    if (former == "greater") return "higher";
    return is_same_name ? "" : former;
  };
  return keys::replacing(key, {.key = former_name, .translate = translate, .hint = "set lower, higher or auto"});
}

}  // namespace lockstep
