// SPDX-License-Identifier: BSD-3-Clause
// Rules that work on whole parameters, beside their formulas written out element by element in double.
#include <gtest/gtest.h>

#include <cmath>

#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace whole_test {

using testing::FlatParametersDouble;
using Values = std::vector<double>;

constexpr int kSteps = 3;

/// R x C, row by row.
struct Matrix {
  std::size_t rows;
  std::size_t columns;
  Values values;

  double& at(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result{a.rows, b.columns, Values(a.rows * b.columns)};
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < b.columns; ++c) {
      for (std::size_t k = 0; k < a.columns; ++k) result.at(r, c) += a.at(r, k) * b.at(k, c);
    }
  }
  return result;
}

Matrix transposed(const Matrix& a) {
  Matrix result{a.columns, a.rows, Values(a.values.size())};
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < a.columns; ++c) result.at(c, r) = a.at(r, c);
  }
  return result;
}

double norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Five times X := a X + (b A + c A A) X with A = X X^T, from X / |X|. A tall matrix needs no transposing here: the
/// polynomial is odd in its singular values.
Matrix orthogonalized(Matrix x) {
  const double length = norm(x.values);
  for (double& value : x.values) value /= length;
  for (int k = 0; k < 5; ++k) {
    const Matrix gram = product(x, transposed(x));
    const Matrix square = product(gram, gram);
    Matrix change = gram;
    for (std::size_t i = 0; i < gram.values.size(); ++i) {
      change.values[i] = -4.775 * gram.values[i] + 2.0315 * square.values[i];
    }
    const Matrix moved = product(change, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = 3.4445 * x.values[i] + moved.values[i];
  }
  return x;
}

Values wave(std::size_t count, double start) {
  Values numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = std::sin(start + 0.7 * static_cast<double>(i * i));
  return numbers;
}

template <class T>
std::vector<T> narrowed(const Values& values) {
  return {values.begin(), values.end()};
}

/// The values that the optimizer makes of one parameter that begins as wave(1), with gradients wave(2), wave(3), ...
template <class T>
Values trained(const OptionValues& settings, const Shape& shape) {
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64, {{"w", shape}});
  const std::size_t count = parameters.values<T>("w").size();
  parameters.set_values("w", narrowed<T>(wave(count, 1)));
  Optimizer optimizer = make_optimizer(settings, parameters);
  for (int k = 0; k < kSteps; ++k) {
    parameters.set_gradient("w", narrowed<T>(wave(count, 2 + k)));
    optimizer.step();
  }
  const auto values = parameters.values<T>("w");
  return {values.begin(), values.end()};
}

template <class T>
void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
}

template <class T>
class WholeTest : public ::testing::Test {
 protected:
  static constexpr double kTolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(WholeTest, Types);

Values muon_formula(std::size_t rows, std::size_t columns, bool is_nesterov, double lr_factor) {
  const double momentum = 0.75;
  Values parameter = wave(rows * columns, 1);
  Values mean(parameter.size());
  for (int k = 0; k < kSteps; ++k) {
    const Values gradient = wave(parameter.size(), 2 + k);
    Matrix direction{rows, columns, Values(parameter.size())};
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += (1 - momentum) * (gradient[i] - mean[i]);
      direction.values[i] = is_nesterov ? gradient[i] + momentum * (mean[i] - gradient[i]) : mean[i];
    }
    const Matrix step = orthogonalized(direction);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      parameter[i] = (1 - 0.5 * 0.125) * parameter[i] - 0.5 * lr_factor * step.values[i];
    }
  }
  return parameter;
}

const OptionValues kMuon = {{"name", "muon"},     {"lr", "0.5"},         {"weight_decay", "0.125"},
                            {"momentum", "0.75"}, {"nesterov", "false"}, {"ns_bf16", "false"}};

OptionValues muon_with(const std::string& key, const std::string& value) {
  OptionValues settings = kMuon;
  settings.emplace_back(key, value);
  return settings;
}

