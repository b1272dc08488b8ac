// SPDX-License-Identifier: BSD-3-Clause
// docs/files.md lists the fields of the files of a run, with their types.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace lockstep {
namespace files_test {

using Json = nlohmann::json;
using testing::run_ranks;

struct Row {
  std::vector<std::string> fields;  ///< `*` matches any text
  std::string type;
  bool is_always_present = false;
};

/// The cells of a row of a table.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 2; begin < line.size();) {
    const std::size_t end = std::min(line.find(" | ", begin), line.size());
    cells.push_back(line.substr(begin, end - begin));
    begin = end + 3;
  }
  return cells;
}

/// The rows with fields below a heading of the page.
std::vector<Row> rows_below(const std::string& heading) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  std::istringstream lines(testing::read_file(std::string(source != nullptr ? source : ".") + "/docs/files.md"));
  std::vector<Row> rows;
  bool is_below = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) is_below = line.ends_with("# " + heading);
    if (!is_below || !line.starts_with("| `")) continue;
    const std::vector<std::string> cells = cells_of(line);
    Row row{.fields = {}, .type = cells.at(1), .is_always_present = cells.at(2) == "always"};
    static const std::regex quoted("`([^`]*)`");
    for (std::sregex_iterator found(cells[0].begin(), cells[0].end(), quoted); found != std::sregex_iterator();
         ++found) {
      row.fields.push_back((*found)[1]);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

bool matches(const std::string& field, const std::string& name) {
  return std::regex_match(name, std::regex(std::regex_replace(field, std::regex("\\*"), ".+")));
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  return type == "number" ? value.is_number() : value.is_string();
}

void expect_listed(const Json& object, const std::string& heading) {
  const std::vector<Row> rows = rows_below(heading);
  ASSERT_FALSE(rows.empty()) << heading;
  for (const auto& [name, value] : object.items()) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&name = name](const Row& each) {
      return std::any_of(each.fields.begin(), each.fields.end(),
                         [&name](const std::string& field) { return matches(field, name); });
    });
    ASSERT_NE(row, rows.end()) << heading << " does not list " << name;
    EXPECT_TRUE(has_type(value, row->type)) << heading << ": " << name << " is " << value << ", not " << row->type;
  }
  for (const Row& row : rows) {
    if (!row.is_always_present) continue;
    for (const std::string& field : row.fields) {
      EXPECT_TRUE(std::any_of(object.items().begin(), object.items().end(),
                              [&field](const auto& item) { return matches(field, item.key()); }))
          << heading << ": " << field << " is missing in " << object;
    }
  }
}

/// The heading of the table for a line of metrics.jsonl.
std::string heading_of(const Json& line) {
  if (line.contains("loss")) return "Lines of training";
  if (line.contains("val/count")) return "Lines of evaluation";
  return line.contains("train/samples") ? "Lines of epochs" : "Lines of ranks";
}

TEST(FilesTest, ThePageListsTheFieldsOfARun) {
  const testing::TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto outcome =
      run_ranks(2,
                "--data.train_size=480 --data.val_size=50 --model.name=mlp --train.max_epochs=2 --train.clip_norm=1 "
                "--train.metrics=top_k --log.sections=true --run.dir=" +
                    run);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  expect_listed(Json::parse(testing::read_file(run + "/STATUS.json")), "STATUS.json");
  expect_listed(Json::parse(testing::read_file(run + "/env.json")), "env.json");

  std::istringstream lines(testing::read_file(run + "/metrics.jsonl"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"schema":"lockstep-metrics","version":1})");
  std::vector<std::string> headings;
  while (std::getline(lines, line)) {
    const Json object = Json::parse(line);
    headings.push_back(heading_of(object));
    expect_listed(object, headings.back());
  }
  for (const char* heading : {"Lines of training", "Lines of ranks", "Lines of evaluation", "Lines of epochs"}) {
    EXPECT_NE(std::find(headings.begin(), headings.end(), heading), headings.end()) << heading;
  }
  EXPECT_TRUE(testing::read_file(run + "/summary.csv").starts_with("step,epoch,val/loss,"));
}

TEST(FilesTest, ThePageListsTheFieldsOfAFailure) {
  const testing::TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto outcome =
      run_ranks(1, "--data.train_size=480 --model.name=mlp --optim.name=sgd --optim.lr=1e20 --run.dir=" + run);
  ASSERT_EQ(outcome.exit_code, 6) << outcome.output;
  expect_listed(Json::parse(testing::read_file(run + "/failure.json")), "failure.json");
  expect_listed(Json::parse(testing::read_file(run + "/STATUS.json")), "STATUS.json");
}

TEST(FilesTest, ThePageListsTheFieldsOfAFailureOfRanks) {
  const testing::TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::string rank = testing::trainer_program() + " --data.train_size=480 --model.name=mlp --run.dir=" + run;
  const auto outcome =
      testing::run_shell(testing::mpirun_command(1) + " " + rank + " : -np 1 " + rank + " --train.clip_norm=1");
  ASSERT_EQ(outcome.exit_code, 5) << outcome.output;
  const Json failure = Json::parse(testing::read_file(run + "/failure.json"));
  expect_listed(failure, "failure.json");
  ASSERT_EQ(failure["ranks"].size(), 2U) << outcome.output;
  for (const Json& state : failure["ranks"]) expect_listed(state, "Ranks of a failure");
}

}  // namespace files_test
}  // namespace lockstep
