// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/batch/batch.hpp>
#include <lockstep/core/error.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/draws.hpp"
#include "support/sentence.hpp"

namespace lockstep::batch {
namespace batch_test {

using testing::sentence_of;

const at::Tensor kData = at::ones({3, 2});
const at::Tensor kLabel = at::zeros({3}, at::kLong);

TEST(BatchTest, DataAndLabelAreInputAndTarget) {
  const Batch batch{kData, kLabel};
  EXPECT_EQ(batch.size(), 3);
  EXPECT_TRUE(batch.input().is_same(kData));
  EXPECT_TRUE(batch.target().is_same(kLabel));
  EXPECT_TRUE(batch.tensor("label").is_same(kLabel));
  const Batch unlabeled(kData);
  EXPECT_FALSE(unlabeled.has_target());
  EXPECT_FALSE(unlabeled.has("label"));
}

TEST(BatchTest, TheFirstSamplesCanBeDropped) {
  Batch batch({{"data", at::arange(6).view({3, 2})},
               {"names", ValueList{"a", "b", "c"}},
               {"of all", at::zeros({2})},
               {"label", at::arange(3)}},
              3);
  batch.set_draws(testing::draws_of({7, 8, 9}));
  batch.drop_first(2);
  EXPECT_EQ(batch.size(), 1);
  EXPECT_TRUE(batch.input().equal(at::tensor({4, 5}).view({1, 2})));
  EXPECT_TRUE(batch.target().equal(at::tensor({2})));
  EXPECT_EQ(batch.tensor("of all").size(0), 2);
  ASSERT_EQ(batch.at("names").as<ValueList>().size(), 1U);
  EXPECT_EQ(batch.at("names").as<ValueList>().front().as<std::string>(), "c");
  EXPECT_EQ(batch.draws(), testing::draws_of({9}));
}

TEST(BatchTest, WhatIsNotThereIsNamed) {
  const Batch batch({{"crops", ValueList{kData, kData}}, {"mixed", ValueList{kData, "text"}}, {"name", "n"}}, 3);
  const auto refusal = [](const auto& call) { return sentence_of<DataError>(call); };
  EXPECT_EQ(refusal([&] { batch.input(); }), "samples do not contain 'data', only 'crops', 'mixed', 'name'");
  EXPECT_EQ(refusal([&] { batch.tensor("crops"); }), "'crops' of the batch is a list, not a tensor");
  EXPECT_EQ(refusal([&] { batch.tensors("name"); }), "'name' of the batch is a text, not tensors");
  EXPECT_EQ(refusal([&] { batch.tensors("mixed"); }), "the list 'mixed' of the batch contains a text");
  EXPECT_EQ(refusal([&] { batch.input(1); }), "the batch does not contain input 1: data.input_keys lists only 1");
  EXPECT_EQ(refusal([&] { Batch().at("data"); }), "samples do not contain 'data', only nothing");
  EXPECT_EQ(batch.tensors("crops").size(), 2U);
}

TEST(BatchTest, RolesSayWhatIsInputAndTarget) {
  Batch batch({{"a", kData}, {"b", kLabel}, {"c", kData}}, 3);
  batch.set_roles(std::make_shared<const Roles>(Roles{.inputs = {"c", "b"}, .targets = {"a"}}));
  EXPECT_EQ(batch.input_key(1), "b");
  EXPECT_TRUE(batch.input(1).is_same(kLabel));
  batch.set_input(kData, 1);
  EXPECT_TRUE(batch.tensor("b").is_same(kData));
  EXPECT_EQ(batch.target_key(), "a");
}

TEST(BatchTest, ASharedBatchChangesAlone) {
  Batch batch{kData, kLabel};
  batch.set_draws(testing::draws_of({4, 5, 6}));
  Batch shared = batch.share();
  shared.change("data", [](at::Tensor& tensor) { tensor = tensor + 1; });
  shared.set("extra", 1);
  EXPECT_TRUE(batch.input().is_same(kData));
  EXPECT_FALSE(batch.has("extra"));
  EXPECT_EQ(shared.draws(), batch.draws());
  EXPECT_TRUE(shared.target().is_same(kLabel));
}

TEST(BatchTest, ChangeReachesTheTensorsOfListsAndMaps) {
  Batch batch({{"x", ValueMap{{"list", ValueList{kData, "text"}}, {"alone", kData}}}}, 3);
  int tensors = 0;
  batch.change("x", [&tensors](at::Tensor&) { ++tensors; });
  EXPECT_EQ(tensors, 2);
}

TEST(DrawTest, EvaluationsTakeTheDataSetsOrder) {
  EXPECT_EQ(draws_in_order(5, 2),
            (std::vector<Draw>{{.index = 5, .epoch = 0, .position = 5}, {.index = 6, .epoch = 0, .position = 6}}));
}

TEST(OutputsTest, AreTensorsByName) {
  Outputs outputs = {{"scores", kData}, {"boxes", kLabel}};
  outputs.add("levels", std::vector<at::Tensor>{kData, kLabel});
  EXPECT_TRUE(outputs.main().is_same(kData));
  EXPECT_TRUE(outputs.tensor("boxes").is_same(kLabel));
  EXPECT_EQ(outputs.list("levels").size(), 2U);
  EXPECT_TRUE(outputs.list("none").empty());
  EXPECT_FALSE(outputs.find("none").defined());
  EXPECT_EQ(sentence_of<ConfigError>([&] { outputs.tensor("masks"); }),
            "the model does not return the output 'masks', only 'scores', 'boxes', 'levels', 'levels'");
  EXPECT_EQ(sentence_of<ConfigError>([] { Outputs().main(); }), "the model returned no outputs");
}

TEST(OutputsTest, ATensorIsTheOutput) {
  const at::Tensor tensor = at::ones({2}).requires_grad_() * 2;
  const Outputs outputs = tensor;
  EXPECT_EQ(outputs.entries().front().first, "output");
  EXPECT_TRUE(outputs.main().requires_grad());
  EXPECT_FALSE(outputs.detached().main().requires_grad());
}

}  // namespace batch_test
}  // namespace lockstep::batch
