// SPDX-License-Identifier: BSD-3-Clause
// Losses and metrics of fields: the file losses.json of the topic.
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/models/loss.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "core/numbers/latitudes.hpp"
#include "core/text/text.hpp"
#include "metrics/numbers/fields.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace fields_losses_test {

using metrics::Samples;
using Numbers = std::map<std::string, double>;
using Shape = std::vector<std::int64_t>;

constexpr double kRelative = 1e-12;  // tolerance that the file states
constexpr Tolerance kDouble = {.relative = kRelative};
constexpr Tolerance kFloatWaves = {.relative = 1e-6};  // wave numbers are float32

const Json& losses_file() {
  static const Json file = load("fields/losses.json");
  return file;
}

/// The elements of a list of the file. None if the folder of golden files lacks the topic.
Json cases_of(const std::string& list) {
  if (!std::filesystem::is_directory(root() / "fields")) return Json::array();
  const Json cases = losses_file().at(list);
  EXPECT_FALSE(cases.empty()) << list;
  return cases;
}

at::Tensor tensor_of(const Json& stored) {
  const StoredNumbers read = numbers(stored);
  return torch::tensor(read.data, at::kDouble).view(read.shape);
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

void expect_value(double actual, double expected, const std::string& what, const Tolerance& tolerance = kDouble) {
  EXPECT_TRUE(is_close(actual, expected, tolerance)) << what << ": " << actual << " instead of " << expected;
}

/// Elements of a gradient are sums of terms of its size.
void expect_gradient(const at::Tensor& actual, const Json& expected) {
  const at::Tensor stored = tensor_of(expected);
  const double size = stored.abs().max().item<double>();
  expect_close(values_of(actual), values_of(stored), {.absolute = kRelative * size}, "gradient");
}

std::string list_text(const Json& list) {
  std::string text;
  for (const Json& value : list.is_array() ? list : Json::array({list})) {
    text += (text.empty() ? "" : ",") + (value.is_boolean() ? value.dump() : number_text(value.get<double>()));
  }
  return text;
}

models::Loss loss_of(const std::map<std::string, std::string>& keys, const Task& task) {
  Section loss = Section::with_defaults("loss", models::loss_keys());
  for (const auto& [key, value] : keys) loss.set(key, value, "test");
  return models::make_loss(loss, task);
}

/// A prediction, its target, and further values of the batch.
struct Fields {
  at::Tensor prediction;
  batch::Batch batch;

  static Fields of(const Json& one) {
    const at::Tensor prediction = tensor_of(one.at("prediction"));
    return {.prediction = prediction.detach().clone().requires_grad_(),
            .batch = batch::Batch(prediction, tensor_of(one.at("target")))};
  }
};

/// Computes the loss and compares value and gradient.
void expect_loss(const models::Loss& loss, const Fields& fields, double value, const Json& gradient) {
  fields.prediction.mutable_grad().reset();
  const at::Tensor actual = loss.value(fields.prediction, fields.batch, /*is_training=*/true);
  expect_value(actual.item<double>(), value, "loss");
  if (gradient.is_null()) return;
  actual.backward();
  expect_gradient(fields.prediction.grad(), gradient);
}

std::string loss_name(const std::string& stored, const Json& params) {
  static const std::map<std::string, std::string> names = {{"relative_lp 1", "relative_l1"},
                                                           {"relative_lp 2", "relative_l2"},
                                                           {"absolute_lp 2", "l2"},
                                                           {"relative_h1", "h1"},
                                                           {"absolute_h1", "h1_absolute"}};
  return names.at(stored + (params.contains("p") ? " " + params.at("p").dump() : ""));
}

std::map<std::string, std::string> loss_keys_of(const Json& one) {
  const Json& params = one.at("params");
  require_known_fields(params, {"d", "p", "reduction", "measure", "periodic", "eps"});
  if (params.contains("eps")) {
    EXPECT_EQ(number(params.at("eps")), 1e-8);
  }
  std::map<std::string, std::string> keys = {{"name", loss_name(one.at("loss"), params)},
                                             {"reduction", params.at("reduction")}};
  for (const char* key : {"measure", "periodic"}) {
    if (params.contains(key)) keys[key] = list_text(params.at(key));
  }
  return keys;
}

Task field_task(const std::vector<std::string>& channels, const Shape& sample_shape) {
  return {.sample_shape = sample_shape,
          .classes = sample_shape.at(0),
          .kind = TaskKind::regression,
          .fields = {.channels = channels}};
}

Samples samples_of_channels(const at::Tensor& prediction, const at::Tensor& target) {
  return metrics::samples_of(prediction, target, 0);
}

Numbers read(const std::string& text, const Task& task, const Samples& samples) {
  const metrics::Meter meter = metrics::make_meter(text, task, "test");
  std::vector<std::int64_t> words(meter.words);
  meter.add(samples, words);
  const std::vector<double> values = meter.read(words).numbers;
  Numbers named;
  for (std::size_t i = 0; i < values.size(); ++i) named[meter.results.at(i).name] = values[i];
  return named;
}

/// @param fields  [N, C, space...]
Task task_of(const at::Tensor& fields) {
  const std::vector<std::int64_t> shape = fields.sizes().slice(1).vec();
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < shape[0]; ++i) names.push_back("c" + std::to_string(i));
  return field_task(names, shape);
}

