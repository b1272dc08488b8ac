// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/image_preprocessor.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/sentence.hpp"

namespace lockstep::models {
namespace image_preprocessor_test {

using batch::Value;
using batch::ValueList;
using testing::sentence_of;

using Sizes = std::vector<std::int64_t>;

/// Channels of 127.5 + 1, + 2 and + 3, as bytes would not hold.
at::Tensor image(std::int64_t height, std::int64_t width) {
  at::Tensor image = at::full({3, height, width}, 127.5, at::kDouble);
  for (std::int64_t channel = 0; channel < 3; ++channel) image[channel] += static_cast<double>(channel + 1);
  return image;
}

// Case: mean 127.5, std [1, 2, 3], divisor 16, padding 10, sizes 3x10x10 and 3x15x15.
TEST(ImagePreprocessorTest, NormalizesThenPadsThenStacks) {
  const ImagePreprocessor preprocess({.mean = {127.5}, .std = {1, 2, 3}, .pad_size_divisor = 16, .pad_value = 10});
  const at::Tensor batch = preprocess(ValueList{image(10, 10), image(15, 15)});
  EXPECT_EQ(batch.sizes(), Sizes({2, 3, 16, 16}));
  EXPECT_EQ(batch.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch[0].slice(1, 10, 16), at::full({3, 6, 16}, 10.0)));
  EXPECT_TRUE(at::equal(batch[0].slice(2, 10, 16), at::full({3, 16, 6}, 10.0)));
  // 1 / 1, 2 / 2 and 3 / 3.
  EXPECT_TRUE(at::equal(batch[0].slice(1, 0, 10).slice(2, 0, 10), at::ones({3, 10, 10})));
  EXPECT_TRUE(at::equal(batch[1].slice(1, 0, 15).slice(2, 0, 15), at::ones({3, 15, 15})));
}

TEST(ImagePreprocessorTest, ABatchTensorIsRoundedUpOnly) {
  const at::Tensor padded = ImagePreprocessor({.pad_size_divisor = 16})(at::ones({2, 3, 10, 10}));
  EXPECT_EQ(padded.sizes(), Sizes({2, 3, 16, 16}));
  EXPECT_EQ(padded.sum().item<double>(), 600);
  EXPECT_TRUE(at::equal(padded.slice(2, 0, 10).slice(3, 0, 10), at::ones({2, 3, 10, 10})));
  EXPECT_EQ(ImagePreprocessor({.pad_size_divisor = 5})(at::ones({2, 1, 10, 10})).sizes(), Sizes({2, 1, 10, 10}));
}

TEST(ImagePreprocessorTest, ChannelsAreReversedBeforeTheyAreNormalized) {
  for (const bool is_bgr : {true, false}) {
    const ImagePreprocessor preprocess({.mean = {3, 2, 1}, .std = {1}, .bgr_to_rgb = is_bgr, .rgb_to_bgr = !is_bgr});
    const at::Tensor channels = at::arange(1, 4, at::kByte).view({3, 1, 1});  // 1, 2, 3
    EXPECT_TRUE(at::equal(preprocess(ValueList{channels}), at::zeros({1, 3, 1, 1})));
    EXPECT_TRUE(at::equal(preprocess(channels.unsqueeze(0)), at::zeros({1, 3, 1, 1})));
  }
}

// Cases: [3, 5] and [3, 7] with the divisor 4 make [2, 3, 8]; the first dimension is never padded.
TEST(StackBatchTest, PadsAllButTheFirstDimension) {
  const std::vector<at::Tensor> rows = {at::ones({3, 5}), at::ones({3, 7})};
  const at::Tensor stacked = stack_batch(rows, 4, 2);
  EXPECT_EQ(stacked.sizes(), Sizes({2, 3, 8}));
  EXPECT_TRUE(at::equal(stacked[0].slice(1, 5, 8), at::full({3, 3}, 2.0)));
  EXPECT_TRUE(at::equal(stacked[1].slice(1, 0, 7), at::ones({3, 7})));
  EXPECT_EQ(stack_batch(std::vector<at::Tensor>{at::ones({5}), at::ones({5})}).sizes(), Sizes({2, 5}));
}

TEST(ImagePreprocessorTest, RefusesWhatContradictsItself) {
  const std::vector<std::pair<ImageOptions, std::string>> rows = {
      {{.mean = {1}}, "mean and std of images: set both or none"},
      {{.std = {1}}, "mean and std of images: set both or none"},
      {{.mean = {1, 2}, .std = {1, 2}}, "mean and std of images need 1 or 3 values, not 2 and 2"},
      {{.mean = {1}, .std = {1, 2, 3, 4}}, "mean and std of images need 1 or 3 values, not 1 and 4"},
      {{.bgr_to_rgb = true, .rgb_to_bgr = true}, "images: bgr_to_rgb and rgb_to_bgr cannot be combined"},
      {{.pad_size_divisor = 0}, "images: pad_size_divisor must be at least 1"},
  };
  for (const auto& [options, sentence] : rows) {
    EXPECT_EQ(sentence_of<ConfigError>([&options = options] { ImagePreprocessor{options}; }), sentence);
  }
}

TEST(ImagePreprocessorTest, RefusesWhatIsNoBatchOfImages) {
  const ImagePreprocessor plain(ImageOptions{});
  const ImagePreprocessor colored({.mean = {1, 2, 3}, .std = {1, 1, 1}});
  const ImagePreprocessor reversing({.bgr_to_rgb = true});
  const std::vector<at::Tensor> mixed = {at::ones({3, 5}), at::ones({3, 5, 1})};
  const std::vector<std::pair<std::string, std::function<void()>>> rows = {
      {"images need the shape (N, C, H, W), not [3, 2, 2]",
       [&] {
         plain(at::zeros({3, 2, 2}));
       }},
      {"an image needs the shape (C, H, W), not [2, 2]",
       [&] {
         plain(ValueList{at::zeros({2, 2})});
       }},
      {"images must be a list of tensors or a tensor, not a text", [&] { plain("image"); }},
      {"a list of images must contain tensors, not a number", [&] { plain(ValueList{0.5}); }},
      {"images need three channels (3, H, W) here, not the shape [1, 2, 2]",
       [&] {
         colored(ValueList{at::zeros({1, 2, 2})});
       }},
      {"images need three channels (3, H, W) here, not the shape [2, 4, 2, 2]",
       [&] {
         reversing(at::zeros({2, 4, 2, 2}));
       }},
      {"the list of tensors is empty", [&] { plain(ValueList{}); }},
      {"tensors of the shapes [3, 5] and [3, 5, 1] cannot be stacked", [&] { stack_batch(mixed); }},
  };
  for (const auto& [sentence, call] : rows) EXPECT_EQ(sentence_of<DataError>(call), sentence);
}

}  // namespace image_preprocessor_test
}  // namespace lockstep::models
