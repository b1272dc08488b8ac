// SPDX-License-Identifier: BSD-3-Clause
#include "embed/running_statistics.hpp"

#include <lockstep/checkpoints/archive.hpp>

#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "engine/state/paths.hpp"
#include "models/layers/field_normalization.hpp"

namespace lockstep::embed {

namespace {

const std::string kStatistics = engine::kHooks + "/statistics";

std::vector<double> numbers_in(const at::Tensor& tensor) {
  const at::Tensor values = tensor.cpu().contiguous();
  const auto* const begin = values.const_data_ptr<double>();
  return {begin, begin + values.numel()};
}

}  // namespace

ChannelMoments::ChannelMoments(std::int64_t channels)
    : means_(static_cast<std::size_t>(channels)), squares_(static_cast<std::size_t>(channels)) {}

void ChannelMoments::add(const at::Tensor& values) {
  if (means_.empty() || values.numel() == 0) return;
  const std::int64_t channels = values.size(1);
  const at::Tensor rows = values.to(at::kDouble).transpose(0, 1).reshape({channels, -1});
  const at::Tensor mean = rows.mean(1);
  ChannelMoments added(channels);
  added.count_ = static_cast<double>(rows.size(1));
  added.means_ = numbers_in(mean);
  added.squares_ = numbers_in((rows - mean.unsqueeze(1)).square().sum(1));
  add(added);
}

void ChannelMoments::add(const ChannelMoments& other) {
  if (other.count_ == 0) return;
  const double count = count_ + other.count_;
  for (std::size_t c = 0; c < means_.size(); ++c) {
    const double difference = other.means_[c] - means_[c];
    means_[c] += difference * other.count_ / count;
    squares_[c] += other.squares_[c] + difference * difference * count_ * other.count_ / count;
  }
  count_ = count;
}

std::vector<double> ChannelMoments::deviations() const {
  std::vector<double> deviations;
  for (const double square : squares_) deviations.push_back(square > 0 ? std::sqrt(square / count_) : 1);
  return deviations;
}

std::vector<double> ChannelMoments::numbers() const {
  std::vector<double> numbers = {count_};
  numbers.insert(numbers.end(), means_.begin(), means_.end());
  numbers.insert(numbers.end(), squares_.begin(), squares_.end());
  return numbers;
}

ChannelMoments ChannelMoments::of(const double* numbers, std::int64_t channels) {
  ChannelMoments moments(channels);
  moments.count_ = *numbers++;
  moments.means_.assign(numbers, numbers + channels);
  moments.squares_.assign(numbers + channels, numbers + 2 * channels);
  return moments;
}

/// The statistics of all parts, in order.
class RunningStatisticsState : public engine::Stateful {
 public:
  RunningStatisticsState(RunningStatistics& statistics, std::function<mpi::Collectives&()> collectives)
      : statistics_(&statistics), collectives_(std::move(collectives)) {}

  std::string name() const override { return "statistics"; }

  void capture(const engine::StateWriter& writer) override {
    const std::vector<double> all = statistics_->gathered(collectives_());
    const std::int64_t parts = statistics_->options_.all_parts;
    const at::Tensor numbers = at::empty({parts, std::ssize(all) / parts}, at::TensorOptions(at::kDouble));
    std::memcpy(numbers.mutable_data_ptr(), all.data(), all.size() * sizeof(double));
    writer.put(kStatistics + "/parts", numbers);
    writer.set(kStatistics, "is_frozen", std::int64_t{statistics_->is_frozen_});
  }

