// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/page.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <algorithm>

#include "core/text/text.hpp"
#include "engine/evaluation/sample_pictures.hpp"
#include "report/files/image.hpp"
#include "report/page/html.hpp"
#include "trainer/predict/sample_text.hpp"

namespace lockstep::trainer {

namespace {

using engine::class_name;

constexpr std::int64_t kShownClasses = 3;
constexpr std::int64_t kShownValues = 4;
constexpr const char* kStyle =
    "<style>.pictures{grid-template-columns:repeat(auto-fill,minmax(9rem,1fr))}"
    ".pictures img{margin:0 auto}"
    ".pictures figcaption{overflow-wrap:anywhere;text-align:left}</style>\n";

std::string percent(double probability) { return fmt::format("{:.1f}\u00a0%", 100 * probability); }

/// The lines of a caption with commas between them.
std::string in_one_line(const std::string& caption) {
  std::string text;
  for (const char c : caption) text += c == '\n' ? ", " : std::string(1, c);
  return text;
}

std::string values_text(const at::Tensor& values) {
  const at::Tensor flat = values.flatten().to(at::kDouble);
  std::vector<std::string> words;
  for (std::int64_t j = 0; j < std::min(kShownValues, flat.numel()); ++j) {
    words.push_back(number_text(flat[j].item<double>(), 4));
  }
  if (flat.numel() > kShownValues) words.emplace_back("...");
  return joined(words);
}

bool is_image(const batch::Batch& given) {
  const batch::Value& value = given.at(given.input_key());
  if (!value.is<at::Tensor>()) return false;
  const auto& input = value.as<at::Tensor>();
  return input.dim() >= 3 && input.dim() <= 4 && input.size(0) == given.size() && input.numel() > 0;
}

}  // namespace

PageSamples::PageSamples(const PredictSettings& settings, Task task, const data::Dataset& dataset)
    : settings_(settings), task_(std::move(task)), view_(task_.fields), dataset_(&dataset) {}

bool PageSamples::is_before(const Sample& a, const Sample& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.index < b.index;
}

PageSamples::Score PageSamples::score_of(const engine::BatchPredictions& predictions, std::int64_t i) const {
  Score score;
  const at::Tensor target = predictions.target_of(i);
  const bool has_target = target.defined();
  if (predictions.probabilities.defined() && task_.kind == TaskKind::multilabel) {
    const at::Tensor row = predictions.probabilities[i];
    score.uncertainty = 1 - 2 * (row - settings_.threshold).abs().min().item<double>();
    if (has_target && target.sizes() == row.sizes()) {
      const at::Tensor is_wrong = row.ge(settings_.threshold).ne(target.gt(0.5));
      score.error = (row - target.to(at::kDouble)).abs().max().item<double>();
      score.is_wrong = is_wrong.any().item<bool>();
    }
  } else if (predictions.probabilities.defined()) {
    const auto row = row_of(predictions.probabilities, i);
    const std::int64_t best = top_indices(row, 1).front();
    score.uncertainty = 1 - row[static_cast<std::size_t>(best)];
    const bool has_class = has_target && target.dim() == 0 && !target.is_floating_point();
    const std::int64_t wanted = has_class ? target.item<std::int64_t>() : -1;
    if (wanted >= 0 && wanted < std::ssize(row)) {
      score.error = 1 - row[static_cast<std::size_t>(wanted)];
      score.is_wrong = wanted != best;
    }
  } else if (predictions.values.defined() && has_target && target.numel() == predictions.values[i].numel()) {
    const at::Tensor distance =
        predictions.values[i].to(at::kDouble) - target.to(at::kDouble).view_as(predictions.values[i]);
    score.error = distance.abs().mean().item<double>();
  } else if (predictions.masks.defined() && has_target && target.sizes() == predictions.masks[i].sizes()) {
    const at::Tensor counts = target.ge(0);
    const at::Tensor is_wrong = predictions.masks[i].ne(target).logical_and(counts);
    score.error = is_wrong.sum().item<double>() / std::max(1.0, counts.sum().item<double>());
  } else if (predictions.log_probabilities.defined()) {
    score.error = -predictions.log_probabilities[i].item<double>();
  }
  return score;
}

double PageSamples::rank_of(const Score& score, std::int64_t index) const {
  switch (settings_.page_order) {
    case PageOrder::first:
      return -static_cast<double>(index);
    case PageOrder::uncertain:
      return score.uncertainty;
    case PageOrder::errors:
      break;
  }
  return score.error >= 0 ? 1 + score.error : score.uncertainty;  // labeled samples first
}

std::string PageSamples::caption_of(const engine::BatchPredictions& predictions, std::int64_t i) const {
  const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
  const std::string id = utf8_text(data::sample_name_of(*dataset_, index));
  std::vector<std::string> words = {id.empty() ? "sample " + std::to_string(index) : id};
  const at::Tensor target = predictions.target_of(i);
  const bool has_target = target.defined();
  if (predictions.probabilities.defined()) {
    if (has_target && target.dim() == 0 && target.item<double>() >= 0) {
      words.push_back("target " + class_name(task_.class_names, target.item<std::int64_t>()));
    }
    const auto row = row_of(predictions.probabilities, i);
    for (const std::int64_t c : top_indices(row, std::min(kShownClasses, settings_.top_k))) {
      words.push_back(class_name(task_.class_names, c) + " " + percent(row[static_cast<std::size_t>(c)]));
    }
  } else if (predictions.values.defined()) {
    words.push_back("predicted " + values_text(predictions.values[i]));
    if (has_target) words.push_back("target " + values_text(target));
  } else if (predictions.log_probabilities.defined()) {
    words.push_back("log-probability " + number_text(predictions.log_probabilities[i].item<double>(), 4));
  } else if (predictions.masks.defined() && score_of(predictions, i).error >= 0) {
    words.push_back(percent(1 - score_of(predictions, i).error) + " of the pixels are right");
  }
  return joined(words, "\n");
}

void PageSamples::add(const engine::BatchPredictions& predictions, const batch::Batch& given) {
  const bool has_images = is_image(given);
  const bool has_masks_as_target = predictions.target.defined() && predictions.target.dim() >= 3;
  for (std::int64_t i = 0; i < predictions.size(); ++i) {
    const Score score = score_of(predictions, i);
    labeled_ += score.error >= 0 && predictions.probabilities.defined() ? 1 : 0;
    wrong_ += score.is_wrong ? 1 : 0;
    const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
    Sample sample{.rank = rank_of(score, index), .index = index, .is_wrong = score.is_wrong};
    const auto place = std::lower_bound(samples_.begin(), samples_.end(), sample, is_before);
    const bool is_full = std::ssize(samples_) >= settings_.page_samples;
    if (is_full && place == samples_.end()) continue;
    sample.caption = caption_of(predictions, i);
    if (has_images) {
      const at::Tensor mask = predictions.masks.defined() ? predictions.masks[i] : at::Tensor();
      const at::Tensor target = mask.defined() && has_masks_as_target ? predictions.target_of(i) : at::Tensor();
      const Picture image = engine::picture_of_sample(view_.of(given.input()[i]), {view_.of(target), view_.of(mask)});
      sample.height = image.height;
      sample.width = image.width;
      sample.png = report::base64_of(report::png_of(image).bytes);
    }
    samples_.insert(place, std::move(sample));
    if (is_full) samples_.pop_back();
  }
}

std::string PageSamples::page(const mpi::Communicator& world, std::vector<std::vector<std::string>> facts) const {
  using Json = nlohmann::json;
  Json mine = Json::array();
  for (const Sample& sample : samples_) {
    mine.push_back(
        {sample.rank, sample.index, sample.is_wrong, sample.caption, sample.height, sample.width, sample.png});
  }
  std::vector<std::int64_t> counts = {labeled_, wrong_};
  world.all_reduce(std::span(counts));
  const std::vector<std::string> texts = world.gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!world.is_root()) return "";
  std::vector<Sample> all;
  for (const std::string& text : texts) {
    for (const Json& each : Json::parse(text)) {
      all.push_back({.rank = each[0],
                     .index = each[1],
                     .is_wrong = each[2],
                     .caption = each[3],
                     .height = each[4],
                     .width = each[5],
                     .png = each[6]});
    }
  }
  std::sort(all.begin(), all.end(), is_before);
  if (std::ssize(all) > settings_.page_samples) all.resize(static_cast<std::size_t>(settings_.page_samples));
  if (counts[0] > 0) {
    facts.push_back({"wrong", fmt::format("{} of {} samples with a target ({})", counts[1], counts[0],
                                          percent(static_cast<double>(counts[1]) / static_cast<double>(counts[0])))});
  }
  const std::string order = settings_.page_order == PageOrder::errors
                                ? "largest errors first; without targets, largest uncertainty first"
                            : settings_.page_order == PageOrder::uncertain ? "largest uncertainty first"
                                                                           : "in the order of the data";
  facts.push_back({"shown", std::to_string(all.size()) + " samples, " + order});
  std::string figures;
  std::vector<std::vector<std::string>> rows;
  for (const Sample& sample : all) {
    if (sample.png.empty()) {
      rows.push_back({std::to_string(sample.index), in_one_line(sample.caption)});
      continue;
    }
    figures += report::html_figure({.alt = in_one_line(sample.caption),
                                    .caption = sample.caption,
                                    .is_marked = sample.is_wrong,
                                    .height = sample.height,
                                    .width = sample.width,
                                    .png = sample.png});
  }
  const std::string pictures = figures.empty() ? "" : kStyle + ("<div class=\"pictures\">\n" + figures + "</div>\n");
  return report::html_page("Predictions", report::html_table({}, facts) +
                                              report::html_section("Samples", pictures + report::html_table({}, rows)));
}

}  // namespace lockstep::trainer
