// SPDX-License-Identifier: BSD-3-Clause
// Lockstep's side of tools/bench/data.
//
// usage: bench_data make PHOTOS FOLDER COUNT   writes COUNT images of 500 x 375 pixels
//        bench_data run FOLDER RECIPE WORKERS  answers each line of the input with the images per second of one pass
//                                              over the images and the processor time of an image in ms
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/codecs/decode.hpp"
#include "data/image/resize.hpp"
#include "data/mixing.hpp"
#include "data/transforms/presets.hpp"
#include "program.hpp"
#include "timing.hpp"
#include "unit/data/jpeg_writer.hpp"

namespace lockstep::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kSeed = 1;
constexpr int kTile = 125;  // an image is 4 x 3 upscaled photographs, so that its files are as large as those of photos
constexpr int kColumns = 4;
constexpr int kRows = 3;

Section data_section(const std::string& folder, const std::vector<std::string>& lines) {
  Section data = Section::with_defaults("data", data::data_keys());
  data.set("name", "folder", "bench");
  data.set("path", folder, "bench");
  data.set("check", "off", "bench");
  for (const std::string& line : lines) data.set("transform", line, "bench");
  return data;
}

/// The photograph, upscaled to a tile.
data::Image tile_of(const data::ImageStore& photos, std::int64_t index, data::Workspace& workspace) {
  data::ReadBuffer buffer;
  const data::StoredImage stored = photos.read(index, buffer);
  data::Image image;
  data::decode_image(stored.file, data::read_image_header(stored.file), {.channels = 3}, image, workspace);
  data::resize(image, {kTile, kTile}, data::ResizeFilter::bicubic, workspace);
  return image;
}

void make_images(const std::string& photos_folder, const fs::path& folder, std::int64_t count) {
  const data::ImageSplits splits = data::open_images(data_section(photos_folder, {}));
  const data::ImageStore& photos = *splits.train;
  data::Workspace workspace;
  for (std::int64_t i = 0; i < count; ++i) {
    data::Image image;
    image.reshape({kRows * kTile, kColumns * kTile}, 3);
    for (int tile = 0; tile < kRows * kColumns; ++tile) {
      const data::Image part = tile_of(photos, (i * 977 + tile * 101) % photos.size(), workspace);
      for (int y = 0; y < kTile; ++y) {
        std::copy_n(part.row(y), 3 * kTile, image.row(tile / kColumns * kTile + y) + tile % kColumns * 3 * kTile);
      }
    }
    const std::vector<std::byte> bytes = testing::encode_jpeg(image, {.name = ""});
    const fs::path path = folder / "train" / (i % 2 == 0 ? "even" : "odd") / (std::to_string(i) + ".jpg");
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
}

struct Recipe {
  std::vector<std::string> lines;
  std::vector<std::string> mix;
};

/// train, val: ImageNet; new: torchvision's new recipe; timm: ResNet strikes back.
Recipe recipe_named(const std::string& name) {
  if (name == "train") return {.lines = data::expand_preset("imagenet", 224).train, .mix = {}};
  if (name == "val") return {.lines = data::expand_preset("imagenet", 224).val, .mix = {}};
  const bool is_new = name == "new";
  if (!is_new && name != "timm") throw std::invalid_argument("there is no recipe " + name);
  const data::ExpandedPreset preset = data::expand_preset(is_new ? "torchvision2" : "timm_a2", 224);
  return {.lines = preset.train, .mix = preset.mix};
}

/// Answers every line with a pass over the images.
void run_passes(const std::string& folder, const Recipe& recipe, int workers) {
  const std::shared_ptr<const data::Dataset> dataset =
      data::open(data_section(folder, recipe.lines), data::builtin_sources(), {.seed = kSeed}).train;
  const data::Sampler sampler(dataset->size(), kBatch, kSeed);
  std::optional<data::Mixing> mixing;
  if (!recipe.mix.empty()) {
    Section train = Section::with_defaults("train", data::MixSettings::keys());
    for (const std::string& line : recipe.mix) train.set("mix", line, "bench");
    mixing.emplace(
        data::Mixing::MixingOptions{.settings = data::MixSettings::from(train), .smoothing = 0.1, .seed = kSeed},
        dataset->task(), dataset->roles());
  }
  data::LoaderOptions options{.workers = workers};
  const auto draws_of = [&](std::int64_t k) {
    const std::int64_t steps = sampler.steps_per_epoch();
    std::vector<batch::Draw> draws = sampler.draws(k / steps, k % steps, {0, kBatch});
    if (mixing && mixing->rule_of(k, k + 1) != nullptr) draws.insert(draws.begin(), draws.back());
    return draws;
  };
  if (mixing) {
    options.change = [&](batch::Batch batch, std::int64_t k) {
      const data::MixRule* const rule = mixing->rule_of(k, k + 1);
      return rule == nullptr ? std::move(batch) : mixing->mixed(std::move(batch), *rule, k, 0);
    };
  }
  std::int64_t pass = 0;
  for (std::string line; std::getline(std::cin, line); ++pass) {
    const auto begin = Clock::now();
    const double processor = processor_milliseconds();
    const std::int64_t batches = sampler.steps_per_epoch();
    data::Loader loader(dataset, draws_of, pass * batches, (pass + 1) * batches, options);
    for (std::int64_t k = 0; k < batches; ++k) loader.next();
    const auto images = static_cast<double>(batches * kBatch);
    std::printf("%.1f %.4f\n", images / (1e-3 * milliseconds_since(begin)),
                (processor_milliseconds() - processor) / images);
    std::fflush(stdout);
  }
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == "make") {
    make_images(arguments[1], arguments[2], std::stoll(arguments[3]));
  } else if (arguments.size() == 4 && arguments[0] == "run") {
    run_passes(arguments[1], recipe_named(arguments[2]), std::stoi(arguments[3]));
  } else {
    throw std::invalid_argument("usage: bench_data make PHOTOS FOLDER COUNT | run FOLDER RECIPE WORKERS");
  }
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::run_program("bench_data", argc, argv, lockstep::bench::run); }
