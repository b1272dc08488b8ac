// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_statistics.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::data {

namespace {

constexpr std::int64_t kMaxImages = 2000;
constexpr std::uint64_t kSelectionKey = 0x6D65616E;

/// How often each byte occurs in each channel.
using Histograms = std::vector<std::array<std::uint64_t, 256>>;

void add_pixels(const Image& image, Histograms& histograms) {
  const std::size_t channels = histograms.size();
  for (std::size_t i = 0; i < image.pixels.size(); ++i) ++histograms[i % channels][image.pixels[i]];
}

ChannelStatistics statistics_of(const Histograms& histograms) {
  ChannelStatistics statistics;
  for (const auto& histogram : histograms) {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::uint64_t v = 0; v < 256; ++v) {
      count += histogram[v];
      sum += histogram[v] * v;
      squares += histogram[v] * v * v;
    }
    if (count == 0) throw DataError("no image can be read for the statistics of normalise,mean=auto");
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double variance = static_cast<double>(squares) / static_cast<double>(count) - mean * mean;
    if (variance <= 0) {
      throw DataError(
          "all pixels of a channel are equal, so that normalise,mean=auto has no standard deviation; give "
          "numbers");
    }
    statistics.mean.push_back(mean / 255);
    statistics.std.push_back(std::sqrt(variance) / 255);
  }
  return statistics;
}

}  // namespace

std::vector<int> values_in_masks(const ImageStore& store, std::int64_t max_bytes, bool stops_early, bool skips_errors) {
  const random::Permutation order(static_cast<std::uint64_t>(store.size()), kSelectionKey);
  ReadBuffer buffer;
  Image mask;
  std::array<bool, 256> occurs{};
  for (std::int64_t i = 0; i < std::min(kMaxImages, store.size()); ++i) {
    const auto index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
    try {
      const StoredImage stored = store.read_mask(index, buffer);
      try {
        decode_mask(stored.file, read_image_header(stored.file, max_bytes), mask);
      } catch (const DataError& error) {
        throw DataError(store.mask_place(index), error.what());
      }
    } catch (const DataError&) {
      if (!skips_errors) throw;
      continue;
    }
    for (const std::uint8_t pixel : mask.pixels) occurs[pixel] = true;
    if (stops_early && std::count(occurs.begin(), occurs.begin() + kIgnoredPixel, true) > 1) break;
  }
  std::vector<int> values;
  for (int value = 0; value < std::ssize(occurs); ++value) {
    if (occurs[static_cast<std::size_t>(value)]) values.push_back(value);
  }
  return values;
}

ChannelStatistics measured_statistics(const ImageStore& store, const PipelineOptions& how, bool skips_errors) {
  PipelineOptions options = how;
  options.lines = {"to_float"};
  options.is_training = false;
  options.decodes_exactly = true;
  const Pipeline pipeline(options);
  Histograms histograms(static_cast<std::size_t>(pipeline.channels()));
  const random::Permutation order(static_cast<std::uint64_t>(store.size()), kSelectionKey);
  Workspace workspace;
  ReadBuffer buffer;
  for (std::int64_t i = 0; i < std::min(kMaxImages, store.size()); ++i) {
    const auto index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
    try {
      const StoredImage stored = store.read(index, buffer);
      try {
        pipeline.run_pixels(stored, {.index = index}, workspace);
      } catch (const DataError& error) {
        throw DataError(store.place(index), error.what());
      }
    } catch (const DataError&) {
      if (!skips_errors) throw;
      continue;
    }
    add_pixels(workspace.patch.image, histograms);
  }
  return statistics_of(histograms);
}

}  // namespace lockstep::data