TEST(ReferenceFieldLosses, Norms) {
  for (const Json& one : cases_of("losses")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "loss", "params", "prediction", "target", "value", "gradient"});
    const Fields fields = Fields::of(one);
    ASSERT_EQ(fields.prediction.dim() - 2, one.at("params").at("d").get<std::int64_t>());
    const models::Loss loss = loss_of(loss_keys_of(one), task_of(fields.prediction));
    expect_loss(loss, fields, numbers(one.at("value")).data.at(0), one.at("gradient"));
  }
}

/// The numbers of the meters for one channel at one time, by the names of the file.
Numbers well_numbers(const at::Tensor& prediction, const at::Tensor& target) {
  const at::Tensor one_prediction = prediction.unsqueeze(0).unsqueeze(0);
  const at::Tensor one_target = target.unsqueeze(0).unsqueeze(0);
  const Task task = task_of(one_target);
  const Samples samples = samples_of_channels(one_prediction, one_target);
  const Numbers field = read("field", task, samples);
  const Numbers well = read("well", task, samples);
  EXPECT_EQ(well.at("nrmse"), well.at("nrmse/c0"));
  EXPECT_EQ(well.at("vrmse"), well.at("vrmse/c0"));
  return {{"MSE", field.at("rmse/c0") * field.at("rmse/c0")},
          {"RMSE", field.at("rmse/c0")},
          {"MAE", field.at("mae/c0")},
          {"LInfinity", field.at("max/c0")},
          {"NMSE", well.at("nmse")},
          {"NRMSE", well.at("nrmse")},
          {"VMSE", well.at("vmse")},
          {"VRMSE", well.at("vrmse")},
          {"NMAE", well.at("nmae")},
          {"PearsonR", well.at("pearson_r")}};
}

Numbers spectral_numbers(const at::Tensor& prediction, const at::Tensor& target) {
  const at::Tensor one_target = target.unsqueeze(0).unsqueeze(0);
  const Numbers found =
      read("spectral", task_of(one_target), samples_of_channels(prediction.unsqueeze(0).unsqueeze(0), one_target));
  Numbers named;
  const std::vector<std::string> bands = {"low", "mid", "high"};
  for (std::size_t i = 0; i < bands.size(); ++i) {
    for (const std::string kind : {"mse", "nmse"}) {
      named["spectral_error_" + kind + "_per_bin_" + std::to_string(i)] = found.at("spectral_" + kind + "/" + bands[i]);
    }
  }
  return named;
}

