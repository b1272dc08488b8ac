// SPDX-License-Identifier: BSD-3-Clause
#include "reference/models_golden.hpp"

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <regex>
#include <set>
#include <span>
#include <stdexcept>

#include "core/numbers/processor_level.hpp"
#include "reference/sha256.hpp"
#include "support/sampling.hpp"

namespace lockstep::testing::reference {
namespace models_golden {

using Shape = std::vector<std::int64_t>;

/// "a.b.gamma" -> "gamma"
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return hash;
}

std::uint64_t mixed(std::uint64_t hash, std::int64_t index) {
  std::uint64_t z = hash + (static_cast<std::uint64_t>(index) + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// The value of a parameter or floating-point buffer. Complex numbers are pairs, with the scale of the complex shape.
at::Tensor state_value(const std::string& salted, const Shape& shape, bool is_complex) {
  const std::string part = last_part(salted);
  if (part == "gamma" || part == "gamma_1" || part == "gamma_2" || part == "layer_scale") {
    return by_formula(salted, shape, 0.25, 0.5);
  }
  if (shape.size() >= 2) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    const double fan_in = static_cast<double>(count) / static_cast<double>(shape[0]);
    Shape stored = shape;
    if (is_complex) stored.push_back(2);
    return by_formula(salted, stored, std::sqrt(3.0 / fan_in));
  }
  if (part == "running_var") return by_formula(salted, shape, 0.5, 1);
  if (part == "weight") return by_formula(salted, shape, 0.25, 1);
  if (part == "running_mean") return by_formula(salted, shape, 0.25);
  return by_formula(salted, shape, 0.125);
}

/// The number behind `phrase` in a text about tolerances.
double number_after(const std::string& text, const std::string& begin, const std::string& phrase) {
  const std::size_t position = text.find(begin);
  const std::size_t found = position == std::string::npos ? position : text.find(phrase, position);
  if (found == std::string::npos) throw std::runtime_error("no '" + begin + " ... " + phrase + "' in: " + text);
  return std::stod(text.substr(found + phrase.size()));
}

struct Tolerances {
  double relative64;  ///< relative, float64: the norm of a tensor, and losses
  double relative32;  ///< relative, float32: the norm of a tensor
  double losses32;
  double noise;  ///< a gradient with a smaller norm is zero

  static Tolerances of(const std::string& text) {
    const std::size_t outputs = text.find("float32: outputs ");
    const bool has_number = outputs != std::string::npos && std::isdigit(text[outputs + 17]) != 0;
    return {.relative64 = number_after(text, "float64:", "relative "),
            .relative32 = number_after(text, "float32:", has_number ? "outputs " : "relative "),
            .losses32 = number_after(text, "float32:", "losses "),
            .noise = number_after(text, "gradient", "below ")};
  }
};

/// The state of a module in the order of PyTorch's state_dict: of each module its parameters, then its buffers.
struct State {
  std::vector<StateEntry> entries;
  std::vector<at::Tensor> tensors;
  std::vector<bool> is_parameter;
};

State state_of_model(const models::Model& model) {
  State state;
  for (const auto& module : model.named_modules()) {
    const std::string prefix = module.key().empty() ? "" : module.key() + ".";
    const auto add = [&](const auto& items, bool is_parameter) {
      for (const auto& item : items) {
        state.entries.push_back({.name = prefix + item.key(), .shape = item.value().sizes().vec()});
        state.tensors.push_back(item.value());
        state.is_parameter.push_back(is_parameter);
      }
    };
    add(module.value()->named_parameters(/*recurse=*/false), true);
    add(module.value()->named_buffers(/*recurse=*/false), false);
  }
  return state;
}

at::Tensor flat(const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).contiguous().view(-1); }

/// |actual - expected| <= relative * |tensor|
void expect_relative(double actual, double expected, double scale, const std::string& what) {
  EXPECT_LE(std::abs(actual - expected), scale) << what << ": " << actual << " instead of " << expected;
}

}  // namespace models_golden

