// SPDX-License-Identifier: BSD-3-Clause
// Products of small integers are exact in float32, whatever the order of the sums: all ways must have the same bits.
#include "models/layers/linear_kernels.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>

#include "kernels/dot_products.hpp"
#include "kernels/outer_product.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace linear_kernels_test {

at::Tensor integers(std::initializer_list<std::int64_t> sizes) { return torch::randint(-8, 9, sizes, at::kFloat); }

/// left^T right, on top of values that must not matter.
at::Tensor outer_product(const at::Tensor& left, const at::Tensor& right, std::int64_t shift = 0) {
  const std::int64_t count = left.size(1) * right.size(1);
  const at::Tensor memory = torch::full({count + shift}, 1e30);
  const kernels::OuterProduct product{.left = left.const_data_ptr<float>(),
                                      .right = right.const_data_ptr<float>(),
                                      .samples = left.size(0),
                                      .rows = left.size(1),
                                      .columns = right.size(1)};
  const std::vector<float> panels = kernels::outer_product_panels(product);
  float* const result = memory.mutable_data_ptr<float>() + shift;
  at::parallel_for(0, product.rows, kernels::outer_product_grain(product), [&](std::int64_t begin, std::int64_t end) {
    kernels::write_outer_product(product, panels, begin, end, result);
  });
  return memory.narrow(0, shift, count).view({left.size(1), right.size(1)});
}

/// input weight^T + bias, in two parts, on top of values that must not matter.
at::Tensor dot_products(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor result = torch::full({input.size(0), weight.size(0)}, 1e30);
  const kernels::DotProducts products{.input = input.const_data_ptr<float>(),
                                      .weight = weight.const_data_ptr<float>(),
                                      .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                      .rows = input.size(0),
                                      .inputs = input.size(1),
                                      .outputs = weight.size(0)};
  kernels::write_dot_products(products, 0, weight.size(0) / 3, result.mutable_data_ptr<float>());
  kernels::write_dot_products(products, weight.size(0) / 3, weight.size(0), result.mutable_data_ptr<float>());
  return result;
}

TEST(DotProductsTest, EverySizeIsExact) {
  torch::manual_seed(5);
  testing::at_each_level([] {
    for (std::int64_t rows = 1; rows <= kernels::kMaxDotRows; ++rows) {
      for (const std::int64_t inputs : {1, 7, 16, 64, 77}) {
        for (const std::int64_t outputs : {1, 2, 9}) {
          const at::Tensor input = integers({rows, inputs});
          const at::Tensor weight = integers({outputs, inputs});
          for (const at::Tensor& bias : {at::Tensor(), integers({outputs})}) {
            const at::Tensor expected = at::linear(input, weight, bias);
            EXPECT_TRUE(at::equal(dot_products(input, weight, bias), expected))
                << rows << " " << inputs << " " << outputs;
          }
        }
      }
    }
  });
}

TEST(DotProductsTest, ARowHasTheSameBitsAmongAnyOthers) {
  torch::manual_seed(6);
  const at::Tensor input = torch::randn({kernels::kMaxDotRows, 333});
  const at::Tensor weight = torch::randn({11, 333});
  testing::at_each_level([&] {
    const at::Tensor all = dot_products(input, weight, {});
    for (std::int64_t row = 0; row < input.size(0); ++row) {
      EXPECT_TRUE(at::equal(dot_products(input.narrow(0, row, 1), weight, {})[0], all[row])) << row;
    }
  });
}

TEST(DotProductsTest, LinearLayersOfFewRowsUseThem) {
  torch::manual_seed(7);
  const at::Tensor weight = integers({256, 512});
  const at::Tensor bias = integers({256});
  testing::in_both_forms(kernels::Kernel::dot_products, [&] {
    for (const at::Tensor& input :
         {integers({2, 4, 512}), integers({1, 512}), integers({512}), integers({16, 512}), integers({512, 3}).t()}) {
      EXPECT_TRUE(at::equal(linear_output(input, weight, bias), at::linear(input, weight, bias)));
      EXPECT_TRUE(at::equal(linear_output(input, weight, {}), at::linear(input, weight)));
    }
  });
}