/// Compares each stored number of each time and channel.
/// @param prediction, target  [batch, time, channel, space...]
void expect_each(const Json& expected, const at::Tensor& prediction, const at::Tensor& target,
                 const Tolerance& tolerance,
                 Numbers (*compute)(const at::Tensor& prediction, const at::Tensor& target)) {
  const std::int64_t count = prediction.size(0) * prediction.size(1) * prediction.size(2);
  const at::Tensor predictions = prediction.flatten(0, 2);
  const at::Tensor targets = target.flatten(0, 2);
  std::map<std::string, std::vector<double>> found;
  for (std::int64_t i = 0; i < count; ++i) {
    for (const auto& [name, value] : compute(predictions[i], targets[i])) found[name].push_back(value);
  }
  for (const auto& [name, stored] : expected.items()) {
    ASSERT_TRUE(found.contains(name)) << name;
    expect_close(found.at(name), numbers(stored).data, tolerance, name);
  }
}

TEST(ReferenceFieldLosses, WellMetrics) {
  for (const Json& one : cases_of("well_metrics")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "spatial_dimensions", "eps", "prediction", "target", "values", "spectral"});
    EXPECT_EQ(number(one.at("eps")), 1e-7);
    const at::Tensor prediction = tensor_of(one.at("prediction")).movedim(-1, 2);
    const at::Tensor target = tensor_of(one.at("target")).movedim(-1, 2);
    ASSERT_EQ(prediction.dim() - 3, one.at("spatial_dimensions").get<std::int64_t>());
    expect_each(one.at("values"), prediction, target, kDouble, well_numbers);
    require_known_fields(one.at("spectral"), {"bins", "values"});
    expect_each(one.at("spectral").at("values"), prediction, target, kFloatWaves, spectral_numbers);
    const auto space = prediction.sizes().slice(3);
    const metrics::SpectralBands bands(std::vector<std::size_t>(space.begin(), space.end()));
    expect_close({bands.edges().begin(), bands.edges().end()}, numbers(one.at("spectral").at("bins")).data, kFloatWaves,
                 "edges");
    // All times are channels of a sample, whose names repeat: the means of what is stored.
    Task task = task_of(prediction.flatten(1, 2));
    task.fields.channels.resize(static_cast<std::size_t>(prediction.size(2)));
    const Numbers all = read("well", task, samples_of_channels(prediction.flatten(1, 2), target.flatten(1, 2)));
    for (const auto& [stored, mine] : std::map<std::string, std::string>{{"NRMSE", "nrmse"}, {"VRMSE", "vrmse"}}) {
      const at::Tensor each = tensor_of(one.at("values").at(stored));
      expect_value(all.at(mine), each.mean().item<double>(), mine);
      for (std::int64_t c = 0; c < each.size(2); ++c) {
        expect_value(all.at(mine + "/c" + std::to_string(c)), each.select(2, c).mean().item<double>(), stored);
      }
    }
  }
}

AreaRule rule_of(const std::string& weighting, const std::string& area_rule) {
  static const std::map<std::string, AreaRule> rules = {{"caps", AreaRule::caps}, {"half_rows", AreaRule::half_rows}};
  return weighting == "cosine" ? AreaRule::cosine : rules.at(area_rule);
}

/// The texts of loss.area that select the rule for these latitudes.
std::vector<std::string> area_texts(AreaRule rule, const std::vector<double>& latitudes) {
  const bool is_global = std::abs(latitudes.front() - latitudes.back()) >= 150;
  if (rule == AreaRule::cosine) return {"cosine"};
  if (rule == AreaRule::half_rows) return {"true"};
  return is_global ? std::vector<std::string>{"caps", "true"} : std::vector<std::string>{"caps"};
}

