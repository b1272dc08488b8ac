// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "batch/byte_values.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_files.hpp"
#include "models/losses/field_weights.hpp"
#include "models/losses/loss_rows.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::models {

namespace {

// Losses of classes, labels and pixels, one score at a time.

/// Means over targets that count nothing are finite; the batch contributes nothing.
constexpr double kLeastDivisor = 1e-12;

/// The numbers as they were written, or the numbers of the file of this name.
std::vector<double> numbers_of(const Section& loss, const std::string& key) {
  const std::string& text = loss.text(key);
  if (const auto list = parse_list(text, parse_real)) return *list;
  std::ifstream file(text);
  if (!file || !std::filesystem::is_regular_file(text)) {
    throw ConfigError(loss.cite(key) + ": '" + text + "' is neither a list of numbers nor a file that can be read");
  }
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string content = plain_text(bytes);
  std::replace_if(
      content.begin(), content.end(), [](char c) { return c == '\n' || c == '\t' || c == ' '; }, ',');
  std::vector<double> numbers;
  for (const std::string& word : words_in(content)) {
    const auto number = parse_real(word);
    if (!number) throw ConfigError(loss.cite(key) + ": '" + word + "' in the file is not a number");
    numbers.push_back(*number);
  }
  return numbers;
}

/// The factors as the scores need them; undefined stays so.
at::Tensor like(const at::Tensor& factors, const at::Tensor& scores) {
  return factors.defined() ? batch::kept_on(factors, scores.device()).to(scores.scalar_type()) : factors;
}

/// The classes of factor 0.
std::vector<std::int64_t> without_factor(const at::Tensor& factors) {
  std::vector<std::int64_t> classes;
  for (std::int64_t c = 0; factors.defined() && c < factors.numel(); ++c) {
    if (factors[c].item<double>() == 0) classes.push_back(c);
  }
  return classes;
}

/// @param target   classes of samples [N], tokens [N, T] or pixels [N, H, W], or probabilities [N, C]
/// @param ignored  without_factor(factors)
/// @return         the mean, or the losses of the targets [N, ...], in which factors are included
at::Tensor weighted_cross_entropy(const at::Tensor& output, const at::Tensor& target, const at::Tensor& factors,
                                  const std::vector<std::int64_t>& ignored, double smoothing,
                                  at::Reduction::Reduction reduction) {
  if (target.is_floating_point()) {
    const at::Tensor scores = in_float32(output);
    return at::cross_entropy_loss(scores, target.to(scores.scalar_type()), like(factors, scores), reduction);
  }
  at::Tensor counted = target;
  // The gradient of a mean over targets of weight 0 would be NaN. With smoothing, they are part of the sum.
  if (smoothing == 0) {
    for (const std::int64_t c : ignored) counted = without_ignored(counted, c);
  }
  const bool has_classes_last = output.dim() != 4;
  const at::Tensor scores = has_classes_last ? output.reshape({-1, output.size(-1)}) : output;
  const at::Tensor loss = at::cross_entropy_loss(scores, has_classes_last ? counted.reshape({-1}) : counted,
                                                 like(factors, scores), reduction, kIgnoredClass, smoothing);
  return reduction == at::Reduction::Mean ? loss : loss.view(target.sizes());
}

/// The count of each target in a mean: the factor of its class or 1, and 0 if it is ignored.
/// @param target  without_ignored
/// @return        float64 [N, ...]; [N] for probabilities
at::Tensor counts_of_targets(const at::Tensor& target, const at::Tensor& factors) {
  if (target.is_floating_point()) return at::ones({target.size(0)}, target.options().dtype(at::kDouble));
  const at::Tensor is_counted = target.ne(kIgnoredClass);
  if (!factors.defined()) return is_counted.to(at::kDouble);
  const at::Tensor classes = target.masked_fill(is_counted.logical_not(), 0).to(at::kLong);
  return batch::kept_on(factors, target.device()).index_select(0, classes.flatten()).view_as(target) * is_counted;
}

/// The mean of losses by the weights of their samples.
/// @param losses  [N, ...]
/// @param counts  what they count, with the same shape; those that count 0 are 0
at::Tensor mean_by_samples(const at::Tensor& losses, const at::Tensor& counts, const batch::Batch& batch) {
  const at::Tensor weights = sample_weights(batch, losses);
  const at::Tensor divisor = (counts.to(losses.scalar_type()) * weights).sum();
  return (losses * weights).sum() / divisor.clamp_min(kLeastDivisor);
}

double sum_by_samples(const at::Tensor& counts, const batch::Batch& batch) {
  return (counts * sample_weights(batch, counts)).sum().item<double>();
}

/// The divisor of the mean: targets that count, or the sum of their factors.
double sum_of_factors(const at::Tensor& given, const at::Tensor& factors, std::int64_t ignored) {
  if (given.is_floating_point()) return static_cast<double>(given.size(0));
  if (!factors.defined()) return counted_targets(given, ignored);
  const at::Tensor target = without_ignored(given, ignored);
  const at::Tensor counted = target.masked_select(target.ne(kIgnoredClass));
  if (counted.numel() == 0) return 0;
  // The loader refuses the sample; this is for other callers.
  if (counted.min().item<std::int64_t>() < 0 || counted.max().item<std::int64_t>() >= factors.numel()) return 1;
  return batch::kept_on(factors, counted.device()).index_select(0, counted.to(at::kLong)).sum().item<double>();
}

Loss counted_cross_entropy(const Section& loss, const Task& task, std::int64_t usually_ignored) {
  const double smoothing = loss.real("label_smoothing");
  const at::Tensor factors = class_factors(loss, "class_weights", task);
  const std::int64_t ignored = ignored_class(loss, usually_ignored);
  const auto value = [=, weightless = without_factor(factors), has_weights = task.has_weights](
                         const batch::Outputs& outputs, const batch::Batch& batch, bool is_training) {
    const at::Tensor target = without_ignored(batch.target(), ignored);
    const auto reduced = [&](at::Reduction::Reduction reduction) {
      return weighted_cross_entropy(outputs.main(), target, factors, weightless, is_training ? smoothing : 0,
                                    reduction);
    };
    if (has_weights) return mean_by_samples(reduced(at::Reduction::None), counts_of_targets(target, factors), batch);
    // Smoothed samples of classes of weight 0 have a loss. If a batch has no others, the mean of LibTorch is NaN.
    const bool may_lack_weight = !weightless.empty() && is_training && smoothing > 0 && !target.is_floating_point();
    if (!may_lack_weight) return reduced(at::Reduction::Mean);
    const at::Tensor losses = reduced(at::Reduction::None);
    const at::Tensor divisor = counts_of_targets(target, factors).sum().to(losses.scalar_type());
    return losses.sum() / divisor.clamp_min(kLeastDivisor);
  };
  const auto count = [=, has_weights = task.has_weights](const batch::Batch& batch) {
    if (!has_weights) return sum_of_factors(batch.target(), factors, ignored);
    return sum_by_samples(counts_of_targets(without_ignored(batch.target(), ignored), factors), batch);
  };
  return {.value = value, .count = count, .targets = {.classes = task.classes, .ignored = ignored}};
}

/// Targets of each class: probabilities [N, C], and which samples count [N, 1]; undefined = all.
struct LabelTarget {
  at::Tensor wanted;
  at::Tensor is_counted;
};

LabelTarget labels_of(const at::Tensor& scores, const at::Tensor& target, double smoothing) {
  if (target.dim() == scores.dim()) return {target.to(scores.scalar_type()), {}};
  const auto classes = static_cast<double>(scores.size(-1));
  const at::Tensor is_counted = target.ne(kIgnoredClass);
  const at::Tensor of_class = at::one_hot(target.masked_fill(is_counted.logical_not(), 0), scores.size(-1));
  return {of_class.to(scores.scalar_type()) * (1 - smoothing) + smoothing / classes, is_counted.unsqueeze(-1)};
}

/// @param losses      [N, C]
/// @param is_counted  [N, 1]; undefined = all
/// @param batch       has the weights of the samples; null = all weigh the same
at::Tensor mean_of(const at::Tensor& losses, const at::Tensor& is_counted, const batch::Batch* batch = nullptr) {
  if (batch != nullptr) {
    const at::Tensor counts = is_counted.defined() ? is_counted.expand_as(losses) : at::ones_like(losses);
    return mean_by_samples(losses * counts, counts, *batch);
  }
  if (!is_counted.defined()) return losses.mean();
  const auto classes = static_cast<double>(losses.size(-1));
  return losses.masked_fill(is_counted.logical_not(), 0).sum() / (is_counted.sum().to(losses.scalar_type()) * classes);
}

/// Targets with several labels are no classes.
ClassRange classes_of_samples(const Task& task, std::int64_t ignored) {
  return {.classes = task.kind == TaskKind::classification ? task.classes : 0, .ignored = ignored};
}

/// Samples that count; those of several labels all do.
double count_labels(const at::Tensor& given, std::int64_t ignored) {
  return given.dim() > 1 ? static_cast<double>(given.size(0)) : counted_targets(given, ignored);
}

/// The function Loss::count of losses of labels.
std::function<double(const batch::Batch&)> label_count(const Task& task, std::int64_t ignored) {
  return [=, has_weights = task.has_weights](const batch::Batch& batch) {
    const at::Tensor& target = batch.target();
    if (!has_weights) return count_labels(target, ignored);
    if (target.dim() > 1) return sum_by_samples(at::ones({target.size(0)}, at::kDouble), batch);
    return sum_by_samples(without_ignored(target, ignored).ne(kIgnoredClass).to(at::kDouble), batch);
  };
}

// Losses of segmentations that compare whole regions.

constexpr double kMinRegion = 1e-7;

/// Sums over the pixels of a micro-batch, of each class [C].
struct Regions {
  at::Tensor common;  ///< probability times target
  at::Tensor both;    ///< probability plus target
  at::Tensor is_present;
};

/// @param output  [N, C, H, W]; of one channel, the score of the only class
/// @param given   [N, H, W], or [N, 1, H, W] with one channel
Regions regions_of(const at::Tensor& output, const at::Tensor& given, std::int64_t ignored) {
  const at::Tensor scores = in_float32(output).flatten(2);
  const std::int64_t classes = scores.size(1);
  const at::Tensor target = without_ignored(given.to(at::kLong), ignored).reshape({scores.size(0), -1});
  const at::Tensor is_counted = target.ne(kIgnoredClass);
  const at::Tensor of_class = target.masked_fill(is_counted.logical_not(), 0);
  const at::Tensor wanted = classes == 1 ? of_class.unsqueeze(1) : at::one_hot(of_class, classes).movedim(-1, 1);
  const at::Tensor counted = is_counted.unsqueeze(1);
  const at::Tensor is_class = wanted.to(scores.scalar_type()) * counted;
  const at::Tensor likely = (classes == 1 ? scores.sigmoid() : scores.softmax(1)).masked_fill(counted.logical_not(), 0);
  return {.common = (likely * is_class).sum(at::IntArrayRef({0, 2})),
          .both = (likely + is_class).sum(at::IntArrayRef({0, 2})),
          .is_present = is_class.sum(at::IntArrayRef({0, 2})).gt(0)};
}

at::Tensor dice_of(const Regions& regions, double smooth) {
  const at::Tensor scores = (2 * regions.common + smooth) / (regions.both + smooth).clamp_min(kMinRegion);
  return ((1 - scores) * regions.is_present).mean();
}

at::Tensor jaccard_of(const Regions& regions, double smooth) {
  const at::Tensor either = regions.both - regions.common;
  return ((1 - (regions.common + smooth) / (either + smooth).clamp_min(kMinRegion)) * regions.is_present).mean();
}

using Score = at::Tensor (*)(const Regions& regions, double smooth);

Loss make_region(const Section& loss, const Task& task, Score score) {
  require_task(loss, task, {TaskKind::segmentation});
  const double smooth = loss.real("smooth");
  const std::int64_t ignored = ignored_class(loss, task.classes > kMaskIgnored ? kIgnoredClass : kMaskIgnored);
  return loss_of_target([=](const at::Tensor& output, const at::Tensor& target,
                            bool) { return score(regions_of(output, target, ignored), smooth); },
                        [=](const at::Tensor& target) { return counted_targets(target, ignored); },
                        // The score of an only class stands for 0 and 1.
                        {.classes = task.classes == 1 ? 2 : task.classes, .ignored = ignored});
}

}  // namespace

