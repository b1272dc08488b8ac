// SPDX-License-Identifier: BSD-3-Clause
#include "data/sample.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockstep::data {
namespace sample_test {

class SampleTest : public ::testing::Test {
 protected:
  static bool is_same(const Value& value, const at::Tensor& tensor) {
    return value.is<at::Tensor>() && value.as<at::Tensor>().is_same(tensor);
  }
  static Value list(const at::Tensor& tensor) { return ValueList{tensor}; }

  template <class E>
  static std::string refusal(const ValueMap& batch, const SampleKeys& keys = {}) {
    try {
      construct_sample(batch, keys);
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }

  const at::Tensor x_ = torch::zeros({2, 3});
  const at::Tensor y_ = torch::zeros({2}, at::kLong);
  const at::Tensor v_ = torch::ones({2}, at::kBool);
  const at::Tensor i_ = torch::arange(2);
};

TEST_F(SampleTest, OfOneInputAndOneTarget) {
  const ValueMap sample =
      construct_sample({{"data", list(x_)}, {"label", list(y_)}, {"data_valid", list(v_)}, {"data_idx", list(i_)}});
  EXPECT_EQ(sample.size(), 4U);
  EXPECT_TRUE(is_same(sample.at("input"), x_));
  EXPECT_TRUE(is_same(sample.at("target"), y_));
  EXPECT_TRUE(is_same(sample.at("data_valid"), v_));  // not the list that it was
  EXPECT_TRUE(is_same(sample.at("data_idx").as<ValueList>().at(0), i_));
}

// PIRL's two views of a picture.
TEST_F(SampleTest, OfSeveralInputsIsAMapOfThem) {
  const SampleKeys keys = {.inputs = {"images", "patches"}, .targets = {"label"}};
  const ValueMap sample = construct_sample({{"images", list(x_)}, {"patches", list(v_)}, {"label", list(y_)}}, keys);
  EXPECT_EQ(sample.size(), 2U);
  const auto& input = sample.at("input").as<ValueMap>();
  EXPECT_EQ(input.size(), 2U);
  EXPECT_TRUE(is_same(input.at("images"), x_));
  EXPECT_TRUE(is_same(input.at("patches"), v_));
  EXPECT_TRUE(is_same(sample.at("target"), y_));
}

TEST_F(SampleTest, OfSeveralTargetsIsAMapOfThemWhateverTheInputs) {
  const ValueMap batch = {{"data", list(x_)}, {"more", list(i_)}, {"label", list(y_)}, {"box", list(v_)}};
  for (const bool has_two_inputs : {false, true}) {
    SampleKeys keys = {.targets = {"label", "box"}};
    if (has_two_inputs) keys.inputs.emplace_back("more");
    const ValueMap sample = construct_sample(batch, keys);
    EXPECT_EQ(sample.at("input").is<ValueMap>(), has_two_inputs);
    EXPECT_EQ(sample.contains("more"), !has_two_inputs);
    const auto& target = sample.at("target").as<ValueMap>();
    EXPECT_EQ(target.size(), 2U);
    EXPECT_TRUE(is_same(target.at("label"), y_));
    EXPECT_TRUE(is_same(target.at("box"), v_));
  }
}

TEST_F(SampleTest, WhatElseABatchHasReplacesNothing) {
  const ValueMap sample =
      construct_sample({{"data", list(x_)}, {"label", list(y_)}, {"input", list(i_)}, {"target", "a text"}});
  EXPECT_TRUE(is_same(sample.at("input"), x_));
  EXPECT_TRUE(is_same(sample.at("target"), y_));
  const SampleKeys keys = {.inputs = {"input"}, .targets = {"target"}};
  const ValueMap same = construct_sample({{"input", list(x_)}, {"target", list(y_)}, {"note", "a text"}}, keys);
  EXPECT_TRUE(is_same(same.at("input"), x_));
  EXPECT_EQ(same.at("note").as<std::string>(), "a text");
}

// An auto-encoder's target is its input.
TEST_F(SampleTest, OneKeyMayBeInputAndTarget) {
  const SampleKeys keys = {.inputs = {"data"}, .targets = {"data"}};
  const ValueMap sample = construct_sample({{"data", list(x_)}, {"label", list(y_)}}, keys);
  EXPECT_TRUE(is_same(sample.at("input"), x_));
  EXPECT_TRUE(is_same(sample.at("target"), x_));
}

TEST_F(SampleTest, RefusesKeysThatMakeNoSample) {
  const ValueMap batch = {{"data", list(x_)}, {"label", list(y_)}};
  EXPECT_EQ(refusal<ConfigError>(batch, {.inputs = {}}), "a sample needs at least one input key");
  EXPECT_EQ(refusal<ConfigError>(batch, {.targets = {}}), "a sample needs at least one target key");
  EXPECT_EQ(refusal<ConfigError>(batch, {.inputs = {"data", "data"}}), "the input keys 'data', 'data' name one twice");
  EXPECT_EQ(refusal<ConfigError>(batch, {.targets = {"a", "b", "a"}}), "the target keys 'a', 'b', 'a' name one twice");
}

TEST_F(SampleTest, RefusesABatchThatDoesNotMatch) {
  EXPECT_EQ(refusal<DataError>({{"data", list(x_)}}),
            "a sample of inputs 'data' and targets 'label' needs a batch of 2 keys or more, but this one has only "
            "'data'");
  EXPECT_EQ(refusal<DataError>({}),
            "a sample of inputs 'data' and targets 'label' needs a batch of 2 keys or more, but this one has none");
  EXPECT_EQ(refusal<DataError>({{"data", list(x_)}, {"other", list(y_)}}),
            "the batch has no 'label', only 'data', 'other'");
  EXPECT_EQ(refusal<DataError>({{"data", x_}, {"label", list(y_)}}), "'data' of the batch is a tensor, not a list");
  EXPECT_EQ(refusal<DataError>({{"data", list(x_)}, {"label", ValueMap{}}}),
            "'label' of the batch is a map, not a list");
  EXPECT_EQ(refusal<DataError>({{"data", ValueList{x_, x_}}, {"label", list(y_)}}),
            "'data' of the batch is a list of 2 elements, not of one; data of several kinds need a train step of their "
            "own");
  EXPECT_EQ(
      refusal<DataError>({{"data", list(x_)}, {"label", ValueList{}}}),
      "'label' of the batch is a list of 0 elements, not of one; data of several kinds need a train step of their "
      "own");
  EXPECT_EQ(refusal<DataError>({{"data", list(x_)}, {"label", list(y_)}, {"data_valid", v_}}),
            "'data_valid' of the batch is a tensor, not a list");
}

TEST_F(SampleTest, ABatchOfADataSetIsKeyed) {
  const ValueMap sample = construct_sample(keyed_batch({.input = x_, .target = y_}));
  EXPECT_EQ(sample.size(), 2U);
  EXPECT_TRUE(tensor_of(sample, "input").is_same(x_));
  EXPECT_TRUE(tensor_of(sample, "target").is_same(y_));
  EXPECT_FALSE(keyed_batch({.input = x_, .target = {}}).contains("label"));
}

TEST_F(SampleTest, AMapIsNotTakenForATensor) {
  const auto text_of = [](const ValueMap& sample, const std::string& key) -> std::string {
    try {
      tensor_of(sample, key);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text_of({{"target", ValueMap{}}}, "target"),
            "the sample's 'target' is a map, not a tensor: write a train step of your own for it");
  EXPECT_EQ(text_of({}, "target"), "the sample has no 'target'");
}

/// Five samples with three parts: sample i has input i, target 10 i and weight 100 i.
class ThreeParts : public Dataset {
 public:
  std::int64_t size() const override { return 5; }
  Task task() const override { return {}; }
  Batch get(std::span<const std::int64_t> indices) const override {
    const at::Tensor i = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
    return {.input = i, .target = 10 * i, .more = {{"weight", 100 * i}}};
  }
  std::uint64_t digest() const override { return 7; }
};

class KeyedTest : public ::testing::Test {
 protected:
  Batch batch_of(const SampleKeys& keys) const { return keyed(dataset_, keys)->get(std::vector<std::int64_t>{3, 1}); }
  static std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
    return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
  }
  using Numbers = std::vector<std::int64_t>;

  const std::shared_ptr<const Dataset> dataset_ = std::make_shared<ThreeParts>();
};

TEST_F(KeyedTest, WithTheDefaultKeysItIsTheDataSetItself) {
  EXPECT_EQ(keyed(dataset_, {}), dataset_);
  EXPECT_EQ(keyed(nullptr, {.inputs = {"weight"}}), nullptr);
}

TEST_F(KeyedTest, InputAndTargetAreWhatTheKeysSay) {
  const Batch batch = batch_of({.inputs = {"weight"}, .targets = {"data"}});
  EXPECT_EQ(numbers(batch.input), Numbers({300, 100}));
  EXPECT_EQ(numbers(batch.target), Numbers({3, 1}));
  ASSERT_EQ(batch.more.size(), 1U);
  EXPECT_EQ(numbers(batch.more.at("label")), Numbers({30, 10}));
}

TEST_F(KeyedTest, SeveralInputsAreGivenByName) {
  const Batch batch = batch_of({.inputs = {"data", "weight"}, .targets = {"weight"}});
  EXPECT_EQ(numbers(batch.input), Numbers({3, 1}));
  EXPECT_EQ(numbers(batch.target), Numbers({300, 100}));
  EXPECT_EQ(batch.more.size(), 2U);
  EXPECT_EQ(numbers(batch.more.at("weight")), Numbers({300, 100}));
}

// The classes that samplers look at are the target's.
TEST_F(KeyedTest, LabelsAreOfTheTarget) {
  EXPECT_EQ(keyed(dataset_, {.targets = {"weight"}})->labels(), Numbers({0, 100, 200, 300, 400}));
}

TEST_F(KeyedTest, OtherKeysAreOtherContent) {
  const std::vector<SampleKeys> all = {{},
                                       {.targets = {"data"}},
                                       {.inputs = {"label"}, .targets = {"data"}},
                                       {.inputs = {"data", "label"}, .targets = {"data"}},
                                       {.inputs = {"data"}, .targets = {"weight"}}};
  std::set<std::uint64_t> digests;
  for (const SampleKeys& keys : all) digests.insert(keyed(dataset_, keys)->digest());
  EXPECT_EQ(digests.size(), all.size());
  EXPECT_EQ(keyed(dataset_, all[1])->digest(), keyed(dataset_, all[1])->digest());
}

// What the first sample has others may lack.
TEST_F(KeyedTest, SaysWhatASampleLacks) {
  class Uneven : public ThreeParts {
   public:
    Batch get(std::span<const std::int64_t> indices) const override {
      Batch batch = ThreeParts::get(indices);
      if (indices.front() > 2) batch.more.clear();
      return batch;
    }
  };
  const auto uneven = keyed(std::make_shared<Uneven>(), {.inputs = {"weight"}});
  EXPECT_EQ(numbers(uneven->get(std::vector<std::int64_t>{2, 3}).input), Numbers({200, 300}));
  try {
    uneven->get(std::vector<std::int64_t>{3});
    FAIL() << "taken";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "the batch has no 'weight', only 'data', 'label'");
  }
}

TEST_F(KeyedTest, RefusesWhatMakesNoSample) {
  const auto text_of = [this](const SampleKeys& keys) -> std::string {
    try {
      batch_of(keys);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text_of({.inputs = {"picture"}}), "samples have no 'picture', only 'data', 'label', 'weight'");
  EXPECT_EQ(text_of({.inputs = {"data", "depth"}}), "samples have no 'depth', only 'data', 'label', 'weight'");
  EXPECT_EQ(text_of({.inputs = {""}}), "a sample needs at least one input key");
  EXPECT_EQ(text_of({.inputs = {"data", "data"}}), "the input keys 'data', 'data' name one twice");
  EXPECT_EQ(text_of({.targets = {"label", "weight"}}),
            "samples have one target, not 'label', 'weight': the others are beside it by name");
}

}  // namespace sample_test
}  // namespace lockstep::data