/// Compares each number of samples and channels, and those over samples.
void run_weighting(const Json& one, const Json& expected, const std::string& area, const Task& task) {
  const Fields fields = Fields::of(one);
  expect_loss(loss_of({{"name", "mse"}, {"area", area}}, task), fields, number(expected.at("loss")),
              expected.at("loss_gradient"));
  const at::Tensor prediction = fields.prediction.detach();
  const at::Tensor target = fields.batch.target();
  const at::Tensor climatology = tensor_of(one.at("climatology")).unsqueeze(0);
  std::map<std::string, std::vector<double>> found;  // one value per sample and channel
  std::vector<double> mean_of_rmse(task.fields.channels.size());
  for (std::int64_t i = 0; i < prediction.size(0); ++i) {
    Samples sample = samples_of_channels(prediction.narrow(0, i, 1), target.narrow(0, i, 1));
    sample.fields["climatology"] = values_of(climatology);
    const Numbers field = read("field,area=" + area, task, sample);
    const Numbers acc = read("acc,area=" + area, task, sample);
    const Numbers centered = read("acc,centered=true,area=" + area, task, sample);
    for (std::size_t c = 0; c < task.fields.channels.size(); ++c) {
      const std::string& name = task.fields.channels[c];
      const double rmse = field.at("rmse/" + name);
      mean_of_rmse[c] += rmse / static_cast<double>(prediction.size(0));
      found["mse"].push_back(rmse * rmse);
      found["rmse_per_sample"].push_back(rmse);
      found["mae"].push_back(field.at("mae/" + name));
      found["bias"].push_back(field.at("bias/" + name));
      found["acc"].push_back(acc.at("acc/" + name));
      found["acc_centred"].push_back(centered.at("acc/" + name));
    }
  }
  for (const auto& [name, values] : found) {
    // Errors with both signs nearly cancel.
    const Tolerance tolerance = {.absolute = name == "bias" ? kRelative : 0, .relative = kRelative};
    expect_close(values, numbers(expected.at(name)).data, tolerance, name);
  }
  expect_close(mean_of_rmse, numbers(expected.at("mean_of_rmse")).data, kDouble, "mean of rmse");
  const Numbers all = read("field,area=" + area, task, samples_of_channels(prediction, target));
  for (std::size_t c = 0; c < task.fields.channels.size(); ++c) {
    expect_value(all.at("rmse/" + task.fields.channels[c]), numbers(expected.at("rmse_over_samples")).data.at(c),
                 "rmse over samples");
  }
}

TEST(ReferenceFieldLosses, LatitudeWeights) {
  for (const Json& one : cases_of("weatherbench")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "latitudes", "latitude_axis", "area_rule", "prediction", "target", "climatology",
                               "area", "cosine"});
    const std::vector<double> latitudes = one.at("latitudes");
    Task task = task_of(tensor_of(one.at("target")));
    const auto axis = one.at("latitude_axis").get<std::size_t>() - 2;
    task.fields.axes = std::vector<std::string>(task.sample_shape.size() - 1, "x");
    task.fields.coordinates.resize(task.fields.axes.size());
    task.fields.axes.at(axis) = "latitude";
    task.fields.coordinates.at(axis) = latitudes;
    for (const std::string weighting : {"area", "cosine"}) {
      SCOPED_TRACE(weighting);
      const Json& expected = one.at(weighting);
      require_known_fields(expected, {"weights", "mse", "rmse_per_sample", "rmse_over_samples", "mean_of_rmse", "mae",
                                      "bias", "acc", "acc_centred", "loss", "loss_gradient"});
      const AreaRule rule = rule_of(weighting, one.at("area_rule"));
      // A cosine of a pole is a rounding.
      expect_close(latitude_weights(latitudes, rule), expected.at("weights").get<std::vector<double>>(),
                   {.absolute = 1e-15, .relative = kRelative}, "weights");
      for (const std::string& area : area_texts(rule, latitudes)) run_weighting(one, expected, area, task);
    }
  }
}

/// The loss of each sample and channel that counts, by the meter of fields.
void expect_masked_channels(const Json& one, const Fields& fields, const at::Tensor& mask, const Task& task) {
  const std::string number_name = one.at("loss") == "mse" ? "rmse/" : "mae/";
  std::vector<double> found;
  for (std::int64_t i = 0; i < mask.size(0); ++i) {
    Samples sample = samples_of_channels(fields.prediction.narrow(0, i, 1), fields.batch.target().narrow(0, i, 1));
    sample.fields["mask"] = values_of(mask.narrow(0, i, 1));
    const Numbers field = read("field", task, sample);
    for (const std::string& name : task.fields.channels) {
      const double value = field.at(number_name + name);
      found.push_back(one.at("loss") == "mse" ? value * value : value);
    }
  }
  expect_close(found, numbers(one.at("value_per_sample_and_channel")).data, kDouble, "value of each channel");
}

