// SPDX-License-Identifier: BSD-3-Clause
// rollout.json: predictions that become inputs, with normalization inside, and the errors of each step.
#include <lockstep/data/source.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/text/text.hpp"
#include "data/fields/field_dataset.hpp"
#include "fields.hpp"
#include "metrics/meters.hpp"

namespace lockstep::testing::reference {

namespace {

constexpr double kRelative = 1e-9;

Section rollout_section(const Json& one_case) {
  const auto variable = [&one_case](const std::vector<std::string>& channels) -> Json {
    return {{"path", one_case.at("path").get<std::string>() + "[" + joined(channels, ",") + "]"},
            {"layout", one_case.at("layout")}};
  };
  const std::string path = one_case.at("path"), layout = one_case.at("layout");
  Json settings = {{"files", {one_case.at("file")}},
                   {"variables", {variable(one_case.at("channels"))}},
                   {"targets", {variable(one_case.at("outputs"))}},
                   {"statics", one_case.at("statics")},
                   {"steps_in", one_case.at("steps_in")},
                   {"stride", one_case.at("stride")}};
  Section section = fields_section(settings);
  std::string layouts = path + ":" + layout;
  for (const Json& each : one_case.at("statics")) {
    layouts += "," + each.at("path").get<std::string>() + ":" + each.at("layout").get<std::string>();
  }
  section.set("layout", layouts, "test");
  section.set("predict", one_case.at("predict"), "test");
  section.set("statistics", field_file(one_case.at("statistics").at("means")).parent_path().string(), "test");
  return section;
}

struct Rolled {
  at::Tensor output;
  batch::Batch batch;
};

/// The samples for meters, with the climatology of the output channels repeated for each step.
class Measured {
 public:
  Measured(const Json& one_case, const Task& task) : task_(task) {
    const Json& statistics = one_case.at("statistics");
    const std::vector<double> climatology = npy_numbers(statistics.at("climatology"));
    const std::vector<double> deviations = npy_numbers(statistics.at("stds"));
    const auto names = data_channels(one_case);
    const std::int64_t points = std::ssize(climatology) / std::ssize(names);
    std::vector<double> of_outputs;
    for (const std::string& name : one_case.at("outputs").get<std::vector<std::string>>()) {
      const std::int64_t position = std::ranges::find(names, name) - names.begin();
      const auto begin = climatology.begin() + position * points;
      of_outputs.insert(of_outputs.end(), begin, begin + points);
      outputs_.push_back(name);
      deviations_.push_back(deviations[static_cast<std::size_t>(position)]);
    }
    climatology_ = torch::tensor(of_outputs, at::kDouble);
  }

  /// Numbers by name: those of the steps of one start, or of all.
  std::map<std::string, double> numbers(const std::vector<Rolled>& rolled, const std::string& meter) const {
    std::vector<metrics::Meter> made;
    made.push_back(metrics::make_meter(meter, task_, "test"));
    metrics::Meters meters(std::move(made));
    std::int64_t first = 0;
    for (const Rolled& each : rolled) {
      metrics::Samples samples = metrics::samples_of(each.output, each.batch.target(), first++);
      const auto add = [&](const std::string& name, const at::Tensor& value) {
        samples.fields[name] = metrics::field_of(name, value, each.batch.target());
      };
      add("persistence", each.batch.tensor("persistence"));
      const std::int64_t steps = each.output.size(1) / std::ssize(outputs_);
      const at::Tensor climatology = climatology_.repeat({steps}).view(each.output.sizes());
      EXPECT_TRUE(each.batch.tensor("climatology").to(at::kFloat).equal(climatology.to(at::kFloat)));
      add("climatology", climatology);
      meters.add([&](const metrics::Reads&) { return samples; });
    }
    const auto readings = meters.read().numbers;
    return {readings.begin(), readings.end()};
  }

  /// Compares a field of the metrics of a step. @param number  "rmse"
  void expect(const Json& stored, const std::map<std::string, double>& found, const std::string& number,
              std::int64_t step, bool is_square = false) const {
    const std::vector<double> expected = reference::numbers(stored).data;
    ASSERT_EQ(expected.size(), outputs_.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string name = number + "@" + std::to_string(step) + "/" + outputs_[i];
      ASSERT_TRUE(found.contains(name)) << name;
      double value = found.at(name);
      if (is_square) value = std::pow(value / deviations_[i], 2);
      EXPECT_NEAR(value, expected[i], kRelative * std::max(1.0, std::abs(expected[i]))) << name;
    }
  }