void expect_tensor(const at::Tensor& tensor, const Json& stored, double relative, const std::string& what) {
  using namespace models_golden;
  ASSERT_EQ(tensor.sizes().vec(), stored.at("shape").get<Shape>()) << what;
  const at::Tensor values = flat(tensor);
  if (stored.contains("data")) {
    const at::Tensor expected = torch::tensor(numbers(stored).data, at::kDouble);
    EXPECT_LE((values - expected).norm().item<double>(), relative * expected.norm().item<double>()) << what;
    return;
  }
  require_known_fields(stored, {"shape", "norm", "mean", "first", "last", "dtype"});
  const double norm = stored.at("norm");
  expect_relative(values.norm().item<double>(), norm, relative * norm, what + " norm");
  expect_relative(values.mean().item<double>(), stored.at("mean"), relative * norm, what + " mean");
  const auto expect_part = [&](const at::Tensor& part, const Json& numbers, const std::string& name) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      expect_relative(part[static_cast<std::int64_t>(i)].item<double>(), numbers[i], relative * norm,
                      what + " " + name);
    }
  };
  expect_part(values, stored.at("first"), "first");
  expect_part(values.slice(0, values.numel() - std::ssize(stored.at("last"))), stored.at("last"), "last");
}

namespace models_golden {

/// Compares with [norm, first, middle, last], or with the value of a scalar.
/// @param noise  a norm below it is zero
/// @param zero   what counts as zero then
void expect_four(const at::Tensor& tensor, const Json& stored, double relative, const std::string& what,
                 double noise = 0, double zero = 0) {
  const at::Tensor values = flat(tensor);
  if (!stored.is_array()) {
    EXPECT_EQ(values.item<double>(), stored.get<double>()) << what;
    return;
  }
  const std::vector<double> expected = stored;
  ASSERT_EQ(expected.size(), 4U) << what;
  const double norm = values.norm().item<double>();
  if (expected[0] < noise) {
    EXPECT_LE(norm, zero) << what;
    return;
  }
  expect_relative(norm, expected[0], relative * expected[0], what + " norm");
  const std::int64_t count = values.numel();
  expect_relative(values[0].item<double>(), expected[1], relative * expected[0], what + " first");
  expect_relative(values[count / 2].item<double>(), expected[2], relative * expected[0], what + " middle");
  expect_relative(values[count - 1].item<double>(), expected[3], relative * expected[0], what + " last");
}

}  // namespace models_golden

std::vector<std::string> state_lines(const models::Model& model, const PublicState& public_state) {
  const models_golden::State own = models_golden::state_of_model(model);
  const std::vector<StateEntry> entries = public_state ? public_state(own.entries) : own.entries;
  if (entries.size() != own.entries.size()) throw std::runtime_error("the map of names leaves out entries");
  std::vector<std::string> lines;
  for (const StateEntry& entry : entries) {
    const auto found = std::find_if(own.entries.begin(), own.entries.end(),
                                    [&](const StateEntry& ours) { return ours.name == entry.ours(); });
    if (found == own.entries.end()) throw std::runtime_error("our model has no " + entry.ours());
    const at::Tensor& tensor = own.tensors[static_cast<std::size_t>(found - own.entries.begin())];
    lines.push_back(line_of(entry, !tensor.is_floating_point()));
  }
  return lines;
}

void expect_listing(const std::vector<std::string>& lines, const Json& stored) {
  if (stored.is_array()) {
    EXPECT_EQ(lines, stored.get<std::vector<std::string>>());
    return;
  }
  require_known_fields(stored, {"entries", "sha256"});
  EXPECT_EQ(lines.size(), stored.at("entries").get<std::size_t>());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  EXPECT_EQ(sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}),
            stored.at("sha256").get<std::string>());
}

