// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/functional.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>
#include <string>

namespace lockstep::models {
namespace autocast_test {

bool casts() { return at::autocast::is_autocast_enabled(at::kCPU); }

TEST(AutocastTest, ProductsAreRoundedAndSumsAreNot) {
  const at::Tensor one = at::ones({1, 1});
  const at::Tensor fine = at::full({1, 1}, 1 + 0x1p-10);  // bfloat16 has 8 bits: rounds to 1
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::matmul(fine, one).item<float>(), 1.0F);
    EXPECT_EQ(at::matmul(fine, one).scalar_type(), at::kBFloat16);
    EXPECT_EQ(at::add(fine, one).item<float>(), 2 + 0x1p-10F);
  }
  EXPECT_EQ(at::matmul(fine, one).item<float>(), 1 + 0x1p-10F);
}

TEST(AutocastTest, TheOuterStateComesBack) {
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  {
    const Autocast outer(at::kCPU, at::kHalf);
    {
      const Autocast inner(at::kCPU, at::kBFloat16);
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
    }
    EXPECT_TRUE(casts());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  }
  EXPECT_FALSE(casts());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), before);
}

// A parameter's cast is kept within one forward, and not longer.
TEST(AutocastTest, AForwardSeesWhatAnUpdateWrote) {
  const at::Tensor input = at::ones({1, 1});
  at::Tensor weight = at::ones({1, 1}).requires_grad_();
  for (const float value : {1.0F, 2.0F, 4.0F}) {
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(value);
    }
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::linear(input, weight).item<float>(), value);
  }
}

TEST(AutocastTest, RefusesATypeThatIsNoneOf16Bits) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kChar}) {
    EXPECT_THROW(Autocast(at::kCPU, type), std::invalid_argument);
  }
  EXPECT_FALSE(casts());
}

class AutocastTypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(AutocastTypeTest, EveryModelTrainsAndItsGradientsAreFloat32) {
  for (const char* name : {"mlp", "cnn", "resnet18"}) {
    Section options = Section::with_defaults("model", model_keys());
    options.set("name", name, "test");
    options.set("width", "8", "test");
    const auto model = build(options, Task{.sample_shape = {3, 16, 16}, .classes = 10}, 1, at::kFloat);
    at::manual_seed(1);
    const at::Tensor input = at::randn({4, 3, 16, 16});
    const at::Tensor target = at::arange(4);
    const auto loss_of = [&] { return total_loss(model->losses(run(*model, input), target)); };
    const double exact = loss_of().item<double>();
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU, GetParam());
      loss = loss_of();
    }
    EXPECT_EQ(loss.scalar_type(), at::kFloat) << name;
    EXPECT_NE(loss.item<double>(), exact) << name;
    EXPECT_NEAR(loss.item<double>(), exact, 0.05 * exact) << name;
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << name << " " << item.key();
      EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat) << name << " " << item.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AutocastTypeTest, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

}  // namespace autocast_test
}  // namespace lockstep::models