void require_task(const Section& loss, const Task& task, std::initializer_list<TaskKind> kinds) {
  if (std::find(kinds.begin(), kinds.end(), task.kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const TaskKind kind : kinds) names.push_back(row_of(kind).name);
  throw ConfigError(loss.cite("name") + ": " + loss.text("name") + " does not fit the task, which is " +
                    row_of(task.kind).name + "; it is for: " + joined(names));
}

at::Tensor in_float32(const at::Tensor& output) {
  const bool is_half = output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16;
  return is_half ? output.to(at::kFloat) : output;
}

std::vector<double> loss_factors(const Section& loss, const std::string& key) {
  const std::vector<double> numbers = numbers_of(loss, key);
  const bool are_valid =
      std::all_of(numbers.begin(), numbers.end(), [](double number) { return number >= 0 && std::isfinite(number); }) &&
      std::any_of(numbers.begin(), numbers.end(), [](double number) { return number > 0; });
  if (are_valid) return numbers;
  throw ConfigError(loss.cite(key) + ": numbers must be finite and at least 0, and one must be greater than 0");
}

at::Tensor class_factors(const Section& loss, const std::string& key, const Task& task) {
  if (loss.text(key).empty()) return {};
  const std::vector<double> numbers = loss_factors(loss, key);
  if (static_cast<std::int64_t>(numbers.size()) == task.classes) return torch::tensor(numbers, at::kDouble);
  throw ConfigError(loss.cite(key) + ": " + std::to_string(numbers.size()) + " numbers are given for " +
                    std::to_string(task.classes) + " classes; give one for each class");
}

std::int64_t ignored_class(const Section& loss, std::int64_t usual) {
  const std::int64_t ignored = loss.integer("ignore_index");
  return ignored == kIgnoredClass ? usual : ignored;
}

at::Tensor without_ignored(const at::Tensor& target, std::int64_t ignored) {
  if (ignored == kIgnoredClass || target.is_floating_point()) return target;
  // A copy instead of an 8-bit type that cannot hold the number.
  return target.to(at::kLong).masked_fill(target.eq(ignored), kIgnoredClass);
}

double counted_targets(const at::Tensor& target, std::int64_t ignored) {
  return static_cast<double>(without_ignored(target, ignored).ne(kIgnoredClass).sum().item<std::int64_t>());
}

at::Tensor binary_cross_entropy(const at::Tensor& output, const at::Tensor& target, double smoothing) {
  const at::Tensor scores = in_float32(output);
  if (target.dim() == output.dim()) {
    return at::binary_cross_entropy_with_logits(scores, target.to(scores.scalar_type()));
  }
  const LabelTarget labels = labels_of(scores, target, smoothing);
  return mean_of(at::binary_cross_entropy_with_logits(scores, labels.wanted, {}, {}, at::Reduction::None),
                 labels.is_counted);
}

Loss make_cross_entropy(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::language, TaskKind::segmentation});
  return counted_cross_entropy(loss, task, kIgnoredClass);
}

