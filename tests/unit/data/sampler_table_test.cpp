// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <set>

#include "data/source/settings.hpp"
#include "files.hpp"

namespace lockstep::data {
namespace sampler_table_test {

using Indices = std::vector<std::int64_t>;

/// 23 samples: 1 of class 0, 2 of class 1, 20 of class 2. Those with an even index are wide.
class Uneven : public Dataset, public AspectRatios, public SampleChunks {
 public:
  std::int64_t size() const override { return 23; }
  Task task() const override { return {.sample_shape = {1, 2, 4}, .classes = 3}; }
  std::uint64_t digest() const override { return 0; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    const at::Tensor labels = at::empty({static_cast<std::int64_t>(draws.size())}, at::kLong);
    auto* target = labels.mutable_data_ptr<std::int64_t>();
    for (const batch::Draw& draw : draws) *target++ = label(draw.index);
    return {labels, labels};
  }
  std::vector<double> aspect_ratios() const override {
    std::vector<double> ratios;
    for (std::int64_t i = 0; i < size(); ++i) ratios.push_back(i % 2 == 0 ? 2 : 0.5);
    return ratios;
  }
  std::vector<std::int64_t> chunks() const override {
    std::vector<std::int64_t> chunks;
    for (std::int64_t i = 0; i < size(); ++i) chunks.push_back(i / 6);
    return chunks;
  }
  ChunkBytes chunk_bytes() const override { return {}; }
  static std::int64_t label(std::int64_t index) { return index == 0 ? 0 : index < 3 ? 1 : 2; }
};

Sampler made(std::map<std::string, std::string> values, std::int64_t global_batch_size = 6) {
  const Uneven dataset;
  return make_sampler(section(values), {&dataset, global_batch_size, 9});
}

Indices batch_of(const Sampler& sampler, std::int64_t epoch, std::int64_t step) {
  return sampler.indices(epoch, step, {0, sampler.global_batch_size()});
}

TEST(SamplerTableTest, TheDefaultKeepsItsOrder) {
  const Sampler sampler = made({});
  const Sampler plain(23, 6, 9);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.algorithm(), "keyed permutation");
  for (std::int64_t step = 0; step < 3; ++step) EXPECT_EQ(batch_of(sampler, 4, step), batch_of(plain, 4, step));
  const Sampler filled = made({{"drop_last", "false"}, {"shuffle", "false"}});
  EXPECT_EQ(filled.steps_per_epoch(), 4);
  EXPECT_EQ(batch_of(filled, 0, 3), Indices({18, 19, 20, 21, 22, 0}));
  EXPECT_NE(filled.algorithm(), sampler.algorithm());
}

// One line for each row of the table: what makes it what it is.
TEST(SamplerTableTest, EveryNameMakesItsSampler) {
  std::set<std::string> tested = {"default"};
  const auto named = [&tested](const std::string& name, std::map<std::string, std::string> values = {}) {
    tested.insert(name);
    values["sampler"] = name;
    Sampler sampler = made(values);
    EXPECT_TRUE(sampler.algorithm().starts_with(name)) << sampler.algorithm();
    return sampler;
  };
  EXPECT_EQ(batch_of(named("infinite", {{"shuffle", "false"}}), 1, 0), Indices({18, 19, 20, 21, 22, 0}));
  EXPECT_EQ(batch_of(named("torch"), 2, 0), torch_order(23, 9)->indices(2, 0, 6));
  // Class 0 is in 1/23 of the samples and 1 in 2/23: 3.39, 2 * 2.40 and 20 samples.
  EXPECT_EQ(named("repeat_factor", {{"repeat_threshold", "0.5"}, {"drop_last", "false"}}).steps_per_epoch(), 5);
  const Indices identities = batch_of(named("identity", {{"instances", "2"}}), 0, 0);
  for (std::size_t i = 0; i < 6; i += 2) EXPECT_EQ(Uneven::label(identities[i]), Uneven::label(identities[i + 1]));
  std::map<std::int64_t, int> classes;
  for (const std::int64_t index : batch_of(named("class_balanced"), 0, 0)) ++classes[Uneven::label(index)];
  EXPECT_EQ(classes, (std::map<std::int64_t, int>{{0, 2}, {1, 2}, {2, 2}}));
  const Indices shapes = batch_of(named("aspect_ratio"), 0, 0);
  for (const std::int64_t index : shapes) EXPECT_EQ(index % 2, shapes.front() % 2);
  EXPECT_EQ(batch_of(named("blocks", {{"blocks", "2"}, {"shuffle", "false"}}), 0, 1), Indices({3, 4, 5, 14, 15, 16}));
  const Indices in_chunk = batch_of(named("chunks", {{"shuffle_chunks", "1"}}), 2, 0);
  std::set<std::int64_t> used_chunks;
  for (const std::int64_t index : in_chunk) used_chunks.insert(index / 6);
  EXPECT_LE(used_chunks.size(), 2U) << "the last chunk has 5 samples";
  // Everything that changes the order is in the name of the algorithm.
  const auto algorithm_of = [](std::map<std::string, std::string> values) {
    values["sampler"] = "chunks";
    return made(values).algorithm();
  };
  EXPECT_EQ(algorithm_of({{"shuffle_chunks", "3"}}), "chunks, 3 of 4 shuffled together");
  EXPECT_EQ(algorithm_of({{"drop_last", "false"}}), "chunks, 4 of 4 shuffled together, filled up");
  for (const SamplerRow& row : builtin_samplers()) EXPECT_TRUE(tested.contains(row.name)) << row.name;
}

TEST(SamplerTableTest, RefusesWhatIsUnknownOrDoesNotFit) {
  EXPECT_EQ(sentence_of<ConfigError>([] {
              made({{"sampler", "identty"}});
            }),
            "data.sampler (command line): 'identty' is unknown; choose one of: default, infinite, repeat_factor, "
            "identity, class_balanced, aspect_ratio, blocks, chunks, torch; did you mean 'identity'?");
  EXPECT_EQ(sentence_of<ConfigError>([] {
              made({{"sampler", "identity"}});
            }),
            "data.instances = 4 does not divide train.global_batch_size = 6");
  EXPECT_EQ(sentence_of<ConfigError>([] { made({}, 24); }),
            "the training data have 23 samples, fewer than train.global_batch_size = 24; lower train.global_batch_size "
            "or use more data");
}

// A sequence of tokens, as of the sources of text.
class Tokens : public Dataset {
 public:
  Task task() const override { return {.sample_shape = {8}, .classes = 3, .is_text = true}; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    const at::Tensor tokens = at::zeros({static_cast<std::int64_t>(draws.size()), 8}, at::kLong);
    return {tokens, tokens};
  }
  std::int64_t size() const override { return 23; }
  std::uint64_t digest() const override { return 0; }
};

TEST(SamplerTableTest, ADataSetStatesItsClassesAndShapes) {
  const Splits digits = open_with({{"train_size", "300"}, {"val_size", "1"}});
  class Plain : public Dataset {
   public:
    explicit Plain(const Dataset& dataset) : dataset_(dataset) {}
    std::int64_t size() const override { return dataset_.size(); }
    Task task() const override { return dataset_.task(); }
    std::uint64_t digest() const override { return 0; }
    batch::Batch get(std::span<const batch::Draw> draws) const override { return dataset_.get(draws); }

   private:
    const Dataset& dataset_;
  };
  EXPECT_EQ(labels_of(*digits.train), labels_of(Plain(*digits.train))) << "known, and read from the targets";
  EXPECT_EQ(labels_of(*digits.train).size(), 300U);
  EXPECT_EQ(aspect_ratios_of(*digits.train), std::vector<double>(300, 1));
  const Uneven uneven;
  EXPECT_NE(aspect_ratios_of(uneven), std::vector<double>(23, 2));
  EXPECT_EQ(aspect_ratios_of(Plain(uneven)), std::vector<double>(23, 2)) << "from the shape of the task";
  const Tokens tokens;
  EXPECT_EQ(sentence_of<DataError>([&] { labels_of(tokens); }),
            "the samples do not have one class each; choose another data.sampler");
  EXPECT_EQ(
      sentence_of<ConfigError>([&] { chunks_of(tokens); }),
      "the samples are not in chunks of files, as those of data.name = fields, hdf5 or npy can be; choose another "
      "data.sampler");
  EXPECT_EQ(sentence_of<DataError>([&] { aspect_ratios_of(tokens); }),
            "the samples do not have a width and height; choose another data.sampler");
}

TEST(SamplerTableTest, RepeatsComeFromTheKey) {
  const Splits splits = open_with({{"train_size", "100"}});
  const auto algorithm = [&](const std::map<std::string, std::string>& values) {
    return make_sampler(section(values), {splits.train.get(), 10, 1}).algorithm();
  };
  EXPECT_EQ(algorithm({}), "keyed permutation");
  EXPECT_EQ(algorithm({{"repeats", "3"}}), "keyed permutation, repeated 3 times");
  EXPECT_EQ(algorithm({{"augmentation", "torchvision2"}}), "keyed permutation") << "it sets transforms only";
}

// A Section throws std::logic_error for other keys.
TEST(SamplerTableTest, ARowDeclaresTheKeysThatItReads) {
  const Uneven dataset;
  for (const SamplerRow& row : builtin_samplers()) {
    KeySpecs keys = DataSettings::keys(builtin_sources(), builtin_samplers());
    keys.insert(keys.end(), row.keys.begin(), row.keys.end());
    Section data = Section::with_defaults("data", keys);
    data.set("sampler", row.name, "test");
    EXPECT_NO_THROW(make_sampler(data, {&dataset, 4, 9})) << row.name;
  }
}

}  // namespace sampler_table_test
}  // namespace lockstep::data
