// SPDX-License-Identifier: BSD-3-Clause
#include "batch/collate.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "support/draws.hpp"
#include "support/sentence.hpp"

namespace lockstep::batch {
namespace collate_test {

using testing::draws_of;
using testing::sentence_of;

using Sizes = std::vector<std::int64_t>;

const at::Device kCpu = at::kCPU;

/// An image container whose sample is filled with `number`.
Value image(const Sizes& sizes, double number, ContainerOptions options = {.stack = true}) {
  return DataContainer(at::full(sizes, number), options);
}

const at::Tensor& tensor_at(const Value& list, std::size_t i) { return list.as<ValueList>().at(i).as<at::Tensor>(); }

const ValueList& groups_of(const Value& container) { return container.as<DataContainer>().data().as<ValueList>(); }

TEST(DataContainerTest, StatesTheSizeOfTensorsOnly) {
  const DataContainer tensor(at::zeros({3, 4}));
  EXPECT_EQ(tensor.size(), Sizes({3, 4}));
  EXPECT_EQ(tensor.dim(), 2);
  EXPECT_EQ(tensor.length(), 3);
  const DataContainer list(ValueList{1, 2, "c"});
  EXPECT_EQ(list.length(), 3);
  EXPECT_EQ(sentence_of<DataError>([&] { list.size(); }), "a container of a list has no size");
  EXPECT_EQ(sentence_of<DataError>([&] { list.dim(); }), "a container of a list has no size");
  EXPECT_EQ(sentence_of<DataError>([] { DataContainer(Value(1.5)).length(); }),
            "a container of a number has no length");
}

TEST(DataContainerTest, HasDefaultsAndRefusesOtherPaddedDimensions) {
  const DataContainer container(at::zeros({1}));
  EXPECT_FALSE(container.options().stack);
  EXPECT_FALSE(container.options().cpu_only);
  EXPECT_EQ(container.options().padding_value, 0);
  EXPECT_EQ(container.options().pad_dims, 2);
  EXPECT_FALSE(DataContainer(Value(), {.pad_dims = std::nullopt}).options().pad_dims.has_value());
  for (const int pad_dims : {-1, 0, 4}) {
    EXPECT_EQ(sentence_of<ConfigError>([&] { DataContainer(Value(), {.pad_dims = pad_dims}); }),
              "a container's pad_dims must be none, 1, 2 or 3, not " + std::to_string(pad_dims));
  }
}

// Case: CHW of 3x10x12, 3x11x8, 3x9x20 twice, two samples a group.
TEST(CollateTest, StackedImagesArePaddedToTheLargestOfTheirGroup) {
  const auto with = [](double pad) { return ContainerOptions{.stack = true, .padding_value = pad}; };
  const ValueList samples = {image({3, 10, 12}, 1, with(7)), image({3, 11, 8}, 2, with(8)),
                             image({3, 9, 20}, 3, with(7)), image({3, 9, 20}, 4, with(7))};
  const Value batch = collate(samples, 2);
  const ValueList& groups = groups_of(batch);
  ASSERT_EQ(groups.size(), 2U);
  const auto& first = groups[0].as<at::Tensor>();
  EXPECT_EQ(first.sizes(), Sizes({2, 3, 11, 12}));
  EXPECT_EQ(groups[1].as<at::Tensor>().sizes(), Sizes({2, 3, 9, 20}));
  // The samples stand at the left and top; each is padded with its own value.
  EXPECT_TRUE(at::equal(first[0].slice(1, 0, 10), at::full({3, 10, 12}, 1.0)));
  EXPECT_TRUE(at::equal(first[0].slice(1, 10, 11), at::full({3, 1, 12}, 7.0)));
  EXPECT_TRUE(at::equal(first[1].slice(2, 0, 8), at::full({3, 11, 8}, 2.0)));
  EXPECT_TRUE(at::equal(first[1].slice(2, 8, 12), at::full({3, 11, 4}, 8.0)));
  EXPECT_EQ(batch.as<DataContainer>().options().pad_dims, 2);
}

TEST(CollateTest, PaddedDimensionsAreTheLastOnes) {
  struct Row {
    std::optional<int> pad_dims;
    Sizes first;
    Sizes second;
    Sizes joined;
  };
  const std::vector<Row> rows = {{1, {2, 3}, {2, 5}, {2, 2, 5}},
                                 {2, {1, 2, 3}, {1, 4, 1}, {2, 1, 4, 3}},
                                 {3, {2, 1, 2, 3}, {2, 2, 2, 1}, {2, 2, 2, 2, 3}},
                                 {std::nullopt, {4}, {4}, {2, 4}}};
  for (const Row& row : rows) {
    const ContainerOptions options{.stack = true, .pad_dims = row.pad_dims};
    const ValueList samples = {image(row.first, 1, options), image(row.second, 1, options)};
    EXPECT_EQ(groups_of(collate(samples, 2)).at(0).as<at::Tensor>().sizes(), row.joined);
  }
}

TEST(CollateTest, OtherContainersBecomeListsOfGroups) {
  ValueList samples;
  for (int i = 0; i < 3; ++i) {
    samples.push_back(
        ValueMap{{"boxes", DataContainer(at::ones({i + 1, 4}))},
                 {"meta", DataContainer(ValueMap{{"file", "f" + std::to_string(i)}}, {.cpu_only = true})}});
  }
  const Value batch = collate(samples, 2);
  const ValueList& boxes = groups_of(batch.as<ValueMap>().at("boxes"));
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_EQ(tensor_at(boxes[0], 1).sizes(), Sizes({2, 4}));
  EXPECT_EQ(tensor_at(boxes[1], 0).sizes(), Sizes({3, 4}));  // the last group is shorter
  const ValueList& meta = groups_of(batch.as<ValueMap>().at("meta"));
  ASSERT_EQ(meta.size(), 2U);
  EXPECT_EQ(meta[0].as<ValueList>().at(1).as<ValueMap>().at("file").as<std::string>(), "f1");
  EXPECT_TRUE(batch.as<ValueMap>().at("meta").as<DataContainer>().options().cpu_only);
}

TEST(CollateTest, PlainValuesAreJoinedBelowMapsAndLists) {
  ValueList samples;
  for (int i = 0; i < 2; ++i) {
    samples.push_back(ValueMap{
        {"name", "n" + std::to_string(i)}, {"pair", ValueList{at::full({2}, i), 0.5 * i}}, {"label", std::int64_t{i}}});
  }
  const Value batch = collate(samples);
  const ValueMap& map = batch.as<ValueMap>();
  EXPECT_EQ(map.at("name").as<ValueList>().at(1).as<std::string>(), "n1");  // a text is no list of letters
  EXPECT_EQ(tensor_at(map.at("pair"), 0).sizes(), Sizes({2, 2}));
  EXPECT_TRUE(at::equal(tensor_at(map.at("pair"), 1), at::tensor({0.0, 0.5}, at::kDouble)));
  EXPECT_TRUE(at::equal(map.at("label").as<at::Tensor>(), at::tensor({0, 1}, at::kLong)));
}

TEST(CollateTest, WhatDoesNotFitIsNamedWithItsPlace) {
  const ContainerOptions stack{.stack = true};
  struct Row {
    ValueList samples;
    std::string fault;
  };
  const std::vector<Row> rows = {
      {{}, ": there are no samples"},
      {{1, 1.5}, ": sample 0 has an integer, but sample 1 has a number"},
      {{ValueMap{{"a", 1}, {"b", 1}}, ValueMap{{"a", 1}}}, ": sample 1 has no 'b', but sample 0 has"},
      {{ValueMap{{"a", 1}}, ValueMap{{"a", 1}, {"b", 1}}}, ": sample 0 has no 'b', but sample 1 has"},
      {{ValueMap{{"a", ValueList{1, 2}}}, ValueMap{{"a", ValueList{1}}}},
       " at 'a': the list of sample 0 has 2 elements, that of sample 1 has 1"},
      {{ValueMap{{"a", ValueList{1, at::zeros({2})}}}, ValueMap{{"a", ValueList{1, at::zeros({3})}}}},
       " at 'a[1]': shapes [2] of sample 0 and [3] of sample 1 differ"},
      {{at::zeros({2}), at::zeros({2}, at::kLong)}, ": the tensors of sample 0 and sample 1 have different types"},
      {{ValueMap{{"a", ValueMap{{"b", Value()}}}}}, " at 'a.b': nothing has no rule"},
      {{DataContainer(Value(1), stack)}, ": a container with stack must hold a tensor, not an integer"},
      {{DataContainer(at::zeros({2, 2}), stack)}, ": shape [2, 2] has no dimension before the 2 that are padded"},
      {{DataContainer(at::zeros({2, 2, 2}), stack), DataContainer(at::zeros({3, 2, 2}), stack)},
       ": shapes [2, 2, 2] and [3, 2, 2] differ before the last 2 dimensions"},
      {{DataContainer(at::zeros({2, 2, 2}), stack), DataContainer(at::zeros({2, 2}), stack)},
       ": shapes [2, 2, 2] and [2, 2] differ before the last 2 dimensions"},
      {{DataContainer(at::zeros({2}), {.stack = true, .pad_dims = std::nullopt}),
        DataContainer(at::zeros({3}), {.stack = true, .pad_dims = std::nullopt})},
       ": shapes [2] of sample 0 and [3] of sample 1 differ"},
      {{DataContainer(Value(1)), DataContainer(Value(1), {.cpu_only = true})},
       ": the containers differ in stack, cpu_only or pad_dims"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(sentence_of<DataError>([&] { collate(row.samples, 2); }), "samples cannot be collated" + row.fault);
  }
  EXPECT_THROW(collate(ValueList{1}, 0), DataError);
}

TEST(CollateTest, SamplesAreCalledByTheirNumbersInTheDataSet) {
  const ValueList samples = {ValueMap{{"a", 1}}, ValueMap{}};
  EXPECT_EQ(sentence_of<DataError>([&] {
              collated(samples, draws_of({40, 17}));
            }),
            "samples cannot be collated: sample 17 has no 'a', but sample 40 has");
}

TEST(CollateTest, ABatchHasTheValuesOfItsSamples) {
  const ValueList samples = {ValueMap{{"image", image({1, 2, 2}, 1)}, {"file", "a.png"}},
                             ValueMap{{"image", image({1, 3, 1}, 2)}, {"file", "b.png"}}};
  const Batch batch = scatter(collated(samples, draws_of({5, 6})), kCpu);
  EXPECT_EQ(batch.size(), 2);
  EXPECT_EQ(batch.tensor("image").sizes(), Sizes({2, 1, 3, 2}));
  EXPECT_EQ(batch.at("file").as<ValueList>().at(1).as<std::string>(), "b.png");
  EXPECT_EQ(sentence_of<DataError>([&] { collated(ValueList{1}, {}); }), "a sample is a map of values, not a tensor");
}

TEST(ScatterTest, ContainersAreReplacedByWhatTheyHold) {
  ValueList samples;
  for (int i = 0; i < 2; ++i) {
    samples.push_back(ValueMap{{"image", image({1, 2, 2}, i)},
                               {"boxes", DataContainer(at::ones({i + 1, 4}))},
                               {"meta", DataContainer("f" + std::to_string(i), {.cpu_only = true})},
                               {"label", i}});
  }
  Value batch = collate(samples, 2);
  const Value scattered = scatter(batch, kCpu);
  const ValueMap& map = scattered.as<ValueMap>();
  EXPECT_EQ(map.at("image").as<at::Tensor>().sizes(), Sizes({2, 1, 2, 2}));
  EXPECT_EQ(tensor_at(map.at("boxes"), 1).sizes(), Sizes({2, 4}));
  EXPECT_EQ(map.at("meta").as<ValueList>().at(1).as<std::string>(), "f1");
  EXPECT_TRUE(map.at("label").is<at::Tensor>());
  EXPECT_EQ(sentence_of<DataError>([&] { scatter(collate(samples, 1), kCpu); }),
            "a container has 2 groups for one device; collate with samples_per_group = the number of samples");
}

TEST(ScatterTest, TensorsOfTheDeviceStayTheSameAndOtherValuesAsTheyAre) {
  const at::Tensor first = at::zeros({1, 3, 3, 3});
  const at::Tensor second = at::zeros({1, 3, 4, 4});
  const Value scattered = scatter(ValueList{first, second, "text", 2, Value(), ValueMap{{"a", 1.5}}}, kCpu);
  EXPECT_TRUE(tensor_at(scattered, 0).is_same(first));
  EXPECT_TRUE(tensor_at(scattered, 1).is_same(second));
  const ValueList& list = scattered.as<ValueList>();
  EXPECT_EQ(list[2].as<std::string>(), "text");
  EXPECT_EQ(list[3].as<std::int64_t>(), 2);
  EXPECT_TRUE(list[4].is<std::monostate>());
  EXPECT_EQ(list[5].as<ValueMap>().at("a").as<double>(), 1.5);
}

// The meta device stands for one that is not the CPU.
TEST(ScatterTest, TensorsMoveAndThoseOfCpuOnlyContainersStay) {
  const at::Device other = at::kMeta;
  const ValueList samples = {ValueMap{{"moves", DataContainer(at::ones({2}))},
                                      {"stays", DataContainer(at::ones({2}), {.cpu_only = true})},
                                      {"plain", at::ones({2})}}};
  const Value scattered = scatter(collate(samples), other);
  const ValueMap& map = scattered.as<ValueMap>();
  EXPECT_EQ(tensor_at(map.at("moves"), 0).device(), other);
  EXPECT_EQ(tensor_at(map.at("stays"), 0).device(), kCpu);
  EXPECT_EQ(map.at("plain").as<at::Tensor>().device(), other);
  EXPECT_EQ(sentence_of<DataError>([&] {
              scatter(Batch({{"a", collate(ValueList{DataContainer("x"), DataContainer("y")}, 1)}}, 2), other);
            }),
            "'a' of the batch: a container has 2 groups for one device; collate with samples_per_group = the number of "
            "samples");
}

}  // namespace collate_test
}  // namespace lockstep::batch
