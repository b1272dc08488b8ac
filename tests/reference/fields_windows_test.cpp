// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "core/text/text.hpp"
#include "data/fields/field_dataset.hpp"
#include "fields.hpp"
#include "support/npy.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;

/// An entry of data.variables.
std::string variable_text(const Json& variable, const Json& by_coordinate) {
  const std::string path = variable.at("path");
  std::vector<std::string> inside;
  if (variable.contains("pick")) {
    for (const Json& index : variable.at("pick")) inside.push_back(index.dump());
  }
  if (by_coordinate.contains(path)) {
    for (const auto& [axis, value] : by_coordinate.at(path).items()) inside.push_back(axis + "=" + value.dump());
  } else if (variable.contains("select")) {
    for (const auto& [axis, index] : variable.at("select").items()) inside.push_back(axis + "#" + index.dump());
  }
  return inside.empty() ? path : path + "[" + joined(inside, ",") + "]";
}

std::string variables_text(const Json& variables, const Json& by_coordinate) {
  std::vector<std::string> entries;
  for (const Json& variable : variables) entries.push_back(variable_text(variable, by_coordinate));
  return joined(entries, ",");
}

/// "x:3-14,y:0-7", or "x:3".
std::string axes_text(const Json& axes) {
  std::vector<std::string> parts;
  for (const auto& [axis, value] : axes.items()) {
    parts.push_back(axis + ":" + (value.is_array() ? value[0].dump() + "-" + value[1].dump() : value.dump()));
  }
  return joined(parts, ",");
}

bool is_set(const Json& object, const std::string& field) {
  return object.contains(field) && !object.at(field).is_null();
}

Json json_of(const data::FieldPlace& place) { return {place.file, place.trajectory, place.start}; }

/// Compares a value of a sample with its array; gaps are zero, and false in `mask`.
/// @param mask  null = there is none
void expect_array(const at::Tensor& actual, const Json& array, const bool* mask, const std::string& what) {
  ASSERT_EQ(actual.sizes().vec(), array.at("shape").get<std::vector<std::int64_t>>()) << what;
  const std::vector<double> expected = stored_values(array);
  const auto* values = actual.const_data_ptr<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool is_gap = std::isnan(expected[i]);
    if (mask != nullptr) {
      ASSERT_EQ(mask[i], !is_gap) << what << ", element " << i;
    }
    ASSERT_NEAR(values[i], is_gap ? 0 : expected[i], is_gap ? 0 : 2.5e-7 * std::abs(expected[i]))
        << what << ", element " << i;
  }
}

}  // namespace

const data::FieldDataset& fields_of(const data::Splits& splits) {
  return dynamic_cast<const data::FieldDataset&>(*splits.train);
}

std::vector<double> npy_numbers(const std::string& path) {
  const auto file = arrays::open_arrays(field_file(path).string());
  const arrays::ArrayInfo info = file->find("");
  std::vector<std::byte> stored(static_cast<std::size_t>(arrays::size_of(arrays::whole(info))) * info.type.bytes);
  file->read(info, arrays::whole(info), stored);
  std::vector<double> numbers(stored.size() / info.type.bytes);
  arrays::decode(arrays::packing_of(path, info), stored, std::span(numbers));
  return numbers;
}

Section fields_section(const Json& one_case) {
  Section section = Section::with_defaults("data", data::data_keys());
  const auto set = [&section](const std::string& key, const std::string& value) { section.set(key, value, "test"); };
  set("name", "fields");
  set("val_fraction", "0");
  set("cache", "off");
  std::vector<std::string> paths, target_paths;
  for (const Json& file : one_case.at("files")) {
    paths.push_back(field_file(file.is_array() ? file[0] : file).string());
    if (file.is_array()) target_paths.push_back(field_file(file[1]).string());
  }
  set("path", joined(paths, ","));
  set("target_path", joined(target_paths, ","));

  const Json by_coordinate = one_case.value("select_by_coordinate", Json::object());
  set("variables", variables_text(one_case.at("variables"), by_coordinate));
  if (is_set(one_case, "targets")) set("target_variables", variables_text(one_case.at("targets"), by_coordinate));
  std::set<std::string> layouts;
  const auto add_layout = [&layouts](const Json& variable) {
    const std::string path = variable.at("path"), layout = variable.at("layout");
    layouts.insert(path.empty() ? layout : path + ":" + layout);
  };
  for (const char* field : {"variables", "targets", "statics"}) {
    if (!is_set(one_case, field)) continue;
    for (const Json& variable : one_case.at(field)) add_layout(variable);
  }
  set("layout", joined({layouts.begin(), layouts.end()}, ","));
  if (is_set(one_case, "statics")) {
    for (const Json& variable : one_case.at("statics")) {
      set("static", field_file(variable.at("file")).string() + ":" + variable_text(variable, by_coordinate));
    }
  }
  for (const char* key : {"steps_in", "steps_out", "stride", "lead"}) {
    if (is_set(one_case, key)) set(key, one_case.at(key).dump());
  }
  if (one_case.value("across_files", false)) set("join", "true");
  if (one_case.contains("starts")) set("starts", one_case.at("starts"));
  if (one_case.contains("every")) set("starts", "every:" + one_case.at("every").dump());
  if (one_case.contains("cadence")) set("cadence", one_case.at("cadence"));
  if (one_case.contains("crop")) set("crop", axes_text(one_case.at("crop")));
  if (one_case.contains("subsample")) set("subsample", axes_text(one_case.at("subsample")));
  return section;
}