  void restore(const checkpoints::Archive& archive, const engine::RestoreOptions&) override {
    if (!archive.has_attribute(kStatistics, "is_frozen")) return;
    const at::Tensor all = engine::tensor_over(archive.array(kStatistics + "/parts"));
    const auto& options = statistics_->options_;
    if (all.size(0) != options.all_parts || all.size(1) != static_cast<std::int64_t>(statistics_->numbers_of_part())) {
      return;  // another number of ranks or channels: they begin again
    }
    const std::vector<double> numbers = numbers_in(all);
    for (std::size_t i = 0; i < statistics_->parts_.size(); ++i) {
      const std::size_t part = static_cast<std::size_t>(options.first) + i;
      statistics_->parts_[i] = statistics_->part_of(numbers.data() + part * statistics_->numbers_of_part());
    }
    statistics_->is_frozen_ = archive.integer(kStatistics, "is_frozen") != 0;
  }

 private:
  RunningStatistics* statistics_;
  std::function<mpi::Collectives&()> collectives_;
};

RunningStatistics::RunningStatistics(const StatisticsOptions& options)
    : options_(options),
      parts_(static_cast<std::size_t>(options.parts),
             {.inputs = ChannelMoments(options.inputs), .targets = ChannelMoments(options.targets)}) {}

void RunningStatistics::add(std::size_t part, const batch::Batch& samples) {
  if (is_frozen_ || samples.size() == 0) return;
  parts_[part].samples += static_cast<double>(samples.size());
  parts_[part].inputs.add(samples.input());
  if (options_.targets > 0) parts_[part].targets.add(samples.target());
}

void RunningStatistics::update(mpi::Collectives& collectives, models::Model& model) {
  if (is_frozen_ || model.normalization() == nullptr) return;
  const std::vector<double> all = gathered(collectives);
  PartMoments sum{.inputs = ChannelMoments(options_.inputs), .targets = ChannelMoments(options_.targets)};
  for (std::int64_t i = 0; i < options_.all_parts; ++i) {
    const PartMoments part = part_of(all.data() + static_cast<std::size_t>(i) * numbers_of_part());
    sum.samples += part.samples;
    sum.inputs.add(part.inputs);
    sum.targets.add(part.targets);
  }
  if (sum.samples == 0) return;
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.normalization()->named_buffers()) {
    const bool is_input = item.key().starts_with("input");
    const ChannelMoments& moments = is_input ? sum.inputs : sum.targets;
    const std::vector<double> numbers = item.key().ends_with("shift") ? moments.means() : moments.deviations();
    item.value().copy_(at::tensor(numbers, at::TensorOptions(at::kDouble)));
  }
  is_frozen_ = options_.frozen_after > 0 && sum.samples >= static_cast<double>(options_.frozen_after);
}

std::size_t RunningStatistics::numbers_of_part() const {
  return 1 + ChannelMoments::size(options_.inputs) + ChannelMoments::size(options_.targets);
}

/// The numbers of all parts of all ranks, in order.
std::vector<double> RunningStatistics::gathered(mpi::Collectives& collectives) const {
  std::vector<double> mine;
  for (const PartMoments& part : parts_) {
    mine.push_back(part.samples);
    for (const ChannelMoments* moments : {&part.inputs, &part.targets}) {
      const std::vector<double> numbers = moments->numbers();
      mine.insert(mine.end(), numbers.begin(), numbers.end());
    }
  }
  std::vector<double> all;
  for (const std::vector<std::byte>& bytes : collectives.all_gather_any(std::as_bytes(std::span(mine)))) {
    const std::size_t begin = all.size();
    all.resize(begin + bytes.size() / sizeof(double));
    std::memcpy(all.data() + begin, bytes.data(), bytes.size());
  }
  return all;
}

RunningStatistics::PartMoments RunningStatistics::part_of(const double* numbers) const {
  const double* const inputs = numbers + 1;
  return {.samples = *numbers,
          .inputs = ChannelMoments::of(inputs, options_.inputs),
          .targets = ChannelMoments::of(inputs + ChannelMoments::size(options_.inputs), options_.targets)};
}

std::shared_ptr<engine::Stateful> RunningStatistics::state(std::function<mpi::Collectives&()> collectives) {
  return std::make_shared<RunningStatisticsState>(*this, std::move(collectives));
}

}  // namespace lockstep::embed