 private:
  static std::vector<std::string> data_channels(const Json& one_case) {
    Section section =
        fields_section({{"files", {one_case.at("file")}},
                        {"variables", {{{"path", one_case.at("path")}, {"layout", one_case.at("layout")}}}}});
    return data::open(section).train->task().fields.channels;
  }

  Task task_;
  std::vector<std::string> outputs_;
  std::vector<double> deviations_;
  at::Tensor climatology_;
};

}  // namespace

void run_rollout_case(const Json& one_case) {
  SCOPED_TRACE(one_case.at("name").get<std::string>());
  const std::string salt = load("fields/rollout.json").at("salt");
  const std::int64_t steps = one_case.at("steps");
  const data::Splits splits = data::open(rollout_section(one_case));
  const auto& fields = dynamic_cast<const data::FieldDataset&>(*splits.train);
  GoldenModel golden{.keys = field_model_keys(one_case.at("model")), .task = fields.task()};
  EXPECT_EQ(golden.task.sample_shape[0], one_case.at("input_channels").get<std::int64_t>());
  const FieldScaling scaling = std::exchange(golden.task.fields.scaling, {});
  if (golden.keys.at("name") == "fno") golden.public_state = complex_state;
  const auto model = model_by_formula(golden, salt);
  model->set_normalization(scaling, at::kDouble);
  model->eval();

  const auto with_climatology =
      fields.with_climatology({field_file(one_case.at("statistics").at("climatology")).string(), "eval.climatology"});
  const auto rolled_out =
      dynamic_cast<const data::FieldDataset&>(*with_climatology).rolled_out({.passes = steps, .is_measured = true});
  const auto& windows = dynamic_cast<const data::FieldDataset&>(*rolled_out);
  const Measured measured(one_case, rolled_out->task());
  const std::int64_t outputs = std::ssize(one_case.at("outputs"));
  std::vector<Rolled> all;
  for (const Json& run : one_case.at("runs")) {
    const std::int64_t start = run.at("start");
    SCOPED_TRACE("start " + std::to_string(start));
    std::int64_t index = 0;
    while (windows.place(index).start != start) ++index;
    batch::Batch batch = rolled_out->get(batch::draws_in_order(index, 1));
    batch.change_each([](const std::string&, batch::Value& value) {
      if (value.is<at::Tensor>() && value.as<at::Tensor>().is_floating_point())
        value = value.as<at::Tensor>().to(at::kDouble);
    });
    const torch::NoGradGuard no_grad;
    const at::Tensor output = models::run(*model, batch).main();
    for (std::int64_t step = 0; step < steps; ++step) {
      const double norm = run.at("norms")[static_cast<std::size_t>(step)];
      EXPECT_NEAR(output.narrow(1, step * outputs, outputs).norm().item<double>(), norm, kRelative * norm)
          << "step " << step + 1;
    }
    expect_tensor(output.narrow(1, 0, outputs)[0], run.at("prediction_first"), kRelative, "first prediction");
    expect_tensor(output.narrow(1, (steps - 1) * outputs, outputs)[0], run.at("last_step"), kRelative, "last step");
    all.push_back({.output = output, .batch = std::move(batch)});
  }
  const auto expect_steps = [&](const std::vector<Rolled>& rolled, const Json& stored, bool is_mean) {
    const auto plain = measured.numbers(rolled, "field");
    const auto by_area = measured.numbers(rolled, "field,area=caps");
    const auto well = measured.numbers(rolled, "well");
    const auto acc = measured.numbers(rolled, "acc,area=caps");
    const auto persistence = measured.numbers(rolled, "persistence");
    for (const Json& step : stored) {
      const std::int64_t number = step.at("step");
      measured.expect(step.at(is_mean ? "rmse_of_mean_square" : "rmse"), plain, "rmse", number);
      measured.expect(step.at(is_mean ? "area_rmse_of_mean_square" : "area_rmse"), by_area, "rmse", number);
      measured.expect(step.at("nrmse"), well, "nrmse", number);
      measured.expect(step.at("vrmse"), well, "vrmse", number);
      measured.expect(step.at("acc"), acc, "acc", number);
      if (is_mean) continue;
      measured.expect(step.at("mse_normalised"), plain, "rmse", number, /*is_square=*/true);
      measured.expect(step.at("persistence_rmse"), persistence, "persistence_rmse", number);
    }
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Rolled> one;
    one.push_back({.output = all[i].output, .batch = all[i].batch.share()});
    expect_steps(one, one_case.at("runs")[i].at("metrics"), false);
  }
  expect_steps(all, one_case.at("mean_over_starts"), true);
}

}  // namespace lockstep::testing::reference