Loss make_pixels(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::segmentation});
  return counted_cross_entropy(loss, task, task.classes > kMaskIgnored ? kIgnoredClass : kMaskIgnored);
}

Loss make_bce(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::multilabel});
  const double smoothing = loss.real("label_smoothing");
  if (smoothing > 0 && task.kind == TaskKind::multilabel) {
    throw ConfigError(loss.cite("label_smoothing") + ": targets of several labels cannot be smoothed; use 0");
  }
  const at::Tensor factors = class_factors(loss, "pos_weight", task);
  const std::int64_t ignored = ignored_class(loss, kIgnoredClass);
  const auto value = [=, has_weights = task.has_weights](const batch::Outputs& outputs, const batch::Batch& batch,
                                                         bool is_training) {
    const at::Tensor target = without_ignored(batch.target(), ignored);
    const double smooth = is_training ? smoothing : 0;
    if (!factors.defined() && !has_weights) return binary_cross_entropy(outputs.main(), target, smooth);
    const at::Tensor scores = in_float32(outputs.main());
    const LabelTarget labels = labels_of(scores, target, smooth);
    return mean_of(
        at::binary_cross_entropy_with_logits(scores, labels.wanted, {}, like(factors, scores), at::Reduction::None),
        labels.is_counted, has_weights ? &batch : nullptr);
  };
  return {.value = value, .count = label_count(task, ignored), .targets = classes_of_samples(task, ignored)};
}