namespace models_golden {

/// A model of a case, with its state by the formula.
struct Built {
  std::shared_ptr<models::Model> model;
  std::vector<StateEntry> entries;          ///< state entries of the library
  std::map<std::string, at::Tensor> state;  ///< tensors by the library's names, with the library's shapes
  std::vector<std::string> lines;
};

Built build(const GoldenModel& golden, const std::string& salt, at::ScalarType dtype) {
  Section keys = Section::with_defaults("model", models::model_keys());
  for (const auto& [key, value] : golden.keys) keys.set(key, value, "test");
  Built built{.model = models::build(keys, golden.task, /*seed=*/1, dtype), .entries = {}, .state = {}, .lines = {}};
  built.lines = state_lines(*built.model, golden.public_state);
  const State own = state_of_model(*built.model);
  built.entries = golden.public_state ? golden.public_state(own.entries) : own.entries;
  const torch::NoGradGuard no_grad;
  for (const StateEntry& entry : built.entries) {
    const auto found = std::find_if(own.entries.begin(), own.entries.end(),
                                    [&](const StateEntry& ours) { return ours.name == entry.ours(); });
    at::Tensor tensor = own.tensors[static_cast<std::size_t>(found - own.entries.begin())];
    if (!tensor.is_floating_point()) {
      tensor.fill_(7);
    } else {
      tensor.copy_(state_value(salt + entry.name, entry.shape, entry.is_complex).view(tensor.sizes()));
    }
    built.state[entry.name] = tensor;
  }
  return built;
}

}  // namespace models_golden

std::shared_ptr<models::Model> model_by_formula(const GoldenModel& golden, const std::string& salt) {
  return models_golden::build(golden, salt, at::kDouble).model;
}

namespace models_golden {

/// Sets the pixels that the case leaves out of the loss: "rows 0-1, columns 0-2 of every picture set to 255".
void ignore_pixels(at::Tensor target, const std::string& text) {
  const std::regex form(R"(rows (\d+)-(\d+), columns (\d+)-(\d+) of every picture set to (\d+))");
  std::smatch found;
  if (!std::regex_match(text, found, form)) throw std::runtime_error("no test knows how to apply: " + text);
  const auto number_at = [&found](std::size_t i) { return std::stoll(found[i].str()); };
  target.slice(1, number_at(1), number_at(2) + 1).slice(2, number_at(3), number_at(4) + 1).fill_(data::kIgnored);
}

at::Tensor target_of_case(const Json& stored, const std::string& salt) {
  require_known_fields(stored, {"name", "shape", "below", "values", "kind", "then"});
  const std::string name = salt + stored.at("name").get<std::string>();
  const Shape shape = stored.at("shape");
  if (!stored.contains("below")) return by_formula(name, shape);
  at::Tensor classes = classes_by_formula(name, shape, stored.at("below"));
  if (stored.contains("values")) {
    EXPECT_TRUE(at::equal(classes.view(-1), torch::tensor(stored.at("values").get<Shape>()))) << name;
  }
  if (stored.contains("then")) ignore_pixels(classes, stored.at("then"));
  return classes;
}

struct Forwarded {
  at::Tensor output;
  at::Tensor loss;
};

Forwarded forward(models::Model& model, const batch::Batch& batch, bool is_training, const GoldenModel& golden) {
  model.train(is_training);
  const at::AutoGradMode grad_mode(is_training);
  const batch::Outputs outputs = models::run(model, batch);
  if (golden.loss) return {.output = outputs.main(), .loss = golden.loss(outputs.main(), batch.target())};
  return {.output = outputs.main(), .loss = models::total_loss(models::losses_of(model, outputs, batch))};
}

struct Run {
  const Json& one_case;
  const GoldenModel& golden;
  std::string salt;
  Tolerances tolerances;

  batch::Batch batch(at::ScalarType dtype) const {
    const Json& input = one_case.at("input");
    require_known_fields(input, {"name", "shape"});
    return batch::Batch(by_formula(salt + input.at("name").get<std::string>(), input.at("shape")).to(dtype),
                        target_of_case(one_case.at("target"), salt));
  }