void run_windows_case(const Json& one_case) {
  const bool has_gaps = std::ranges::any_of(one_case.at("arrays"), [](const Json& array) {
    return array.value("missing_in_input", 0) + array.value("missing_in_target", 0) > 0;
  });
  Section section = fields_section(one_case);
  if (has_gaps) section.set("gaps", "zero", "test");
  const data::Splits splits = data::open(section);
  const data::FieldDataset& fields = fields_of(splits);
  ASSERT_EQ(fields.size(), one_case.at("count").get<std::int64_t>());
  for (std::size_t i = 0; i < one_case.at("samples").size(); ++i) {
    EXPECT_EQ(json_of(fields.place(static_cast<std::int64_t>(i))), one_case.at("samples")[i]) << "sample " << i;
  }
  EXPECT_EQ(Json(fields.task().sample_shape), one_case.at("input_shape"));
  EXPECT_EQ(std::ssize(fields.task().fields.channels), one_case.at("target_shape")[0].get<std::int64_t>());
  for (const Json& array : one_case.at("arrays")) {
    const std::int64_t index = array.at("sample");
    EXPECT_EQ(json_of(fields.place(index)), array.at("file_trajectory_start"));
    const batch::Batch batch = fields.get(batch::draws_in_order(index, 1));
    const std::string what = "sample " + std::to_string(index);
    expect_array(batch.input()[0], array.at("input"), nullptr, what + ", input");
    const at::Tensor mask = has_gaps ? batch.tensor("mask")[0].contiguous() : at::Tensor();
    expect_array(batch.target()[0], array.at("target"), has_gaps ? mask.const_data_ptr<bool>() : nullptr,
                 what + ", target");
  }
}

namespace {

void check_window_count(const Json& one_case) {
  const auto number = [&one_case](const char* field) { return one_case.at(field).get<std::int64_t>(); };
  const data::WindowRule rule{.steps_in = number("steps_in"),
                              .steps_out = number("steps_out"),
                              .stride = number("stride"),
                              .lead = number("lead")};
  EXPECT_EQ(std::ssize(data::starts_in(0, number("steps"), rule, {})), number("windows")) << one_case.dump();
}

void check_pdebench_split(const Json& one_case) {
  const TemporaryFolder folder;
  const std::int64_t samples = one_case.at("samples");
  std::vector<float> rows(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  const std::string path = folder / "rows.npy";
  write_npy(path, {samples, 1}, rows);

  const std::int64_t begin = one_case.at("train")[0], end = one_case.at("train")[1];
  Section section = Section::with_defaults("data", data::data_keys());
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"name", "fields"},
                                          {"path", path},
                                          {"layout", "nc"},
                                          {"trajectories", std::to_string(begin) + "-" + std::to_string(end - 1)}}) {
    section.set(key, value, "test");
  }
  const data::Splits splits = data::open(section);
  const auto rows_of = [](const std::shared_ptr<const data::Dataset>& dataset) {
    std::vector<float> values;
    for (std::int64_t i = 0; dataset && i < dataset->size(); ++i) {
      values.push_back(dataset->get(batch::draws_in_order(i, 1)).input().item<float>());
    }
    return values;
  };
  const auto between = [&rows](std::int64_t first, std::int64_t last) {
    return std::vector<float>(rows.begin() + first, rows.begin() + last);
  };
  EXPECT_EQ(rows_of(splits.train), between(begin, end));
  EXPECT_EQ(rows_of(splits.val), between(one_case.at("test")[0], one_case.at("test")[1]));
}

}  // namespace

void check_window_counts() {
  const Json document = load("fields/windows.json");
  ASSERT_FALSE(document.at("counts").empty());
  for (const Json& one_case : document.at("counts")) check_window_count(one_case);
}