TYPED_TEST(WholeTest, MuonOrthogonalizesMatrices) {
  const double tolerance = this->kTolerance;
  expect_near<TypeParam>(trained<TypeParam>(kMuon, {3, 5}), muon_formula(3, 5, false, 1), tolerance);
  expect_near<TypeParam>(trained<TypeParam>(kMuon, {6, 2}), muon_formula(6, 2, false, std::sqrt(3.0)), tolerance);
  expect_near<TypeParam>(trained<TypeParam>(muon_with("nesterov", "true"), {3, 5}), muon_formula(3, 5, true, 1),
                         tolerance);
  expect_near<TypeParam>(trained<TypeParam>(muon_with("adjust_lr_fn", "match_rms_adamw"), {3, 5}),
                         muon_formula(3, 5, false, 0.2 * std::sqrt(5.0)), tolerance);
}

// bfloat16 has 8 bits; what the iteration makes of its roundings is a few of them.
TYPED_TEST(WholeTest, MuonInBfloat16DiffersByItsRoundings) {
  const Values values = trained<TypeParam>(muon_with("ns_bf16", "true"), {3, 5});
  const Values exact = muon_formula(3, 5, false, 1);
  EXPECT_NE(values, exact);
  expect_near<TypeParam>(values, exact, 0.05);
  // The values that torch.optim.Muon 2.11 makes of it on one processor; another may round sums in another order.
  const Values of_torch = {0.4158, 1.131,  0.0954, 0.3165,  -0.6713, -1.0172, 0.2232, -0.1281,
                           1.1348, 0.2726, 0.9992, -0.4211, 0.6813,  -0.7136, -0.7687};
  expect_near<TypeParam>(values, of_torch, 0.02);
}

// A parameter that is no matrix has adamw's two means.
TYPED_TEST(WholeTest, MuonUpdatesOthersByAdamW) {
  const OptionValues adamw = {{"name", "adamw"}, {"lr", "0.5"}, {"weight_decay", "0.125"}, {"eps", "1e-7"}};
  for (const Shape& shape : {Shape{7}, Shape{2, 3, 2}, Shape{}}) {
    const Values values = trained<TypeParam>(kMuon, shape);
    EXPECT_NE(values, wave(values.size(), 1));
    expect_near<TypeParam>(values, trained<TypeParam>(adamw, shape), this->kTolerance);
  }
}

/// `matrices` many R x C, or with `rows` 0 a vector of C.
Values adafactor_formula(std::size_t matrices, std::size_t rows, std::size_t columns, double eps1) {
  const bool is_vector = rows == 0;
  const std::size_t each = is_vector ? columns : rows * columns;
  Values parameter = wave(matrices * each, 1);
  Values of_rows(matrices * rows);
  Values of_columns(matrices * columns);
  for (int k = 1; k <= kSteps; ++k) {
    const Values gradient = wave(parameter.size(), 1 + k);
    const double take = std::pow(k, -0.8);
    const double root_count = std::sqrt(static_cast<double>(parameter.size()));
    const double lr = std::max(1e-3, norm(parameter) / root_count) * std::min(0.75, 1 / std::sqrt(k));
    Values step(parameter.size());
    for (std::size_t m = 0; m < matrices; ++m) {
      if (is_vector) {
        for (std::size_t c = 0; c < columns; ++c) {
          of_columns[c] += take * (gradient[c] * gradient[c] - of_columns[c]);
          step[c] = gradient[c] / std::sqrt(std::max(of_columns[c], eps1 * eps1));
        }
        continue;
      }
      const auto squared = [&](std::size_t r, std::size_t c) {
        const double g = gradient[m * each + r * columns + c];
        return g * g;
      };
      double mean = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::size_t c = 0; c < columns; ++c) sum += squared(r, c);
        double& row = of_rows[m * rows + r];
        row += take * (sum / static_cast<double>(columns) - row);
        mean += row / static_cast<double>(rows);
      }
      for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r) sum += squared(r, c);
        double& column = of_columns[m * columns + c];
        column += take * (sum / static_cast<double>(rows) - column);
      }
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          const double square = of_rows[m * rows + r] * of_columns[m * columns + c] / std::max(mean, eps1);
          const std::size_t i = m * each + r * columns + c;
          step[i] = gradient[i] / std::sqrt(std::max(square, eps1 * eps1));
        }
      }
    }
    const double shorten = std::max(1.0, norm(step) / root_count);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      parameter[i] = (1 - 0.75 * 0.5) * parameter[i] - lr / shorten * step[i];
    }
  }
  return parameter;
}