  void expect_loss(const at::Tensor& loss, const char* field, double relative) const {
    const double expected = one_case.at(field);
    EXPECT_NEAR(loss.item<double>(), expected, relative * std::max(1.0, std::abs(expected))) << field;
  }

  void expect_gradients(const Built& built) const {
    double square_sum = 0;
    for (const at::Tensor& parameter : built.model->parameters()) {
      square_sum += std::pow(flat(parameter.grad()).norm().item<double>(), 2);
    }
    const double norm = one_case.at("gradient_norm");
    const double relative = tolerances.relative64;
    expect_relative(std::sqrt(square_sum), norm, relative * norm, "gradient_norm");
    for (const auto& [name, four] : one_case.at("gradients").items()) {
      ASSERT_TRUE(built.state.contains(name)) << name;
      expect_four(built.state.at(name).grad(), four, relative, "gradient of " + name, tolerances.noise,
                  relative * norm);
    }
  }

  void doubles() const {
    const Built built = build(golden, salt, at::kDouble);
    std::int64_t count = 0;
    for (const at::Tensor& parameter : built.model->parameters()) count += parameter.numel();
    EXPECT_EQ(count, one_case.at("parameters").get<std::int64_t>());
    expect_listing(built.lines, one_case.at("state_dict"));
    const batch::Batch inputs = batch(at::kDouble);
    const double relative = tolerances.relative64;
    const Forwarded evaluated = forward(*built.model, inputs, false, golden);
    expect_tensor(evaluated.output, one_case.at("eval_output"), relative, "eval_output");
    expect_equivariance(*built.model, inputs, evaluated.output);
    expect_loss(evaluated.loss, "eval_loss", relative);
    const Forwarded trained = forward(*built.model, inputs, true, golden);
    const Json& output = one_case.at("train_output");
    const bool is_same = output == "equal to eval_output";
    expect_tensor(trained.output, one_case.at(is_same ? "eval_output" : "train_output"), relative, "train_output");
    expect_loss(trained.loss, "train_loss", relative);
    trained.loss.backward();
    expect_gradients(built);
    const Json buffers = one_case.value("buffers_after_forward", Json::object());
    for (const auto& [name, four] : buffers.items()) {
      ASSERT_TRUE(built.state.contains(name)) << name;
      expect_four(built.state.at(name), four, relative, name);
    }
    step(*built.model);
    // The losses after a step amplify differences of the step.
    expect_loss(forward(*built.model, inputs, true, golden).loss, "train_loss_after_step", relative);
    expect_loss(forward(*built.model, inputs, false, golden).loss, "eval_loss_after_step", relative);
  }

  /// A field that is moved along a circular axis has an output that is moved as far.
  void expect_equivariance(models::Model& model, const batch::Batch& inputs, const at::Tensor& output) const {
    if (!one_case.contains("shift_equivariance") || one_case.at("shift_equivariance").is_null()) return;
    const std::int64_t axis = one_case.at("shift_equivariance").at("axis");
    const std::int64_t by = one_case.at("shift_equivariance").at("by");
    const batch::Batch moved(inputs.input().roll({by}, {axis}), inputs.target());
    const at::Tensor difference = forward(model, moved, false, golden).output - output.roll({by}, {axis});
    EXPECT_LE(difference.norm().item<double>(), tolerances.relative64 * output.norm().item<double>())
        << "shift_equivariance";
    EXPECT_GT((output - output.roll({by}, {axis})).norm().item<double>(), 1e-3 * output.norm().item<double>())
        << "the output does not depend on the position";
  }

  void step(models::Model& model) const {
    const torch::NoGradGuard no_grad;
    const double lr = one_case.at("sgd_lr");
    for (at::Tensor& parameter : model.parameters()) parameter.sub_(parameter.grad(), lr);
  }

