// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/image_survey.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "core/system/in_threads.hpp"
#include "core/system/resources.hpp"
#include "data/codecs/decode.hpp"
#include "data/source/hash.hpp"
#include "data/stores/image_dataset.hpp"
#include "log/progress.hpp"

namespace lockstep::trainer {

namespace {

/// The facts that are read of one image.
struct Facts {
  data::ImageHeader header = {};
  bool is_file = false;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;
  std::string fault = {};
};

Facts facts_of(const data::ImageStore& store, std::int64_t index, const data::Pipeline& pipeline, bool decodes,
               std::int64_t max_bytes, data::ReadBuffer& buffer, data::Workspace& workspace) {
  Facts facts;
  try {
    const data::StoredImage stored = store.read(index, buffer);
    facts.is_file = !stored.file.empty();
    const std::span<const std::uint8_t> bytes =
        facts.is_file ? std::span(reinterpret_cast<const std::uint8_t*>(stored.file.data()), stored.file.size())
                      : stored.pixels;
    facts.bytes = bytes.size();
    facts.digest = data::hash_of(bytes);
    if (facts.is_file) {
      facts.header = data::read_image_header(stored.file, max_bytes);
    } else {
      facts.header.height = stored.shape.height;
      facts.header.width = stored.shape.width;
      facts.header.channels = stored.shape.channels;
    }
    if (decodes) pipeline.run_pixels(stored, {.index = index}, workspace);
    if (const auto& masks = store.facts().masks; decodes && masks) {
      data::with_place(*masks, index, [&] { pipeline.run_mask(masks->read(index, buffer), 0, workspace); });
    }
  } catch (const DataError& error) {
    facts.fault = error.what();
  }
  return facts;
}

template <class T>
Spread spread_of(std::vector<T> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double upper = static_cast<double>(values[half]);
  const double median = values.size() % 2 == 1 ? upper : (static_cast<double>(values[half - 1]) + upper) / 2;
  return {static_cast<double>(values.front()), median, static_cast<double>(values.back())};
}

/// The path without repetition: faults of files begin with it.
BadImage bad_image(const data::ImageStore& store, std::int64_t index, std::string fault) {
  BadImage bad{.place = store.place(index), .fault = std::move(fault)};
  for (const std::string& start : {bad.place + ": ", bad.place + " "}) {
    if (bad.fault.starts_with(start)) bad.fault.erase(0, start.size());
  }
  return bad;
}

}  // namespace

ImageSurvey survey_images(const data::ImageStore& store, const std::string& split, const data::PipelineOptions& how,
                          bool decodes) {
  data::PipelineOptions options = how;
  options.lines = {"to_float"};
  const data::Pipeline pipeline(options);
  const std::int64_t size = store.size();
  std::vector<Facts> all(static_cast<std::size_t>(size));
  std::atomic<std::int64_t> next = 0;
  log::ProgressLine progress;
  in_threads(usable_processors(), [&](int thread) {
    data::ReadBuffer buffer;
    data::Workspace workspace;
    for (std::int64_t i = next++; i < size; i = next++) {
      all[static_cast<std::size_t>(i)] = facts_of(store, i, pipeline, decodes, options.max_bytes, buffer, workspace);
      if (thread == 0 && i % 64 < 8) {
        progress.show("reading " + split + ": " + std::to_string(i) + " of " + std::to_string(size));
      }
    }
  });

  ImageSurvey survey{.split = split, .images = size};
  const data::StoreFacts& known = store.facts();
  if (known.targets == data::TargetKind::classes || known.targets == data::TargetKind::label_sets) {
    survey.images_of_class.resize(static_cast<std::size_t>(known.classes));
  }
  std::vector<int> heights;
  std::vector<int> widths;
  std::vector<double> aspects;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!survey.images_of_class.empty()) {
      for (const std::int64_t label : store.target(i).classes) {
        if (label >= 0) ++survey.images_of_class.at(static_cast<std::size_t>(label));
      }
    }
    Facts& facts = all[static_cast<std::size_t>(i)];
    survey.bytes += facts.bytes;
    survey.digests.push_back(facts.digest);
    if (!facts.fault.empty()) {
      survey.bad.push_back(bad_image(store, i, std::move(facts.fault)));
      continue;
    }
    const data::ImageHeader& header = facts.header;
    heights.push_back(header.height);
    widths.push_back(header.width);
    aspects.push_back(static_cast<double>(header.width) / header.height);
    ++survey.formats[facts.is_file ? data::name_of(header.format) : "pixels"];
    ++survey.channels[header.channels];
    ++survey.orientations[header.orientation];
  }
  survey.height = spread_of(std::move(heights));
  survey.width = spread_of(std::move(widths));
  survey.aspect = spread_of(std::move(aspects));
  return survey;
}

std::vector<Duplicate> duplicates_of(const std::vector<ImageSurvey>& splits) {
  std::vector<Duplicate> duplicates;
  std::unordered_map<std::uint64_t, std::pair<std::size_t, std::int64_t>> first_of;
  for (std::size_t s = 0; s < splits.size(); ++s) {
    for (std::size_t i = 0; i < splits[s].digests.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i);
      if (splits[s].digests[i] == 0) continue;
      const auto [found, is_new] = first_of.emplace(splits[s].digests[i], std::pair(s, index));
      if (is_new) continue;
      const auto& [split, first] = found->second;
      duplicates.push_back({splits[split].split, first, splits[s].split, index});
    }
  }
  return duplicates;
}

}  // namespace lockstep::trainer
