// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <unordered_set>

#include "files.hpp"

namespace lockstep::data {
namespace digits_test {

constexpr std::size_t kPixels = 28 * 28;

Splits open_digits(const std::string& seed = "0") { return open_with({{"name", "digits"}, {"seed", seed}}); }

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

std::size_t hash_of_image(const float* pixels) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(pixels), kPixels * sizeof(float)});
}

TEST(DigitsTest, HaveTheShapeTheirTaskSays) {
  const Splits digits = open_digits();
  EXPECT_EQ(digits.train->size(), 12000);
  EXPECT_EQ(digits.val->size(), 2000);
  const Task task = digits.train->task();
  EXPECT_EQ(task.sample_shape, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(task.classes, 10);
  EXPECT_FALSE(task.is_text);
  const batch::Batch batch = get(*digits.train, {3, 17, 11999});
  EXPECT_EQ(batch.input().sizes().vec(), (std::vector<std::int64_t>{3, 1, 28, 28}));
  EXPECT_EQ(batch.input().scalar_type(), at::kFloat);
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (std::vector<std::int64_t>{3, 7, 9}));
}

TEST(DigitsTest, NoImageOccursTwiceInBothSplitsTogether) {
  const Splits digits = open_digits();
  std::unordered_set<std::size_t> hashes;
  for (const auto& split : {digits.train, digits.val}) {
    for (std::int64_t begin = 0; begin < split->size(); begin += 1000) {
      const batch::Batch batch = split->get(draws_of(range(begin, begin + 1000)));
      const float* pixels = batch.input().const_data_ptr<float>();
      for (std::size_t i = 0; i < 1000; ++i) hashes.insert(hash_of_image(pixels + i * kPixels));
    }
  }
  EXPECT_EQ(hashes.size(), 14000U);
}

TEST(DigitsTest, AnImageDoesNotDependOnItsBatchOrThread) {
  const Splits digits = open_digits();
  const batch::Batch combined = digits.train->get(draws_of(range(0, 200)));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t index = 199; index >= 0; --index) {
        const batch::Batch alone = get(*digits.train, {index});
        wrong[t] += alone.input()[0].equal(combined.input()[index]) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(DigitsTest, SeedAndSizesChangeTheDigest) {
  const auto digest = [](const std::string& key, const std::string& text) {
    return open_with({{"name", "digits"}, {key, text}}).train->digest();
  };
  EXPECT_EQ(digest("seed", "0"), open_digits().train->digest());
  EXPECT_NE(digest("seed", "1"), open_digits().train->digest());
  EXPECT_NE(digest("train_size", "11999"), open_digits().train->digest());
  EXPECT_NE(open_digits().val->digest(), open_digits().train->digest());
  EXPECT_FALSE(get(*open_digits("1").train, {0}).input().equal(get(*open_digits().train, {0}).input()));
}

// Drawn alike by every machine and compiler. A new way of drawing changes it, and every figure taken on the digits.
TEST(DigitsTest, AreThePublishedOnes) {
  EXPECT_EQ(open_digits().train->digest(), 17579049798363625657U);
  EXPECT_EQ(open_digits().val->digest(), 3404916627578243007U);
}

TEST(DigitsTest, PixelsHaveAboutMeanZeroAndVarianceOne) {
  const batch::Batch batch = open_digits().train->get(draws_of(range(0, 4000)));
  EXPECT_NEAR(batch.input().mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(batch.input().std().item<double>(), 1.0, 0.02);
}

TEST(DigitsTest, RefusesIndicesOutside) {
  const Splits digits = open_digits();
  EXPECT_THROW(get(*digits.val, {2000}), std::out_of_range);
  EXPECT_THROW(get(*digits.val, {-1}), std::out_of_range);
}

double accuracy(const at::Tensor& logits, const at::Tensor& target) {
  return logits.argmax(1).eq(target).to(at::kFloat).mean().item<double>();
}

// Softmax regression by gradient descent with momentum, over shuffled batches of 100.
TEST(DigitsTest, ALinearModelStaysBelow93Percent) {
  constexpr std::int64_t kTrain = 12000;
  const Splits digits = open_digits();
  const batch::Batch train = digits.train->get(draws_of(range(0, kTrain)));
  const batch::Batch test = digits.val->get(draws_of(range(0, 2000)));
  const at::Tensor images = train.input().view({kTrain, kPixels});
  const at::Tensor test_images = test.input().view({2000, kPixels});
  const at::Tensor wanted = at::one_hot(train.target(), 10).to(at::kFloat);
  at::Tensor weights = at::zeros({kPixels, 10});
  at::Tensor momentum = at::zeros_like(weights);
  double best = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    const double lr = 0.02 * (20 - epoch) / 20;
    for (std::int64_t begin = 0; begin < kTrain; begin += 100) {
      const at::Tensor batch = images.narrow(0, begin, 100);
      const at::Tensor error = at::softmax(batch.mm(weights), 1) - wanted.narrow(0, begin, 100);
      momentum.mul_(0.9).add_(batch.t().mm(error), 0.01);
      weights.sub_(momentum, lr);
    }
    best = std::max(best, accuracy(test_images.mm(weights), test.target()));
  }
  EXPECT_LT(best, 0.93);
  EXPECT_GT(best, 0.80);  // it has learned what it can
}

}  // namespace digits_test
}  // namespace lockstep::data
