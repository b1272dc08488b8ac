// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/data_speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "core/system/in_threads.hpp"
#include "core/system/resources.hpp"
#include "core/text/duration.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kMaxImages = 256;  // maximum number of images in memory, to time decoding and transforms alone
constexpr int kStages = 4;

/// Memory of one thread.
struct Tools {
  data::ReadBuffer buffer;
  data::Workspace workspace;
  std::vector<std::vector<float>> values;
};

/// An image in memory.
struct KeptImage {
  std::vector<std::byte> file;
  std::vector<std::uint8_t> stored_pixels;
  data::PixelShape stored_shape;
  std::vector<std::uint8_t> pixels;  ///< decoded
  data::PixelShape shape;

  data::StoredImage stored() const { return {.file = file, .pixels = stored_pixels, .shape = stored_shape}; }
  data::StoredImage decoded() const { return {.file = {}, .pixels = pixels, .shape = shape}; }
};

/// Calls work(i, tools) with i = 0, 1, ... in some threads, and returns the calls per second.
double rate_of(int threads, double seconds, const std::function<void(std::int64_t, Tools&)>& work) {
  std::atomic<std::int64_t> next = 0;
  const auto start = SteadyClock::now();
  in_threads(threads, [&](int) {
    Tools tools;
    do {
      work(next++, tools);
    } while (seconds_since(start) < seconds);
  });
  return static_cast<double>(next) / seconds_since(start);
}

KeptImage kept(const data::ImageStore& store, std::int64_t index, const data::Pipeline& decoder, Tools& tools) {
  KeptImage image;
  const data::StoredImage stored = store.read(index, tools.buffer);
  image.file.assign(stored.file.begin(), stored.file.end());
  image.stored_pixels.assign(stored.pixels.begin(), stored.pixels.end());
  image.stored_shape = stored.shape;
  decoder.run_pixels(stored, {.index = index}, tools.workspace);
  const data::Image& decoded = tools.workspace.patch.image;
  image.pixels.assign(decoded.pixels.begin(), decoded.pixels.end());
  image.shape = {decoded.height, decoded.width, decoded.channels};
  return image;
}

void convert(const data::Pipeline& pipeline, const data::StoredImage& stored, std::int64_t i, Tools& tools) {
  const batch::Draw draw{.index = i, .epoch = 0, .position = i};
  tools.values.resize(static_cast<std::size_t>(pipeline.crops()));
  for (int crop = 0; crop < pipeline.crops(); ++crop) {
    std::vector<float>& values = tools.values[static_cast<std::size_t>(crop)];
    if (values.empty()) {
      pipeline.run_pixels(stored, draw, tools.workspace, crop);
      values.resize(tools.workspace.patch.image.pixels.size());
    }
    pipeline.run(stored, draw, values, tools.workspace, crop);
  }
}

}  // namespace

std::vector<LoadingSpeed> loading_speeds(const data::ImageStore& store, const data::Pipeline& pipeline,
                                         const data::PipelineOptions& how, double seconds) {
  data::PipelineOptions options = how;
  options.lines = {"to_float"};
  const data::Pipeline decoder(options);
  const std::int64_t size = store.size();
  const std::int64_t count = std::min(kMaxImages, size);
  std::vector<KeptImage> images;
  Tools tools;
  for (std::int64_t i = 0; i < count; ++i) images.push_back(kept(store, i * size / count, decoder, tools));
  const auto image = [&](std::int64_t i) -> const KeptImage& { return images[static_cast<std::size_t>(i % count)]; };

  std::vector<int> thread_counts = {1};
  const int processors = usable_processors();
  while (2 * thread_counts.back() <= processors) thread_counts.push_back(2 * thread_counts.back());
  const double each = seconds / (kStages * static_cast<double>(thread_counts.size()));
  std::vector<LoadingSpeed> speeds;
  for (const int threads : thread_counts) {
    LoadingSpeed speed{.threads = threads};
    speed.read = rate_of(threads, each, [&](std::int64_t i, Tools& own) { store.read(i % size, own.buffer); });
    speed.decode = rate_of(threads, each, [&](std::int64_t i, Tools& own) {
      decoder.run_pixels(image(i).stored(), {.index = i}, own.workspace);
    });
    speed.transform =
        rate_of(threads, each, [&](std::int64_t i, Tools& own) { convert(pipeline, image(i).decoded(), i, own); });
    speed.together = rate_of(threads, each, [&](std::int64_t i, Tools& own) {
      convert(pipeline, store.read(i % size, own.buffer), i, own);
    });
    speeds.push_back(speed);
  }
  return speeds;
}

std::string verdict_on(const std::vector<LoadingSpeed>& speeds) {
  const LoadingSpeed& one = speeds.front();
  const double read = 1 / one.read;
  const double decode = 1 / one.decode;
  const double transform = 1 / one.transform;
  const double sum = read + decode + transform;
  const std::string largest = read >= std::max(decode, transform) ? "reading files"
                              : decode >= transform               ? "decoding"
                                                                  : "transforms";
  std::string text = fmt::format("Most of the time is used for {} ({:.0f}%). ", largest,
                                 100 * std::max({read, decode, transform}) / sum);
  text += fmt::format("One loader thread gives {:.0f} images/s", one.together);
  if (speeds.size() > 1) {
    const LoadingSpeed& last = speeds.back();
    text += fmt::format(", {} give {:.0f} ({:.2f} times as many)", last.threads, last.together,
                        last.together / one.together);
  }
  text += ". A model that uses fewer images per second does not wait for data.";
  return text;
}

}  // namespace lockstep::trainer
