// SPDX-License-Identifier: BSD-3-Clause
// Each key, each value of a key, each row of a table that a key names, and each option of such a row has a run on the
// fake GPU, a sentence that refuses it, or a reason why it needs none: tests/fake_gpu/runs.txt.
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "engine/session.hpp"
#include "fake_gpu/fake_run.hpp"
#include "fake_gpu/run_table.hpp"
#include "trainer/predict/settings.hpp"

namespace lockstep::engine {
namespace gpu_values_test {

using testing::RunRow;

/// Something that a user can write: KEY, KEY=VALUE, KEY=NAME or KEY=NAME,OPTION=VALUE.
struct Value {
  std::string key;
  std::string value = "";   ///< empty = any but the default
  std::string option = "";  ///< OPTION=VALUE

  std::string text() const { return key + (value.empty() ? "" : "=" + value) + (option.empty() ? "" : "," + option); }
};

/// Values other than the default; empty where they cannot be listed.
std::vector<std::string> values_of(const KeySpec& key) {
  std::vector<std::string> values = key.choices;
  if (key.type == KeyType::boolean) values = {"true", "false"};
  std::erase(values, key.default_value);
  return values;
}

/// The names that a key of type text accepts.
std::vector<std::string> names_for(const std::string& key) {
  const Registry& registry = builtin_registry();
  if (key == "data.name") return names_of(registry.sources);
  if (key == "model.name") return names_of(registry.models);
  if (key == "loss.name") return names_of(registry.losses);
  if (key == "train.step_kind") return names_of(registry.steps);
  return {};
}

/// The forms of a text with options. A form that is described by a sentence, or has any name, has none here.
std::vector<Value> values_of_parts(const KeySpec& key) {
  std::vector<Value> values;
  for (const KeySpec& part : key.parts) {
    const bool is_name = part.name.find(' ') == std::string::npos && part.name != "NAME";
    const std::string name = is_name ? part.name : "";
    if (!name.empty()) values.push_back({key.name, name});
    for (const KeySpec& option : part.parts) {
      for (const std::string& value : values_of(option)) values.push_back({key.name, name, option.name + "=" + value});
    }
  }
  return values;
}

std::vector<Value> all_values() {
  KeySpecs keys = all_keys(builtin_registry());
  const KeySpecs predict = trainer::PredictSettings::keys();
  keys.insert(keys.end(), predict.begin(), predict.end());
  const config::Config config(keys);  // each key once
  std::set<std::string> selectors;    // their parts are rows, of which the keys have values of their own
  for (const KeySpec& key : config.specs()) {
    if (!key.readers.selectors.empty()) selectors.insert(key.readers.selectors.front());
  }
  std::vector<Value> all;
  for (const KeySpec& key : config.specs()) {
    const std::size_t before = all.size();
    for (const std::string& value : values_of(key)) all.push_back({key.name, value});
    for (const std::string& name : names_for(key.name)) {
      if (name != key.default_value) all.push_back({key.name, name});
    }
    const std::vector<Value> parts = selectors.contains(key.name) ? std::vector<Value>() : values_of_parts(key);
    all.insert(all.end(), parts.begin(), parts.end());
    if (all.size() == before) all.push_back({key.name});
  }
  return all;
}

/// @param word  KEY=VALUE of a run
bool is_set_by(const Value& value, const std::string& word) {
  const std::size_t equals = word.find('=');
  if (word.substr(0, equals) != value.key) return false;
  if (value.value.empty() && value.option.empty()) return true;
  if (value.option.empty() && word.substr(equals + 1) == value.value) return true;
  const std::vector<std::string> parts = split_list(word.substr(equals + 1), ',');
  const auto has = [&](const std::string& part) {
    return part.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  return has(value.option) && has(value.value);
}

bool is_named_by(const Value& value, const std::string& pattern) {
  if (pattern.ends_with('*')) return value.text().starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == value.key || pattern == value.text();
}

/// The words of all rows whose command is, or is not, "without".
std::vector<std::string> words_of_rows(bool is_without) {
  std::vector<std::string> words;
  for (const RunRow& row : testing::run_rows()) {
    if ((row.command == "without") != is_without) continue;
    words.insert(words.end(), row.words.begin(), row.words.end());
  }
  return words;
}

std::vector<std::string> words_of_all_runs() {
  std::vector<std::string> words = words_of_rows(false);
  for (const std::string& word : split_list(testing::kFakeRun, ' ')) {
    if (word.starts_with("--")) words.push_back(word.substr(2));
  }
  words.emplace_back("run.device=cuda");
  return words;
}

std::vector<Value> values_without_a_run() {
  const std::vector<std::string> words = words_of_all_runs();
  std::vector<Value> values = all_values();
  std::erase_if(values, [&](const Value& value) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return is_set_by(value, word); });
  });
  return values;
}

TEST(GpuValuesTest, EachHasARunARefusalOrAReason) {
  const std::vector<std::string> patterns = words_of_rows(true);
  std::string missing;
  for (const Value& value : values_without_a_run()) {
    const bool has_reason = std::any_of(patterns.begin(), patterns.end(),
                                        [&](const std::string& pattern) { return is_named_by(value, pattern); });
    if (!has_reason) missing += value.text() + "\n";
  }
  EXPECT_EQ(missing, "") << "have neither a run nor a reason in tests/fake_gpu/runs.txt";
}

TEST(GpuValuesTest, NoReasonIsOutOfDate) {
  const std::vector<Value> values = values_without_a_run();
  std::string unused;
  for (const std::string& pattern : words_of_rows(true)) {
    const bool is_used =
        std::any_of(values.begin(), values.end(), [&](const Value& value) { return is_named_by(value, pattern); });
    if (!is_used) unused += pattern + "\n";
  }
  EXPECT_EQ(unused, "") << "need no reason in tests/fake_gpu/runs.txt: they have runs, or do not exist";
}

TEST(GpuValuesTest, RowsAreComplete) {
  std::set<std::string> names;
  for (const RunRow& row : testing::run_rows()) {
    if (row.command == "without") {
      EXPECT_NE(row.text, "") << row.words.front();
      continue;
    }
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " occurs twice";
    EXPECT_FALSE(row.ranks.empty()) << row.name;
    EXPECT_EQ(row.command == "refused", row.bound == "-") << row.name;
    EXPECT_TRUE(row.command != "refused" || !row.text.empty()) << row.name;
  }
  EXPECT_GT(names.size(), 100U);
}

}  // namespace gpu_values_test
}  // namespace lockstep::engine
