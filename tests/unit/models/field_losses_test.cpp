// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/loss.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/sentence.hpp"

namespace lockstep::models {
namespace field_losses_test {

using testing::sentence_of;
using Keys = std::map<std::string, std::string>;

/// Two channels in space with 4 latitudes and 5 longitudes.
const Task kFields = {
    .sample_shape = {2, 4, 5},
    .classes = 2,
    .kind = TaskKind::regression,
    .fields = {.channels = {"u", "v"}, .axes = {"lat", "lon"}, .coordinates = {{10, 20, 30, 40}, {0, 1, 2, 3, 4}}}};

Loss loss_of(const Keys& keys, const Task& task = kFields) {
  Section loss = Section::with_defaults("loss", loss_keys());
  for (const auto& [key, value] : keys) loss.set(key, value, "here");
  return make_loss(loss, task);
}

/// Random fields of three samples.
struct Fields {
  at::Tensor output;
  at::Tensor target;

  explicit Fields(at::IntArrayRef shape = {3, 2, 4, 5}) {
    torch::manual_seed(5);
    output = torch::randn(shape, at::kDouble);
    target = torch::randn(shape, at::kDouble);
  }
  batch::Batch batch(const at::Tensor& mask = {}) const {
    batch::Batch made(output, target);
    if (mask.defined()) made.set("mask", mask);
    return made;
  }
};

double value_of(const Loss& loss, const at::Tensor& output, const batch::Batch& batch) {
  return loss.value(output, batch, /*is_training=*/true).item<double>();
}

/// Half of the points, chosen by their number.
at::Tensor some_points(const at::Tensor& fields) {
  return torch::arange(fields.numel()).view(fields.sizes()).remainder(5).ne(0).logical_and(fields.gt(-1));
}

std::vector<Keys> all_losses() {
  std::vector<Keys> all;
  for (const char* name : {"mse", "l1", "relative_l2", "relative_l1", "h1", "l2", "h1_absolute"}) {
    Keys keys = {{"name", name}, {"area", "true"}, {"channel_weights", "0.5,2"}};
    const std::string text = name;
    if (text.starts_with("h1") || text == "l2") keys["measure"] = "2,3";
    if (text.starts_with("h1")) keys["periodic"] = "false,true";
    all.push_back(keys);
  }
  return all;
}

// Central differences of the value.
TEST(FieldLossesTest, GradientsAreThoseOfTheValue) {
  constexpr double kStep = 1e-6;
  const Fields fields;
  for (const Keys& keys : all_losses()) {
    for (const bool has_mask : {false, true}) {
      if (has_mask && keys.at("name").starts_with("h1")) continue;
      SCOPED_TRACE(keys.at("name") + (has_mask ? " with gaps" : ""));
      const Loss loss = loss_of(keys);
      const batch::Batch batch = fields.batch(has_mask ? some_points(fields.target) : at::Tensor());
      const at::Tensor output = fields.output.clone().requires_grad_();
      loss.value(output, batch, true).backward();
      for (const std::int64_t i : {0, 7, 33, 61, 85, 119}) {
        at::Tensor moved = fields.output.clone();
        moved.view(-1)[i] += kStep;
        const double above = value_of(loss, moved, batch);
        moved.view(-1)[i] -= 2 * kStep;
        const double slope = (above - value_of(loss, moved, batch)) / (2 * kStep);
        EXPECT_NEAR(output.grad().view(-1)[i].item<double>(), slope, 1e-8) << i;
      }
    }
  }
}

TEST(FieldLossesTest, ValuesHaveTheTypeOfTheOutput) {
  const Fields fields;
  for (const Keys& keys : all_losses()) {
    const at::Tensor value = loss_of(keys).value(fields.output.to(at::kFloat), fields.batch(), true);
    EXPECT_EQ(value.scalar_type(), at::kFloat);
    EXPECT_NEAR(value.item<double>(), value_of(loss_of(keys), fields.output, fields.batch()), 1e-4) << keys.at("name");
  }
}

// A correct prediction has the loss 0, and no gradient that is not a number.
TEST(FieldLossesTest, NothingIsUndefinedWithoutErrors) {
  const Fields fields;
  for (const Keys& keys : all_losses()) {
    const at::Tensor output = fields.target.clone().requires_grad_();
    const at::Tensor value = loss_of(keys).value(output, fields.batch(), true);
    EXPECT_EQ(value.item<double>(), 0);
    value.backward();
    EXPECT_TRUE(at::isfinite(output.grad()).all().item<bool>()) << keys.at("name");
  }
}

// Values in gaps can be anything, NaN and infinities included.
TEST(FieldLossesTest, GapsDoNotCount) {
  Fields fields;
  const at::Tensor mask = some_points(fields.target);
  const double count = mask.sum().item<double>();
  const at::Tensor errors = (fields.output - fields.target).abs().where(mask, torch::zeros({}, at::kDouble));
  const at::Tensor nan = torch::full({}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  const at::Tensor infinity = torch::full({}, std::numeric_limits<double>::infinity(), at::kDouble);
  fields.target = fields.target.where(mask, nan);
  const at::Tensor output = fields.output.where(mask, infinity).requires_grad_();
  const batch::Batch batch = fields.batch(mask.to(at::kByte));
  EXPECT_NEAR(value_of(loss_of({{"name", "l1"}}), output, batch), errors.sum().item<double>() / count, 1e-14);
  EXPECT_NEAR(value_of(loss_of({{"name", "mse"}}), output, batch), errors.square().sum().item<double>() / count, 1e-14);
  EXPECT_EQ(loss_of({{"name", "mse"}}).count(batch), count);
  for (const char* name : {"mse", "l1", "huber", "smooth_l1", "relative_l2", "relative_l1", "l2"}) {
    output.mutable_grad().reset();
    loss_of({{"name", name}}).value(output, batch, true).backward();
    EXPECT_TRUE(at::isfinite(output.grad()).all().item<bool>()) << name;
    EXPECT_EQ(output.grad().masked_select(mask.logical_not()).abs().sum().item<double>(), 0) << name;
  }
}

// Losses weighted by their counts add up to the loss of the whole batch, however it is divided.
TEST(FieldLossesTest, PartsWithGapsAddUpToTheWhole) {
  const Fields fields;
  at::Tensor mask = some_points(fields.target);
  mask[1].zero_();  // a sample that does not count
  for (const Keys& keys : {Keys{{"name", "mse"}}, Keys{{"name", "l1"}, {"area", "cosine"}},
                           Keys{{"name", "mse"}, {"area", "true"}, {"channel_weights", "3,1"}}}) {
    const Loss loss = loss_of(keys);
    double sum = 0;
    double total = 0;
    for (std::int64_t i = 0; i < mask.size(0); ++i) {
      batch::Batch part(fields.output.narrow(0, i, 1), fields.target.narrow(0, i, 1));
      part.set("mask", mask.narrow(0, i, 1));
      const double count = loss.count(part);
      EXPECT_EQ(count == 0, i == 1);
      total += count;
      sum += count * value_of(loss, fields.output.narrow(0, i, 1), part);
    }
    EXPECT_NEAR(sum / total, value_of(loss, fields.output, fields.batch(mask)), 1e-14);
  }
}

TEST(FieldLossesTest, AutoHonorsGapsOfFields) {
  const Fields fields;
  const batch::Batch batch = fields.batch(some_points(fields.target));
  EXPECT_EQ(value_of(loss_of({}), fields.output, batch), value_of(loss_of({{"name", "mse"}}), fields.output, batch));
  EXPECT_FALSE(loss_of({}, {.kind = TaskKind::regression}));
}

// The weights of channels are those of one step; channels of later steps follow.
TEST(FieldLossesTest, ChannelWeightsRepeatForEachStep) {
  const Fields steps({3, 4, 4, 5});
  const double value = value_of(loss_of({{"name", "l1"}, {"channel_weights", "1,3"}}), steps.output, steps.batch());
  const at::Tensor means = (steps.output - steps.target).abs().mean({0, 2, 3});
  EXPECT_NEAR(value, (means[0] + 3 * means[1] + means[2] + 3 * means[3]).item<double>() / 4, 1e-14);
}

// x^2 in space of extent 1 with n = 5 points: all differences are exact, and the spacing is 1 / 5.
TEST(FieldLossesTest, DerivativesOfAParabolaAreExact) {
  const at::Tensor x = torch::arange(5, at::kDouble) / 5;
  const at::Tensor parabola = (x * x).view({1, 1, 5});
  const batch::Batch batch(parabola, torch::zeros({1, 1, 5}, at::kDouble));
  const Task task = {.kind = TaskKind::regression};
  const double expected = std::sqrt(((x * x).square().sum() + (2 * x).square().sum()).item<double>() / 5);
  EXPECT_NEAR(value_of(loss_of({{"name", "h1_absolute"}}, task), parabola, batch), expected, 1e-14);
  EXPECT_GT(value_of(loss_of({{"name", "h1_absolute"}, {"periodic", "true"}}, task), parabola, batch), expected);
}

TEST(FieldLossesTest, SumsAreThoseOfSamplesAndChannels) {
  const Fields fields;
  const double mean = value_of(loss_of({{"name", "relative_l2"}}), fields.output, fields.batch());
  const double sum = value_of(loss_of({{"name", "relative_l2"}, {"reduction", "sum"}}), fields.output, fields.batch());
  EXPECT_NEAR(sum, 6 * mean, 1e-13);
}

TEST(FieldLossesTest, KeysThatDoNotFitAreRefused) {
  const auto refusal = [](const Keys& keys) { return sentence_of<ConfigError>([&] { loss_of(keys); }); };
  EXPECT_EQ(refusal({{"name", "mse"}, {"channel_weights", "1"}}),
            "loss.channel_weights (here): 1 numbers are given for 2 channels; give one for each channel");
  EXPECT_EQ(refusal({{"name", "mse"}, {"channel_weights", "1,-1"}}),
            "loss.channel_weights (here): numbers must be finite and at least 0, and one must be greater than 0");
  EXPECT_EQ(
      refusal({{"name", "mse"}, {"weights", "1,2"}, {"area", "true"}}),
      "loss.weights (here) cannot be combined with loss.area or loss.channel_weights; use loss.channel_weights in "
      "its place");
  EXPECT_EQ(refusal({{"name", "h1"}, {"periodic", "yes"}}), "loss.periodic (here): 'yes' is neither true nor false");
  EXPECT_EQ(refusal({{"name", "l2"}, {"measure", "0"}}),
            "loss.measure (here): the extent of space must be greater than 0");
  const Fields fields;
  EXPECT_EQ(sentence_of<ConfigError>([&] {
              value_of(loss_of({{"name", "l2"}, {"measure", "1,2,3"}}), fields.output, fields.batch());
            }),
            "loss.measure: 3 values are given for 2 axes of space; give one, or one for each axis");
}

TEST(FieldLossesTest, DataThatDoNotFitAreRefused) {
  const Fields fields;
  const auto refusal = [](const Keys& keys, const Fields& given, const at::Tensor& mask = {}) {
    return sentence_of<DataError>([&] { value_of(loss_of(keys), given.output, given.batch(mask)); });
  };
  EXPECT_EQ(
      refusal({{"name", "mse"}}, fields, torch::ones({3, 4, 5})),
      "the value mask of the batch has the shape [3, 4, 5], the targets [3, 2, 4, 5]; a mask has the sizes of the "
      "targets, or 1 for channels and space");
  EXPECT_EQ(refusal({{"name", "h1"}}, fields, torch::ones({3, 1, 4, 5})),
            "loss.name (here): h1 has no derivatives next to gaps, which the value mask of the batch marks; use "
            "relative_l2 or l2");
  EXPECT_EQ(refusal({{"name", "relative_l2"}}, Fields({3, 2})),
            "loss.name (here): relative_l2 needs outputs and targets of one shape [N, C, space...] with 1 to 3 axes of "
            "space, not [3, 2] and [3, 2]");
  EXPECT_EQ(refusal({{"name", "mse"}, {"area", "true"}}, Fields({3, 2, 5, 5})),
            "loss.area: fields of shape [3, 2, 5, 5] have no axis of 4 latitudes at dimension 2; use false");
  EXPECT_EQ(refusal({{"name", "mse"}, {"channel_weights", "1,2"}}, Fields({3, 3, 4, 5})),
            "loss.channel_weights: 2 numbers are given for fields of shape [3, 3, 4, 5]; give one for each channel");
  EXPECT_EQ(refusal({{"name", "h1"}}, Fields({3, 2, 3, 5})),
            "the derivatives of fields of shape [3, 2, 3, 5] need at least 4 points along each axis that is not "
            "periodic; choose another loss.name, or see loss.periodic");
}

}  // namespace field_losses_test
}  // namespace lockstep::models