void check_pdebench_splits() {
  const Json document = load("fields/windows.json");
  ASSERT_FALSE(document.at("pdebench_split").empty());
  for (const Json& one_case : document.at("pdebench_split")) check_pdebench_split(one_case);
}

namespace {

/// Whether a message names everything that it must.
void expect_names(const Error& error, const Json& one_case) {
  const std::string message = error.what();
  for (const std::string& name : one_case.at("must_name").get<std::vector<std::string>>()) {
    EXPECT_NE(message.find(name), std::string::npos) << "'" << name << "' is missing in: " << message;
    if (name.find('.') != std::string::npos) {
      EXPECT_EQ(error.exit_code(), ExitCode::data) << message;
    }
  }
  for (const std::string& name : one_case.value("should_name", std::vector<std::string>())) {
    EXPECT_NE(message.find(name), std::string::npos) << "'" << name << "' is missing in: " << message;
  }
}

/// Reads every sample; those with a bad step must fail, and those with good steps alone must not.
void check_reading(const data::FieldDataset& fields, const Json& one_case) {
  const auto steps = [&one_case](const char* field) {
    const auto list = one_case.value(field, std::vector<std::int64_t>());
    return std::set<std::int64_t>(list.begin(), list.end());
  };
  const std::set<std::int64_t> bad = steps("bad_steps"), good = steps("good_steps");
  int failures = 0;
  for (std::int64_t i = 0; i < fields.size(); ++i) {
    const data::WindowRule& rule = fields.description().rule;
    std::vector<std::int64_t> read = rule.input_steps(fields.place(i).start);
    for (const std::int64_t step : rule.target_steps(fields.place(i).start)) read.push_back(step);
    const auto is_in = [&read](const std::set<std::int64_t>& set) {
      return std::ranges::count_if(read, [&set](std::int64_t step) { return set.contains(step); });
    };
    try {
      fields.get(batch::draws_in_order(i, 1));
      EXPECT_EQ(is_in(bad), 0) << "sample " << i << " has a bad step, but it was read";
    } catch (const Error& error) {
      ++failures;
      EXPECT_NE(is_in(good), std::ssize(read)) << "sample " << i << ": " << error.what();
      expect_names(error, one_case);
    }
  }
  if (one_case.at("verdict") == "refuse") {
    EXPECT_GT(failures, 0);
  }
}

/// The file of another topic that a case without files names, and the channel that it lacks.
Json with_channel(Json one_case) {
  if (!one_case.contains("makani_file")) return one_case;
  one_case["files"] = {one_case.at("makani_file")};
  one_case["variables"] = {{{"path", "fields[" + one_case.at("channel").get<std::string>() + "]"}, {"layout", "tcyx"}}};
  return one_case;
}

}  // namespace

void run_malformed_case(const Json& one_case) {
  SCOPED_TRACE(one_case.at("name").get<std::string>());
  const Json settings = with_channel(one_case);
  const bool is_refused_at_start = one_case.at("verdict") == "refuse" && one_case.at("when") == "open";
  try {
    Section section = fields_section(settings);
    if (settings.contains("makani_file")) section.set("layout", "fields:tcyx", "test");
    if (settings.contains("means")) {
      section.set("statistics",
                  field_file(settings.at("means")).string() + "," + field_file(settings.at("stds")).string(), "test");
    }
    // A channel without any value is found where gaps are no errors.
    if (one_case.at("when") == "statistics") section.set("gaps", "mean", "test");
    const data::Splits splits = data::open(section);
    EXPECT_FALSE(is_refused_at_start) << "it was opened";
    const data::FieldDataset& fields = fields_of(splits);
    if (one_case.at("when") == "read") check_reading(fields, one_case);
    if (one_case.at("when") == "statistics") {
      std::vector<std::vector<double>> parts;
      for (std::int64_t i = 0; i < fields.parts(); ++i) parts.push_back(fields.measure(i));
      fields.result(parts);
      EXPECT_NE(one_case.at("verdict"), "refuse") << "there are statistics";
    }
    if (one_case.contains("windows_if_passed_over")) {
      EXPECT_EQ(fields.size(), one_case.at("windows_if_passed_over").get<std::int64_t>());
    }
    if (one_case.contains("windows_without_gap")) {
      Json windows = Json::array();
      for (std::int64_t i = 0; i < fields.size(); ++i) windows.push_back(json_of(fields.place(i)));
      EXPECT_EQ(windows, one_case.at("windows_without_gap"));
    }
  } catch (const Error& error) {
    EXPECT_NE(one_case.at("when"), "read") << error.what();
    expect_names(error, one_case);
  }
}

}  // namespace lockstep::testing::reference