Loss make_focal(const Section& loss, const Task& task) {
  require_task(loss, task, {TaskKind::classification, TaskKind::multilabel});
  const double alpha = loss.real("alpha");
  const double gamma = loss.real("gamma");
  const std::int64_t ignored = ignored_class(loss, kIgnoredClass);
  const auto value = [=, has_weights = task.has_weights](const batch::Outputs& outputs, const batch::Batch& batch,
                                                         bool) {
    const at::Tensor scores = in_float32(outputs.main());
    const auto [wanted, is_counted] = labels_of(scores, without_ignored(batch.target(), ignored), 0);
    const at::Tensor likely = scores.sigmoid();
    const at::Tensor missed = likely * (1 - wanted) + (1 - likely) * wanted;  // 1 - probability of the target
    at::Tensor losses =
        at::binary_cross_entropy_with_logits(scores, wanted, {}, {}, at::Reduction::None) * missed.pow(gamma);
    if (alpha >= 0) losses = losses * (alpha * wanted + (1 - alpha) * (1 - wanted));
    return mean_of(losses, is_counted, has_weights ? &batch : nullptr);
  };
  return {.value = value, .count = label_count(task, ignored), .targets = classes_of_samples(task, ignored)};
}

Loss make_dice(const Section& loss, const Task& task) { return make_region(loss, task, dice_of); }
Loss make_jaccard(const Section& loss, const Task& task) { return make_region(loss, task, jaccard_of); }

Loss make_pixels_and_dice(const Section& loss, const Task& task) {
  Loss sum = make_pixels(loss, task);
  sum.value = [pixels = sum.value, dice = make_dice(loss, task).value, pixels_weight = loss.real("pixels_weight"),
               dice_weight = loss.real("dice_weight")](const batch::Outputs& outputs, const batch::Batch& batch,
                                                       bool is_training) {
    return pixels_weight * pixels(outputs, batch, is_training) + dice_weight * dice(outputs, batch, is_training);
  };
  return sum;
}

}  // namespace lockstep::models