TYPED_TEST(WholeTest, AdafactorKeepsMeansOfRowsAndColumns) {
  const OptionValues settings = {{"name", "adafactor"}, {"lr", "0.75"}, {"weight_decay", "0.5"}};
  const double eps1 = std::numeric_limits<TypeParam>::epsilon();
  expect_near<TypeParam>(trained<TypeParam>(settings, {3, 5}), adafactor_formula(1, 3, 5, eps1), this->kTolerance);
  expect_near<TypeParam>(trained<TypeParam>(settings, {2, 2, 4, 3}), adafactor_formula(4, 4, 3, eps1),
                         this->kTolerance);
  expect_near<TypeParam>(trained<TypeParam>(settings, {2, 7, 37}), adafactor_formula(2, 7, 37, eps1), this->kTolerance);
  expect_near<TypeParam>(trained<TypeParam>(settings, {7}), adafactor_formula(1, 0, 7, eps1), this->kTolerance);
  expect_near<TypeParam>(trained<TypeParam>(settings, {}), adafactor_formula(1, 0, 1, eps1), this->kTolerance);
  OptionValues coarse = settings;
  coarse.emplace_back("eps1", "0.5");
  expect_near<TypeParam>(trained<TypeParam>(coarse, {3, 5}), adafactor_formula(1, 3, 5, 0.5), this->kTolerance);
}

TEST(WholeStateTest, HasTheShapesOfTheRule) {
  FlatParametersDouble parameters(DType::float32, {{"matrix", {3, 5}}, {"conv", {4, 2, 3, 1}}, {"bias", {7}}});
  const auto shapes_of = [&](const std::string& rule) {
    const Optimizer optimizer = make_optimizer({{"name", rule}}, parameters);
    std::vector<std::vector<std::optional<Shape>>> shapes(3);
    for (std::size_t s = 0; s < 3; ++s) {
      for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
        const std::optional<StateArray> state = optimizer.state_of(0, s, slot);
        shapes[s].push_back(state ? std::optional(state->shape) : std::nullopt);
      }
    }
    return shapes;
  };
  using Shapes = std::vector<std::optional<Shape>>;
  const std::nullopt_t none = std::nullopt;
  const auto of_adafactor = shapes_of("adafactor");
  EXPECT_EQ(of_adafactor[0], (Shapes{Shape{3, 1}, Shape{1, 5}, none}));
  EXPECT_EQ(of_adafactor[1], (Shapes{Shape{4, 2, 3, 1}, Shape{4, 2, 1, 1}, none}));
  EXPECT_EQ(of_adafactor[2], (Shapes{none, none, Shape{7}}));
  const auto of_muon = shapes_of("muon");
  EXPECT_EQ(of_muon[0], (Shapes{Shape{3, 5}, none, none}));
  EXPECT_EQ(of_muon[1], (Shapes{none, Shape{4, 2, 3, 1}, Shape{4, 2, 3, 1}}));
  EXPECT_EQ(of_muon[2], (Shapes{none, Shape{7}, Shape{7}}));
  const auto of_adam = shapes_of("adam");
  EXPECT_EQ(of_adam[1], (Shapes{Shape{4, 2, 3, 1}, Shape{4, 2, 3, 1}}));
}

// Each array begins on a cache line of its own, and no array is larger than what there is.
TEST(WholeStateTest, TakesNoMoreMemoryThanThereIsState) {
  FlatParametersDouble parameters(DType::float32, {{"matrix", {100, 5}}, {"bias", {7}}});
  Optimizer optimizer = make_optimizer({{"name", "adafactor"}}, parameters);
  EXPECT_EQ(optimizer.state(0, 0).size(), 7 * 64U);  // 100 rows
  EXPECT_EQ(optimizer.state(0, 1).size(), 64U);      // 5 columns
  EXPECT_EQ(optimizer.state(0, 2).size(), 64U);      // 7 elements
}

}  // namespace whole_test
}  // namespace lockstep::optim
