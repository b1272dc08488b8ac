// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/roles.hpp"

#include <ATen/ops/tensor.h>

#include <set>

#include "batch/collate.hpp"
#include "files.hpp"

namespace lockstep::data {
namespace roles_test {

using Numbers = std::vector<std::int64_t>;

/// Five samples with three values: sample i has data i, label 10 i and weight 100 i.
class ThreeValues : public Dataset, public SampleClasses {
 public:
  std::int64_t size() const override { return 5; }
  Task task() const override { return {}; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    Numbers indices;
    for (const batch::Draw& draw : draws) indices.push_back(draw.index);
    const at::Tensor i = at::tensor(at::ArrayRef<std::int64_t>(indices));
    batch::Batch batch{i, 10 * i};
    batch.set("weight", 100 * i);
    return batch;
  }
  std::vector<std::int64_t> labels() const override { return Numbers(5, 1); }
  std::uint64_t digest() const override { return 7; }
};

ChosenRoles roles(const std::string& inputs, const std::string& targets) {
  return {.inputs = {inputs, "data.input_keys (test)"}, .targets = {targets, "data.target_keys (test)"}};
}

class RolesTest : public ::testing::Test {
 protected:
  batch::Batch batch_of(const ChosenRoles& chosen) const { return get(*with_roles(dataset_, chosen), {3, 1}); }

  const std::shared_ptr<const Dataset> dataset_ = std::make_shared<ThreeValues>();
};

TEST_F(RolesTest, WithItsOwnRolesItIsTheDataSetItself) {
  EXPECT_EQ(with_roles(dataset_, roles("", "")), dataset_);
  EXPECT_EQ(with_roles(dataset_, roles("data", "label")), dataset_);
  EXPECT_EQ(with_roles(nullptr, roles("weight", "")), nullptr);
}

TEST_F(RolesTest, InputAndTargetAreWhatTheKeysSay) {
  const batch::Batch batch = batch_of(roles("weight", "data"));
  EXPECT_EQ(values_of<std::int64_t>(batch.input()), Numbers({300, 100}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), Numbers({3, 1}));
  EXPECT_EQ(values_of<std::int64_t>(batch.tensor("label")), Numbers({30, 10}));
}

TEST_F(RolesTest, SeveralOfEachAreInOrder) {
  const batch::Batch batch = batch_of(roles("weight, data", "label,weight"));
  EXPECT_EQ(values_of<std::int64_t>(batch.input(1)), Numbers({3, 1}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target(1)), Numbers({300, 100}));
  EXPECT_TRUE(batch.has_target(1));
  EXPECT_FALSE(batch.has_target(2));
}

// A data set with roles of its own, which a key may replace.
TEST_F(RolesTest, ADataSetSaysItsRoles) {
  class Weighted : public ThreeValues {
   public:
    batch::Roles roles() const override { return {.inputs = {"weight"}, .targets = {"data"}}; }
  };
  const auto own = with_roles(std::make_shared<Weighted>(), roles("", ""));
  EXPECT_EQ(values_of<std::int64_t>(get(*own, {2}).input()), Numbers({200}));
  EXPECT_EQ(own->digest(), 7U) << "the content is the same";
  EXPECT_EQ(labels_of(*own), Numbers(5, 1));
  const auto other = with_roles(std::make_shared<Weighted>(), roles("", "label"));
  EXPECT_EQ(values_of<std::int64_t>(get(*other, {2}).target()), Numbers({20}));
  EXPECT_EQ(other->roles().inputs, std::vector<std::string>{"weight"});
}

// The classes that samplers look at are the target's.
TEST_F(RolesTest, LabelsAreOfTheTarget) {
  EXPECT_EQ(labels_of(*with_roles(dataset_, roles("", "weight"))), Numbers({0, 100, 200, 300, 400}));
}

TEST_F(RolesTest, OtherRolesAreOtherContent) {
  const std::vector<ChosenRoles> all = {roles("", ""), roles("", "data"), roles("label", "data"),
                                        roles("data,label", "data"), roles("data", "weight")};
  std::set<std::uint64_t> digests;
  for (const ChosenRoles& each : all) digests.insert(with_roles(dataset_, each)->digest());
  EXPECT_EQ(digests.size(), all.size());
  EXPECT_EQ(with_roles(dataset_, all[1])->digest(), with_roles(dataset_, all[1])->digest());
}

TEST_F(RolesTest, RefusesNamesThatNoSampleHas) {
  const auto text_of = [this](const ChosenRoles& each) {
    return sentence_of<ConfigError>([&] { with_roles(dataset_, each); });
  };
  EXPECT_EQ(text_of(roles("picture", "")),
            "data.input_keys (test): samples do not contain 'picture', only 'data', 'label', 'weight'");
  EXPECT_EQ(text_of(roles("", "label,depth")),
            "data.target_keys (test): samples do not contain 'depth', only 'data', 'label', 'weight'");
  EXPECT_EQ(text_of(roles("data,data", "")), "data.input_keys (test): 'data', 'data' names a value twice");
}

/// Sample i is the text of i and a tensor of i + 1 elements.
class Uneven : public SampleDataset {
 public:
  std::int64_t size() const override { return 3; }
  Task task() const override { return {}; }
  std::uint64_t digest() const override { return 1; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    if (draw.index == bad_index) throw DataError("it is bad");
    const std::vector<double> ones(static_cast<std::size_t>(draw.index) + 1, 1);
    return {{"name", std::to_string(draw.index)},
            {"row",
             batch::DataContainer(at::tensor(at::ArrayRef<double>(ones)).unsqueeze(0), {.stack = true, .pad_dims = 1})},
            {"epoch", draw.epoch}};
  }
  std::int64_t bad_index = -1;
};

TEST(SampleDatasetTest, ItsSamplesAreJoinedInTheOrderOfTheDraws) {
  const Uneven dataset;
  const batch::Batch batch = dataset.get(std::vector<batch::Draw>{{.index = 2, .epoch = 5}, {.index = 0, .epoch = 6}});
  EXPECT_EQ(batch.size(), 2);
  EXPECT_EQ(batch.at("name").as<batch::ValueList>().at(0).as<std::string>(), "2");
  EXPECT_EQ(values_of<std::int64_t>(batch.tensor("epoch")), Numbers({5, 6}));
  const auto& rows = batch.at("row").as<batch::DataContainer>().data().as<batch::ValueList>();
  ASSERT_EQ(rows.size(), 1U) << "one group";
  EXPECT_EQ(values_of<double>(rows[0].as<at::Tensor>()), std::vector<double>({1, 1, 1, 1, 0, 0}));
}

/// Sample i is a row of i and, as text, its name; written into the batch or given by itself.
class Filled : public SampleDataset {
 public:
  explicit Filled(bool replaces = false) : replaces_(replaces) {}
  std::int64_t size() const override { return 9; }
  Task task() const override { return {}; }
  std::uint64_t digest() const override { return 1; }
  SampleLayout layout() const override {
    return {.fields = {{.name = "data", .shape = {2, 3}}, {.name = "label", .shape = {}, .dtype = at::kLong}}};
  }
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
    row.at("data").as<at::Tensor>().fill_(static_cast<double>(draw.index));
    row.at("label").as<at::Tensor>().fill_(10 * draw.index);
    if (replaces_) row["data"] = at::zeros({2, 3});
    row["name"] = std::to_string(draw.index);
  }

