// SPDX-License-Identifier: BSD-3-Clause
#include "data/mixing.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/random/random.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/table.hpp"
#include "kernels/pixels.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint64_t kBetaNumbers = 1 << 16;  // begin of the numbers of the share, after those of box and coin

struct MixRow {
  std::string name;
  std::string help;
  KeySpecs keys;
  bool is_cutmix;
};

const std::vector<MixRow>& mix_rows() {
  const KeySpec probability = keys::real("prob", "1", "Probability that the batch is mixed", 0, 1);
  const KeySpec scope = keys::choice("scope", "batch",
                                     "batch = one share and one box for the global batch. elem = each sample has its "
                                     "own, and prob applies to samples",
                                     {"batch", "elem"});
  const auto alpha = [](const std::string& default_value) {
    return keys::real_above("alpha", 0, 1e6, default_value,
                            "The share of a sample has the distribution Beta(alpha, alpha)");
  };
  static const std::vector<MixRow> rows = {
      {"mixup", "Weighted mean of each sample and the one before it", {alpha("0.2"), probability, scope}, false},
      {"cutmix",
       "A box of each image is replaced with that of the image before it",
       {alpha("1"), probability, scope},
       true},
  };
  return rows;
}

MixRule parse_rule(const std::string& line, const std::string& place) {
  const auto [row, options] = choose_row(mix_rows(), line, {}, place, place);
  return {.is_cutmix = row->is_cutmix,
          .alpha = options.real("alpha"),
          .probability = options.real("prob"),
          .is_by_sample = options.text("scope") == "elem"};
}

void make_dense(at::Tensor& input) {
  if (!input.is_contiguous() && !input.is_contiguous(at::MemoryFormat::ChannelsLast)) input = input.contiguous();
}

/// The classes of a batch, all of which are in [0, classes).
std::span<const std::int64_t> labels_of(const batch::Batch& batch, std::int64_t classes) {
  const at::Tensor& target = batch.target();
  if (batch.input().scalar_type() != at::kFloat) throw DataError("train.mix needs samples of type float32");
  if (target.scalar_type() != at::kLong || target.dim() != 1 || !target.is_contiguous()) {
    throw DataError("train.mix needs one class per sample, of type int64");
  }
  const std::span labels(target.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(batch.size()));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < classes) continue;
    const std::int64_t index = i < batch.draws().size() ? batch.draws()[i].index : static_cast<std::int64_t>(i);
    throw DataError("sample " + std::to_string(index) + " has the class " + std::to_string(labels[i]) +
                    ", but train.mix needs a class in [0, " + std::to_string(classes) + ")");
  }
  return labels;
}

/// @param labels  one more than `mixes`: the first is that of the first partner
/// @return        the soft labels [N, C] float32, and the class [N] int64 that has the larger part in each
std::pair<at::Tensor, at::Tensor> mix_labels(std::span<const std::int64_t> labels, std::span<const SampleMix> mixes,
                                             std::int64_t classes, double smoothing) {
  const std::int64_t count = std::ssize(mixes);
  std::pair mixed(at::empty({count, classes}, at::kFloat), at::empty({count}, at::kLong));
  auto* soft = mixed.first.mutable_data_ptr<float>();
  auto* const major = mixed.second.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    const double share = mixes[i].share;
    mix_targets(labels[i + 1], labels[i], share, smoothing, {soft, static_cast<std::size_t>(classes)});
    soft += classes;
    major[i] = share >= 0.5 ? labels[i + 1] : labels[i];
  }
  return mixed;
}

/// @param all  dense; the first is the partner of the second
/// @return     all but the first, mixed: in the same memory, if nothing else refers to it
at::Tensor mix_inputs(const at::Tensor& all, std::span<const SampleMix> mixes, bool is_cutmix) {
  const bool is_ours = all.use_count() == 1 && all.storage().use_count() == 1 && all.storage().resizable();
  const std::int64_t count = std::ssize(mixes);
  const std::int64_t row = all.numel() / (count + 1);
  at::Tensor mixed = all.narrow(0, 1, count);
  if (!is_ours) mixed = at::empty_like(mixed);
  const auto* const from = all.const_data_ptr<float>();
  auto* const target = mixed.mutable_data_ptr<float>();
  for (std::int64_t i = count - 1; i >= 0; --i) {  // the last first: a partner is read before it is overwritten
    const SampleMix& mix = mixes[static_cast<std::size_t>(i)];
    const float* const partner = from + i * row;
    const float* const own = partner + row;
    float* const out = target + i * row;
    if (mix.share < 1 && !is_cutmix) {
      kernels::blend_rows(own, partner, static_cast<std::size_t>(row), mix.share, out);
      continue;
    }
    if (out != own) std::copy_n(own, row, out);
    if (mix.share < 1) copy_box(partner, all.size(1), mix.box, {all.stride(1), all.stride(2), all.stride(3)}, out);
  }
  return mixed;
}

}  // namespace

KeySpecs MixSettings::keys() {
  KeySpec mix = keys::texts("train.mix", "",
                            "NAME,option=value: mixes the samples of a training batch and their targets. With several "
                            "lines, each batch uses one of them, chosen at random");
  for (const MixRow& row : mix_rows()) {
    mix.parts.push_back(keys::text(row.name, "", row.help));
    mix.parts.back().parts = row.keys;
  }
  const KeySpec until =
      keys::real("train.mix_until", "1", "Fraction of the run after which train.mix no longer applies", 0, 1);
  return {mix, keys::expert(keys::not_read_by(until, mix.name, {""}))};
}

MixSettings MixSettings::from(const Section& train) {
  MixSettings settings{.rules = {.value = {}, .cite = train.cite("mix")}, .until = train.real("mix_until")};
  for (const std::string& line : train.texts("mix")) {
    settings.rules.value.push_back(parse_rule(line, settings.rules.cite));
  }
  return settings;
}

