// SPDX-License-Identifier: BSD-3-Clause
// Batches of bytes and of adjacent channels have the same numbers as batches of float32 planes.
#include <lockstep/data/dataset.hpp>

#include <map>
#include <thread>

#include "batch/byte_values.hpp"
#include "data/source/roles.hpp"
#include "files.hpp"

namespace lockstep::data {
namespace image_output_test {

using Values = std::map<std::string, std::string>;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
constexpr auto kPlanes = at::MemoryFormat::Contiguous;

Splits open_images_with(const std::vector<std::string>& transforms, const Values& more = {}) {
  Section data = section({{"name", "synthetic"}, {"synthetic", "noise"}, {"shape", "3,20,24"}, {"size", "200"}});
  for (const auto& [key, text] : more) data.set(key, text, "command line");
  for (const std::string& line : transforms) data.set("transform", line, "command line");
  return open(data);
}

const std::vector<std::string> kUsual = {"random_resized_crop,size=9,11", "horizontal_flip",
                                         "normalize,mean=0.4,0.5,0.6,std=0.2,0.3,0.7"};

/// Batches of 7 samples, the last has 4.
std::vector<batch::Batch> batches(const std::shared_ptr<const Dataset>& dataset, const LoaderOptions& options) {
  const auto plan = [](std::int64_t k) {
    std::vector<batch::Draw> draws = batch::draws_in_order(7 * k, k == 2 ? 4 : 7);
    for (batch::Draw& draw : draws) draw.epoch = 3;
    return draws;
  };
  std::vector<batch::Batch> result;
  Loader loader(dataset, plan, 0, 3, options);
  for (int k = 0; k < 3; ++k) result.push_back(loader.next());
  return result;
}

std::vector<batch::Batch> plain(const std::shared_ptr<const Dataset>& dataset) {
  return batches(dataset, {.workers = 0});
}

void expect_bytes(const std::vector<batch::Batch>& given, const std::vector<batch::Batch>& floats,
                  const std::string& name) {
  for (std::size_t k = 0; k < given.size(); ++k) {
    const at::Tensor& bytes = given[k].tensor(name);
    ASSERT_EQ(bytes.scalar_type(), at::kByte);
    EXPECT_TRUE(bytes.is_contiguous(kLast));
    EXPECT_EQ(bytes.nbytes() * 4, floats[k].tensor(name).nbytes());
    for (const auto format : {kPlanes, kLast}) {
      const batch::Batch values = batch::with_values(given[k].share(), format);
      EXPECT_TRUE(values.tensor(name).equal(floats[k].tensor(name))) << name << ", batch " << k;
      EXPECT_TRUE(values.tensor(name).is_contiguous(format));
    }
    EXPECT_TRUE(given[k].target().equal(floats[k].target()));
  }
}

TEST(ImageOutputTest, BytesHaveTheBitsOfFloats) {
  for (const int workers : {0, 3}) {
    const Splits splits = open_images_with(kUsual);
    expect_bytes(batches(splits.train, {.workers = workers, .prefers_bytes = true}), plain(splits.train), "data");
    const Splits forced = open_images_with(kUsual, {{"output", "uint8"}});
    expect_bytes(batches(forced.train, {.workers = workers}), plain(splits.train), "data");
    expect_bytes(batches(forced.val, {.workers = workers}), plain(splits.val), "data");
  }
}

TEST(ImageOutputTest, BytesOfGrayImagesAndOfEachCrop) {
  const std::vector<std::string> gray = {"resize,size=8,10", "normalize,mean=0.3,std=0.5"};
  const Values one_channel = {{"shape", "1,12,9"}};
  const Splits splits = open_images_with(gray, one_channel);
  expect_bytes(batches(splits.train, {.prefers_bytes = true}), plain(splits.train), "data");
  const std::vector<std::string> crops = {"multi_crop,crops=2,2,sizes=12,6", "to_float"};
  const Splits many = open_images_with(crops);
  const auto floats = plain(many.train);
  const auto bytes = batches(many.train, {.prefers_bytes = true});
  for (const std::string name : {"data", "crop1", "crop2", "crop3"}) expect_bytes(bytes, floats, name);
}

TEST(ImageOutputTest, OneSampleAtATime) {
  const Splits splits = open_images_with(kUsual);
  const Splits forced = open_images_with(kUsual, {{"output", "uint8"}});
  const batch::Batch bytes = get(*forced.val, {4, 2});
  EXPECT_TRUE(batch::with_values(bytes.share(), kPlanes).input().equal(get(*splits.val, {4, 2}).input()));
  const SampleDataset& samples = *ability_of<SampleDataset>(*forced.val);
  const auto first = samples.sample({.index = 4, .epoch = 0, .position = 4}).at("data").as<at::Tensor>();
  EXPECT_TRUE(first.is_contiguous());
  EXPECT_TRUE(first.equal(bytes.input()[0]));
}

TEST(ImageOutputTest, AdjacentChannelsHaveTheSameNumbers) {
  std::vector<std::string> erased = kUsual;
  erased.push_back("random_erasing,p=1");
  for (const auto& transforms : {kUsual, erased}) {
    for (const Values& shape : {Values{}, Values{{"channels", "1"}}}) {
      const bool is_gray = !shape.empty();
      const auto lines = is_gray ? std::vector<std::string>{"resize,size=8,10", "to_float"} : transforms;
      const Splits splits = open_images_with(lines, shape);
      const auto planes = plain(splits.train);
      const auto last = batches(splits.train, {.workers = 2, .prefers_channels_last = true});
      for (std::size_t k = 0; k < planes.size(); ++k) {
        EXPECT_EQ(last[k].input().strides(), planes[k].input().clone(kLast).strides());
        EXPECT_TRUE(last[k].input().equal(planes[k].input()));
      }
    }
  }
}

TEST(ImageOutputTest, ATransformOfNumbersExcludesBytes) {
  const std::vector<std::string> lines = {"to_float", "random_erasing"};
  const Splits automatic = open_images_with(lines);
  const SampleLayout layout = ability_of<SampleDataset>(*automatic.train)->layout();
  EXPECT_TRUE(layout.byte_fields.empty());
  EXPECT_EQ(layout.float_reason, "random_erasing changes float32 numbers");
  EXPECT_EQ(batches(automatic.train, {.prefers_bytes = true})[0].input().scalar_type(), at::kFloat);
  EXPECT_FALSE(ability_of<SampleDataset>(*automatic.val)->layout().byte_fields.empty())
      << "the validation has no random_erasing";
  EXPECT_EQ(sentence_of<ConfigError>([&] {
              open_images_with(lines, {{"output", "uint8"}});
            }),
            "data.output = uint8: random_erasing of data.transform (command line) changes float32 numbers, but the "
            "batches contain bytes; remove the transform or set data.output=float");
}

TEST(ImageOutputTest, FloatIsNeverReplacedByBytes) {
  const Splits splits = open_images_with(kUsual, {{"output", "float"}});
  EXPECT_TRUE(ability_of<SampleDataset>(*splits.train)->layout().byte_fields.empty());
  EXPECT_EQ(ability_of<SampleDataset>(*splits.train)->layout().float_reason, "");
  EXPECT_EQ(batches(splits.train, {.prefers_bytes = true})[0].input().scalar_type(), at::kFloat);
}

// A thread measures its samples 7, 71, 135, ...
TEST(ImageOutputTest, OneOf64SamplesIsMeasured) {
  const Splits splits = open_images_with({"resize,size=200,200", "to_float"});
  const auto load = [&](std::int64_t count) {
    std::thread([&] {
      for (std::int64_t i = 0; i < count; ++i) get(*splits.train, {i % 50});
    }).join();
  };
  load(7);
  EXPECT_EQ(load_times_of(*splits.train).samples, 0);
  load(72);
  const LoadTimes times = load_times_of(*splits.train);
  EXPECT_EQ(times.samples, 2);
  EXPECT_GT(times.read_seconds, 0);
  EXPECT_GT(times.decode_seconds, 0);
  EXPECT_GT(times.transform_seconds, 0);
  EXPECT_LT(times.seconds(), 10);
}

}  // namespace image_output_test
}  // namespace lockstep::data