TEST(OuterProductTest, EverySizeIsExact) {
  torch::manual_seed(1);
  for (const std::int64_t samples : {std::int64_t{1}, std::int64_t{8}, kernels::kMaxSamples}) {
    for (const std::int64_t rows : {1, 3, 4, 9}) {
      for (const std::int64_t columns : {1, 15, 63, 64, 65, 144, 200}) {
        const at::Tensor left = integers({samples, rows});
        const at::Tensor right = integers({samples, columns});
        const at::Tensor expected = left.t().to(at::kDouble).mm(right.to(at::kDouble)).to(at::kFloat);
        EXPECT_TRUE(at::equal(outer_product(left, right), expected)) << samples << " " << rows << " " << columns;
        EXPECT_TRUE(at::equal(outer_product(left, right, 1), expected)) << "not aligned";
      }
    }
  }
}

// Results in the order of the samples, wherever the element lies: in a tile or in what is left of a row.
TEST(OuterProductTest, EveryElementIsSummedInTheSameOrder) {
  torch::manual_seed(2);
  const at::Tensor left = torch::randn({7, 1}).expand({7, 5}).contiguous();
  const at::Tensor right = torch::randn({7, 1}).expand({7, 67}).contiguous();
  float sum = 0;
  for (std::int64_t n = 0; n < 7; ++n) sum += left[n][0].item<float>() * right[n][0].item<float>();
  EXPECT_TRUE(at::equal(outer_product(left, right), torch::full({5, 67}, sum)));
}

TEST(OuterProductTest, ThreadsDivideTheRows) {
  torch::manual_seed(3);
  const at::Tensor left = torch::randn({8, 1031});
  const at::Tensor right = torch::randn({8, 515});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = outer_product(left, right);
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(outer_product(left, right), alone));
  at::set_num_threads(before);
}

TEST(OuterProductTest, MoreSamplesAreRefused) {
  EXPECT_THROW(outer_product(torch::ones({kernels::kMaxSamples + 1, 2}), torch::ones({kernels::kMaxSamples + 1, 2})),
               std::logic_error);
}

TEST(LinearKernelsTest, AllProductsAreThoseOfLibTorch) {
  torch::manual_seed(4);
  for (const std::int64_t n : {0, 1, 8, 15, 16, 40, 65, 130}) {
    const at::Tensor input = integers({n, 36});
    const at::Tensor gradient = integers({n, 20});
    const at::Tensor weight = integers({20, 36});
    const at::Tensor bias = integers({20});
    EXPECT_TRUE(at::equal(linear_output(input, weight, bias), at::linear(input, weight, bias))) << n;
    EXPECT_TRUE(at::equal(linear_output(input, weight, {}), at::linear(input, weight))) << n;
    EXPECT_TRUE(at::equal(linear_input_gradient(gradient, weight), gradient.mm(weight))) << n;
    testing::in_both_forms(kernels::Kernel::outer_product, [&] {
      const at::Tensor target = torch::full({20, 36}, 1e30);
      linear_weight_gradient(gradient, input, target);
      EXPECT_TRUE(at::equal(target, gradient.t().mm(input))) << n;
      // A copy of any layout and type.
      const at::Tensor turned = gradient.t().contiguous().t();
      linear_weight_gradient(turned, input, target);
      EXPECT_TRUE(at::equal(target, gradient.t().mm(input))) << n;
    });
    EXPECT_TRUE(at::equal(linear_output(input.to(at::kDouble), weight.to(at::kDouble), {}),
                          at::linear(input, weight).to(at::kDouble)))
        << n;
  }
}

TEST(LinearKernelsTest, OutputsHaveTheShapeOfTheInput) {
  const at::Tensor input = integers({2, 3, 6});
  const at::Tensor weight = integers({4, 6});
  EXPECT_TRUE(at::equal(linear_output(input, weight, {}), at::linear(input, weight)));
  EXPECT_TRUE(at::equal(linear_output(input[0][0], weight, {}), at::linear(input[0][0], weight)));
}

}  // namespace linear_kernels_test
}  // namespace lockstep::models
