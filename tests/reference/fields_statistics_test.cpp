// SPDX-License-Identifier: BSD-3-Clause
// statistics.json: moments of the channels, and samples that were normalized by the real libraries.
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "fields.hpp"
#include "models/layers/field_normalization.hpp"

namespace lockstep::testing::reference {

namespace {

constexpr double kMomentTolerance = 1e-12;
constexpr double kArrayTolerance = 2e-6;

/// The numbers of all parts, measured in any order.
data::MeasuredTask measured(const data::FieldDataset& fields) {
  std::vector<std::vector<double>> parts(static_cast<std::size_t>(fields.parts()));
  for (std::int64_t i = fields.parts() - 1; i >= 0; --i) parts[static_cast<std::size_t>(i)] = fields.measure(i);
  return fields.result(parts);
}

void expect_numbers(const Json& actual, const Json& expected, const std::string& what) {
  for (const auto& [name, value] : expected.items()) {
    const double wanted = value;
    const double scale = std::max(std::abs(wanted), expected.at("std").get<double>());
    EXPECT_NEAR(actual.at(name).get<double>(), wanted, kMomentTolerance * scale) << what << ", " << name;
  }
}

at::Tensor tensor_of(const Json& entry) {
  return torch::tensor(stored_values(entry), at::kDouble).reshape(entry.at("shape").get<std::vector<std::int64_t>>());
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor error = (actual.to(at::kDouble) - expected).abs() / (1 + expected.abs());
  EXPECT_LE(error.max().item<double>(), kArrayTolerance) << what;
}

/// The data set of a section, and the normalization that a model of it has.
struct Normalized {
  data::Splits splits;
  std::unique_ptr<models::FieldNormalization> fields;

