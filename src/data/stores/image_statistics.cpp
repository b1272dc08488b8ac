// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_statistics.hpp"

#include <lockstep/random/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/stores/with_place.hpp"

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

/// Calls `call(index, image)` for up to 2000 images, which a keyed permutation selects, until it returns false.
/// @param skips_errors  images that cannot be read do not count
template <class Call>
void visit_some(const ImageStore& store, bool skips_errors, const Call& call) {
  const random::Permutation order(static_cast<std::uint64_t>(store.size()), kSelectionKey);
  ReadBuffer buffer;
  for (std::int64_t i = 0; i < std::min(kMaxImages, store.size()); ++i) {
    const auto index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
    try {
      const StoredImage stored = store.read(index, buffer);
      if (!with_place(store, index, [&] { return call(index, stored); })) return;
    } catch (const DataError&) {
      if (!skips_errors) throw;
    }
  }
}

}  // namespace

std::vector<int> values_in_masks(const ImageStore& masks, std::int64_t max_bytes, bool stops_early, bool skips_errors) {
  Image mask;
  std::array<bool, 256> occurs{};
  visit_some(masks, skips_errors, [&](std::int64_t, const StoredImage& stored) {
    decode_mask(stored.file, read_image_header(stored.file, max_bytes), mask);
    for (const std::uint8_t pixel : mask.pixels) occurs[pixel] = true;
    return !stops_early || std::count(occurs.begin(), occurs.begin() + kIgnoredPixel, true) < 2;
  });
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
  Workspace workspace;
  visit_some(store, skips_errors, [&](std::int64_t index, const StoredImage& stored) {
    pipeline.run_pixels(stored, {.index = index}, workspace);
    add_pixels(workspace.patch.image, histograms);
    return true;
  });
  return statistics_of(histograms);
}

}  // namespace lockstep::data