  void floats() const {
    const Built built = build(golden, salt, at::kFloat);
    const batch::Batch inputs = batch(at::kFloat);
    const Forwarded evaluated = forward(*built.model, inputs, false, golden);
    expect_tensor(evaluated.output, one_case.at("eval_output_float32"), tolerances.relative32, "eval_output_float32");
    expect_loss(evaluated.loss, "eval_loss_float32", tolerances.losses32);
    expect_loss(forward(*built.model, inputs, true, golden).loss, "train_loss", 100 * tolerances.losses32);
  }
};

const std::vector<std::string>& known_fields() {
  static const std::vector<std::string> fields = {"name",
                                                  "what",
                                                  "input",
                                                  "target",
                                                  "parameters",
                                                  "state_dict",
                                                  "eval_output",
                                                  "eval_loss",
                                                  "train_loss",
                                                  "train_output",
                                                  "gradients",
                                                  "gradient_norm",
                                                  "buffers_after_forward",
                                                  "sgd_lr",
                                                  "train_loss_after_step",
                                                  "eval_loss_after_step",
                                                  "shift_equivariance",
                                                  "family",
                                                  "arguments",
                                                  "dimensions",
                                                  "note",
                                                  "loss",
                                                  "has_batch_statistics",
                                                  "eval_output_float32",
                                                  "eval_loss_float32"};
  return fields;
}

/// Whether the short form of tools/test runs at a lower processor level: only one model of each family, in float32,
/// since float64 has no kernels of its own in the models.
bool is_sample_of_lower_level() { return is_sample() && processor_level() < machine_level(); }

/// "wide_resnet50_2" -> "wide"
std::string family_of(const GoldenModel& golden) {
  const std::string& name = golden.keys.at("name");
  return name.substr(0, name.find_first_of("_0123456789"));
}

}  // namespace models_golden

using namespace models_golden;

Handler golden_models(const std::string& file, std::function<GoldenModel(const Json& one_case)> family,
                      const std::vector<std::string>& extra_fields, const std::string& topic) {
  std::vector<std::string> fields = {"salt", "formula"};
  fields.insert(fields.end(), extra_fields.begin(), extra_fields.end());
  const auto run = [path = topic + "/" + file, family = std::move(family),
                    families = std::set<std::string>()](const Json& one_case) mutable {
    require_known_fields(one_case, known_fields());
    const Json document = load(path);
    const GoldenModel golden = family(one_case);
    if (is_sample_of_lower_level() && !families.insert(family_of(golden)).second) return;
    const Run cases{.one_case = one_case,
                    .golden = golden,
                    .salt = document.at("salt"),
                    .tolerances = Tolerances::of(document.at("tolerance"))};
    if (!is_sample_of_lower_level()) cases.doubles();
    cases.floats();
  };
  return {.file = file, .extra_fields = fields, .run = run};
}

at::Tensor by_formula(const std::string& name, const Shape& shape, double scale, double shift) {
  const at::Tensor values = torch::empty(shape, at::kDouble);
  const std::uint64_t hash = hash_of(name);
  const std::span elements(values.data_ptr<double>(), static_cast<std::size_t>(values.numel()));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const double v = static_cast<double>(mixed(hash, static_cast<std::int64_t>(i)) >> 11) * 0x1p-52 - 1.0;
    const double scaled = v * scale;
    elements[i] = scaled + shift;
  }
  return values;
}

at::Tensor classes_by_formula(const std::string& name, const Shape& shape, std::int64_t below) {
  const at::Tensor values = torch::empty(shape, at::kLong);
  const std::uint64_t hash = hash_of(name);
  const std::span elements(values.data_ptr<std::int64_t>(), static_cast<std::size_t>(values.numel()));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] =
        static_cast<std::int64_t>(mixed(hash, static_cast<std::int64_t>(i)) % static_cast<std::uint64_t>(below));
  }
  return values;
}

}  // namespace lockstep::testing::reference