  explicit Normalized(const Section& section) : splits(data::open(section)) {
    const FieldScaling scaling = splits.train->task().fields.scaling;
    fields = std::make_unique<models::FieldNormalization>(scaling, at::kFloat);
  }
  batch::Batch sample(std::int64_t index) const { return splits.train->get(batch::draws_in_order(index, 1)); }
};

Json without_null_targets(Json one_case) {
  if (one_case.contains("targets") && one_case.at("targets").is_null()) one_case.erase("targets");
  return one_case;
}

}  // namespace

void run_statistics_case(const Json& one_case) {
  Section section = fields_section(one_case);
  const std::int64_t lead = one_case.at("difference_steps");
  if (lead > 0) section.set("lead", std::to_string(lead), "test");
  section.set("gaps", "mean", "test");
  if (one_case.contains("latitude_axis")) section.set("statistics_area", "true", "test");
  if (one_case.contains("trajectories")) {
    std::string chosen;
    for (const Json& number : one_case.at("trajectories")) chosen += (chosen.empty() ? "" : ",") + number.dump();
    section.set("trajectories", chosen, "test");
  }
  const data::Splits splits = data::open(section);
  const Json found = Json::parse(measured(fields_of(splits)).json);
  ASSERT_EQ(found.at("channels").size(), one_case.at("channels").size());
  for (std::size_t i = 0; i < found.at("channels").size(); ++i) {
    const Json& actual = found.at("channels")[i];
    const Json& expected = one_case.at("channels")[i];
    const std::string name = expected.at("channel");
    expect_numbers(actual.at("values"), expected.at("values"), name);
    EXPECT_EQ(actual.contains("differences"), !expected.at("differences").is_null()) << name;
    if (actual.contains("differences")) {
      expect_numbers(actual.at("differences"), expected.at("differences"), name + ", differences");
    }
  }
}

void check_well_items() {
  const Json document = load("fields/statistics.json");
  const Json windows = load("fields/windows.json");
  const auto& cases = windows.at("cases");
  const auto well = std::ranges::find_if(cases, [](const Json& each) { return each.contains("the_well"); });
  ASSERT_NE(well, cases.end());
  ASSERT_FALSE(document.at("the_well_items").empty());
  for (const Json& item : document.at("the_well_items")) {
    SCOPED_TRACE(item.at("class").get<std::string>() + " " + item.at("normalization").get<std::string>());
    Json settings = without_null_targets(*well);
    for (const char* key : {"steps_in", "steps_out", "stride", "lead"}) settings[key] = item.at(key);
    Section section = fields_section(settings);
    section.set("statistics", field_file(document.at("the_well_stats")).string(), "test");
    section.set("normalize", item.at("normalization") == "RMSNormalization" ? "rms" : "zscore", "test");
    const bool is_delta = item.at("class") == "DeltaWellDataset";
    if (is_delta) section.set("predict", "steps", "test");
    const Normalized made(section);
    const batch::Batch sample = made.sample(item.at("sample"));
    const at::Tensor input = tensor_of(item.at("input"));
    const at::Tensor expected = at::cat({input.flatten(0, 1), tensor_of(item.at("static"))}, 0).unsqueeze(0);
    expect_close(made.fields->normalized(sample.input()), expected, "input");
    // The output of a perfect network becomes the target in its units.
    const at::Tensor computed = tensor_of(item.at("target")).flatten(0, 1).unsqueeze(0).to(at::kFloat);
    expect_close(made.fields->in_units(computed, sample.input()), sample.target().to(at::kDouble), "target");
  }
}

void check_given_statistics() {
  const Json document = load("fields/statistics.json");
  const auto section_of = [](const Json& file, const std::string& path, const std::string& layout) {
    return fields_section({{"files", {file}}, {"variables", {{{"path", path}, {"layout", layout}}}}});
  };
  const auto number_of_file = [&document](const char* field, const char* key) {
    return field_file(document.at(field).at(key)).string();
  };
  {
    SCOPED_TRACE("makani");
    Section section = section_of(document.at("makani").at("file"), "fields", "tcyx");
    section.set("statistics", number_of_file("makani", "bias") + "," + number_of_file("makani", "scale"), "test");
    const Normalized made(section);
    expect_close(made.fields->normalized(made.sample(document.at("makani").at("step")).input())[0],
                 tensor_of(document.at("makani").at("expected")), "input");
  }
  {
    SCOPED_TRACE("deepcam");
    const Json& deepcam = document.at("deepcam");
    Section section = section_of(deepcam.at("file"), "climate/data", "yxc");
    section.set("normalize", "minmax", "test");
    section.set("statistics",
                number_of_file("deepcam", "stats") + ":min=" + deepcam.at("minimum").get<std::string>() +
                    ",max=" + deepcam.at("maximum").get<std::string>(),
                "test");
    const Normalized made(section);
    expect_close(made.fields->normalized(made.sample(0).input())[0], tensor_of(deepcam.at("expected")), "input");
  }
  {
    SCOPED_TRACE("climsim");
    const Json& climsim = document.at("climsim");
    const auto numbers = [&climsim](const char* field) { return climsim.at(field).get<std::vector<double>>(); };
    FieldScaling scaling{.input_shift = numbers("mean"), .input_scale = numbers("divisor")};
    scaling.input_rates.resize(scaling.input_shift.size(), 0);
    const std::vector<double> rates = numbers("lambda");
    for (std::size_t i = 0; i < rates.size(); ++i) {
      scaling.input_rates[climsim.at("exponential_columns")[i].get<std::size_t>()] = rates[i];
    }
    const data::Splits splits = data::open(
        fields_section({{"files", climsim.at("files")}, {"variables", {{{"path", "data"}, {"layout", "nc"}}}}}));
    const at::Tensor rows = splits.train->get(batch::draws_in_order(0, splits.train->size())).input();
    const models::FieldNormalization fields(scaling, at::kDouble);
    expect_close(fields.normalized(rows.to(at::kDouble)), tensor_of(climsim.at("expected")), "columns");
  }
}

}  // namespace lockstep::testing::reference
