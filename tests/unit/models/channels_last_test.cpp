// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/channels_last.hpp"

#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <string>

namespace lockstep::models {
namespace channels_last_test {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

TEST(ChannelsLastTest, OnlyOtherOrdersAreCopied) {
  for (const std::int64_t channels : {1, 3}) {
    const at::Tensor planes = torch::rand({2, channels, 4, 5});
    const at::Tensor last = planes.clone(kLast);
    EXPECT_TRUE(channels_last(last).is_same(last));
    const at::Tensor copy = channels_last(planes);
    EXPECT_FALSE(copy.is_same(planes)) << channels;
    EXPECT_EQ(copy.strides(), last.strides());
    EXPECT_TRUE(copy.equal(planes));
    const at::Tensor part = last.narrow(0, 1, 1);
    EXPECT_TRUE(channels_last(part).is_same(part)) << "a part of a batch has the order of the batch";
  }
}

TEST(ChannelsLastTest, TheOrderOfTheInputDoesNotChangeTheOutput) {
  const std::map<std::string, std::map<std::string, std::string>> families = {
      {"resnet18", {{"width", "8"}}},
      {"convnext", {{"depths", "1,1"}, {"widths", "8,16"}}},
      {"unet", {{"width", "8"}, {"depth", "2"}}}};
  for (const auto& [name, keys] : families) {
    for (const std::int64_t channels : {1, 3}) {
      Task task{.sample_shape = {channels, 32, 32}, .classes = 4};
      if (name == "unet") task.kind = TaskKind::segmentation;
      Section section = Section::with_defaults("model", model_keys());
      section.set("name", name, "test");
      for (const auto& [key, text] : keys) section.set(key, text, "test");
      const auto model = build(section, task, 1, at::kFloat);
      EXPECT_TRUE(model->family().prefers_channels_last) << name;
      torch::manual_seed(1);
      const at::Tensor planes = torch::rand({2, channels, 32, 32});
      EXPECT_TRUE(model->forward(planes.clone(kLast)).equal(model->forward(planes))) << name << channels;
    }
  }
}

}  // namespace channels_last_test
}  // namespace lockstep::models