TEST(ReferenceFieldLosses, Masks) {
  for (const Json& one : cases_of("masked")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "loss", "params", "prediction", "target", "mask", "valid", "value", "gradient",
                               "value_per_sample_and_channel"});
    Fields fields = Fields::of(one);
    const at::Tensor mask = tensor_of(one.at("mask"));
    const Task task = task_of(mask);
    const auto keys =
        one.contains("params") ? loss_keys_of(one) : std::map<std::string, std::string>{{"name", one.at("loss")}};
    const models::Loss loss = loss_of(keys, task);
    for (const at::ScalarType type : {at::kDouble, at::kByte, at::kBool}) {
      fields.batch.set("mask", mask.to(type));
      expect_loss(loss, fields, number(one.at("value")), one.contains("gradient") ? one.at("gradient") : Json());
      if (one.contains("valid")) {
        EXPECT_EQ(loss.count(fields.batch), number(one.at("valid")));
      }
    }
    if (one.contains("value_per_sample_and_channel")) expect_masked_channels(one, fields, mask, task);
  }
}

TEST(ReferenceFieldLosses, ChannelWeights) {
  for (const Json& one : cases_of("weighted")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "channel_weights", "prediction", "target", "value", "gradient"});
    const Fields fields = Fields::of(one);
    const models::Loss loss = loss_of({{"name", "mse"}, {"channel_weights", list_text(one.at("channel_weights"))}},
                                      task_of(fields.prediction));
    expect_loss(loss, fields, number(one.at("value")), one.at("gradient"));
  }
}

TEST(ReferenceFieldLosses, PdeBench) {
  for (const Json& one : cases_of("pdebench")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    require_known_fields(one, {"name", "axes", "spatial_dimensions", "low", "high", "domain", "prediction", "target",
                               "rmse", "nrmse", "conserved_rmse", "max_error", "boundary_rmse",
                               "fourier_rmse_low_mid_high", "rmse_per_channel_and_step", "nrmse_per_channel_and_step"});
    EXPECT_EQ(one.at("axes"), "batch, channel, space, time");
    EXPECT_EQ(number(one.at("low")), 4);
    EXPECT_EQ(number(one.at("high")), 12);
    EXPECT_EQ(number(one.at("domain")), 1);
    const at::Tensor prediction = tensor_of(one.at("prediction")).movedim(-1, 2).flatten(1, 2);
    const at::Tensor target = tensor_of(one.at("target")).movedim(-1, 2).flatten(1, 2);
    ASSERT_EQ(target.dim() - 2, one.at("spatial_dimensions").get<std::int64_t>());
    const Task task = task_of(target);
    const Numbers found = read("pdebench", task, samples_of_channels(prediction, target));
    expect_value(found.at("pdebench_rmse"), number(one.at("rmse")), "rmse");
    expect_value(found.at("pdebench_nrmse"), number(one.at("nrmse")), "nrmse");
    expect_value(found.at("pdebench_conserved"), number(one.at("conserved_rmse")), "conserved");
    expect_value(found.at("pdebench_max"), number(one.at("max_error")), "max");
    expect_value(found.at("pdebench_boundary"), number(one.at("boundary_rmse")), "boundary");
    expect_close(
        {found.at("pdebench_fourier/low"), found.at("pdebench_fourier/mid"), found.at("pdebench_fourier/high")},
        numbers(one.at("fourier_rmse_low_mid_high")).data, kDouble, "bands");
    for (const std::string kind : {"rmse", "nrmse"}) {
      std::vector<double> each;
      for (const std::string& name : task.fields.channels) each.push_back(found.at("pdebench_" + kind + "/" + name));
      expect_close(each, numbers(one.at(kind + "_per_channel_and_step")).data, kDouble, kind);
    }
  }
}

}  // namespace fields_losses_test
}  // namespace lockstep::testing::reference