 private:
  bool replaces_;
};

TEST(SampleDatasetTest, RowsMayBeWrittenIntoTheBatch) {
  const Filled dataset;
  const batch::Batch batch = get(dataset, {4, 7});
  EXPECT_EQ(batch.size(), 2);
  EXPECT_EQ(batch.input().sizes(), at::IntArrayRef({2, 2, 3}));
  EXPECT_EQ(batch.input().scalar_type(), at::kFloat);
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), Numbers({40, 70}));
  EXPECT_EQ(batch.at("name").as<batch::ValueList>().at(1).as<std::string>(), "7");
  // The draws that the plain way gives.
  const std::vector<batch::Draw> draws = batch::draws_in_order(4, 1);
  const std::vector<batch::Value> samples = {dataset.sample(draws.front())};
  const batch::Batch joined = batch::collated(samples, draws);
  EXPECT_TRUE(at::equal(joined.input(), batch.input().narrow(0, 0, 1)));
  EXPECT_TRUE(at::equal(joined.target(), batch.target().narrow(0, 0, 1)));
}

TEST(SampleDatasetTest, WhatIsNotWrittenInPlaceIsRefused) {
  EXPECT_EQ(sentence_of<DataError>([] { get(Filled(/*replaces=*/true), {4}); }),
            "fill must write to the tensor 'data' that it receives, not replace it");
}

TEST(SampleDatasetTest, SamplesThatDoNotFitAreNamed) {
  class Odd : public Uneven {
   public:
    batch::ValueMap sample(const batch::Draw& draw) const override {
      batch::ValueMap sample = Uneven::sample(draw);
      if (draw.index == 1) sample.erase("name");
      return sample;
    }
  };
  EXPECT_EQ(sentence_of<DataError>([] {
              get(Odd(), {2, 1});
            }),
            "samples cannot be collated: sample 1 has no 'name', but sample 2 has");
}

}  // namespace roles_test
}  // namespace lockstep::data