SampleMix cut_around(ImageSize image, double share, std::int64_t center_y, std::int64_t center_x) {
  const double half = 0.5 * std::sqrt(1.0 - share);
  const auto half_height = static_cast<std::int64_t>(half * image.height);
  const auto half_width = static_cast<std::int64_t>(half * image.width);
  const std::int64_t top = std::max<std::int64_t>(center_y - half_height, 0);
  const std::int64_t left = std::max<std::int64_t>(center_x - half_width, 0);
  const std::int64_t bottom = std::min<std::int64_t>(center_y + half_height, image.height);
  const std::int64_t right = std::min<std::int64_t>(center_x + half_width, image.width);
  const Box box{static_cast<int>(top), static_cast<int>(left), static_cast<int>(bottom - top),
                static_cast<int>(right - left)};
  const double cut = static_cast<double>(box.height) * box.width;
  return {.share = 1.0 - cut / (static_cast<double>(image.height) * image.width), .box = box};
}

void copy_box(const float* from, std::int64_t channels, const Box& box, const std::array<std::int64_t, 3>& strides,
              float* target) {
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      const std::int64_t begin = c * strides[0] + y * strides[1];
      for (std::int64_t x = box.left; x < box.left + box.width; ++x) {
        const std::int64_t i = begin + x * strides[2];
        target[i] = from[i];
      }
    }
  }
}

void mix_targets(std::int64_t own, std::int64_t partner, double share, double smoothing, std::span<float> out) {
  const double off = smoothing / static_cast<double>(out.size());
  std::fill(out.begin(), out.end(), static_cast<float>(off));
  const double on = 1.0 - smoothing;
  out[static_cast<std::size_t>(own)] = static_cast<float>(off + (own == partner ? 1.0 : share) * on);
  if (own != partner) out[static_cast<std::size_t>(partner)] = static_cast<float>(off + (1.0 - share) * on);
}

Mixing::Mixing(MixingOptions options, const Task& task, const batch::Roles& roles)
    : options_(std::move(options)), classes_(task.classes), image_{} {
  const std::string& cite = options_.settings.rules.cite;
  if (task.kind != TaskKind::classification || task.is_text) {
    throw ConfigError(cite + ": only samples with one class each can be mixed; remove train.mix");
  }
  if (roles.inputs.size() != 1 || roles.targets.size() != 1) {
    throw ConfigError(cite + ": only samples with one input and one target can be mixed; remove train.mix");
  }
  if (task.has_weights) {
    throw ConfigError(cite + ": samples with weights (data.weight_array) cannot be mixed; remove one of the two");
  }
  const bool has_cutmix = std::any_of(options_.settings.rules.value.begin(), options_.settings.rules.value.end(),
                                      [](const MixRule& rule) { return rule.is_cutmix; });
  const bool is_image = task.sample_shape.size() == 3;
  if (has_cutmix && !is_image) {
    throw ConfigError(cite + ": cutmix needs samples of shape [channels, height, width]; use mixup");
  }
  if (is_image) image_ = {static_cast<int>(task.sample_shape[1]), static_cast<int>(task.sample_shape[2])};
}

const MixRule* Mixing::rule_of(std::int64_t step, std::int64_t total_steps) const {
  const MixSettings& settings = options_.settings;
  if (static_cast<double>(step) >= settings.until * static_cast<double>(total_steps)) return nullptr;
  random::Sequence numbers(options_.seed, random::Stream::mixing, static_cast<std::uint64_t>(step));
  const double coin = numbers.uniform();
  const MixRule& rule = settings.rules.value[numbers.below(settings.rules.value.size())];
  return rule.is_by_sample || coin < rule.probability ? &rule : nullptr;
}

SampleMix Mixing::draw(const MixRule& rule, std::int64_t step, std::int64_t position) const {
  const auto key = static_cast<std::uint64_t>(step);
  const std::uint64_t of_sample = rule.is_by_sample ? static_cast<std::uint64_t>(position) + 2 : 1;
  random::Sequence numbers(options_.seed, random::Stream::mixing, key, of_sample);
  if (rule.is_by_sample && numbers.uniform() >= rule.probability) return {};
  random::Sequence of_share(options_.seed, random::Stream::mixing, key, of_sample, kBetaNumbers);
  const double share = random::beta_variate(of_share, rule.alpha, rule.alpha);
  if (!rule.is_cutmix) return {.share = share};
  const auto center_y = static_cast<std::int64_t>(numbers.below(static_cast<std::uint64_t>(image_.height)));
  const auto center_x = static_cast<std::int64_t>(numbers.below(static_cast<std::uint64_t>(image_.width)));
  return cut_around(image_, share, center_y, center_x);
}

batch::Batch Mixing::mixed(batch::Batch batch, const MixRule& rule, std::int64_t step, std::int64_t first) const {
  const std::string input_key = batch.input_key();
  const std::string target_key = batch.target_key();
  batch.change(input_key, make_dense);
  const std::span<const std::int64_t> labels = labels_of(batch, classes_);
  std::vector<SampleMix> mixes;
  for (std::int64_t i = 0; i + 1 < batch.size(); ++i) mixes.push_back(draw(rule, step, first + i));
  auto [soft, major] = mix_labels(labels, mixes, classes_, options_.smoothing);
  at::Tensor input = mix_inputs(batch.input(), mixes, rule.is_cutmix);
  batch.drop_first(1);
  batch.set(input_key, std::move(input));
  batch.set(target_key, std::move(soft));
  batch.set(kMajorLabel, std::move(major));
  return batch;
}

}  // namespace lockstep::data
