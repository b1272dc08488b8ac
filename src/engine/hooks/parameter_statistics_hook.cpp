// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/hooks/hook_rows.hpp"
#include "engine/settings/run_position.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

/// Moments of all elements of some tensors, in float64.
struct Moments {
  double count = 0;
  double sum = 0;
  double squares = 0;
  double largest = 0;  // magnitude; NaN where there is one
  double zeros = 0;

  Moments& operator+=(const Moments& other) {
    count += other.count;
    sum += other.sum;
    squares += other.squares;
    largest = std::isnan(largest) || std::isnan(other.largest) ? std::numeric_limits<double>::quiet_NaN()
                                                               : std::max(largest, other.largest);
    zeros += other.zeros;
    return *this;
  }
};

Moments moments_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const at::Tensor values = tensor.detach().to(at::kDouble);
  return {.count = static_cast<double>(values.numel()),
          .sum = values.sum().item<double>(),
          .squares = values.square().sum().item<double>(),
          .largest = values.abs().max().item<double>(),
          .zeros = (values == 0).sum().item<double>()};
}

void put(EventStorage& events, const Moments& moments) {
  if (moments.count == 0) return;
  const double mean = moments.sum / moments.count;
  const ScalarOptions options{.is_smoothed = false, .owner = "parameter_statistics"};
  events.put("norm", std::sqrt(moments.squares), options);
  events.put("mean", mean, options);
  events.put("std", std::sqrt(std::max(0.0, moments.squares / moments.count - mean * mean)), options);
  events.put("max", moments.largest, options);
  events.put("zeros", moments.zeros / moments.count, options);
}

class ParameterStatisticsHook : public Hook {
 public:
  struct Options {
    Every every;
    bool is_by_parameter;
    bool has_gradients;
    std::size_t bins;  // 0 = no histograms
  };
  explicit ParameterStatisticsHook(const Options& options)
      : Hook({.gradients = options.has_gradients, .report = {}}), options_(options) {}

  void on_backward(RunView& run, const LastBatch& batch) override {
    const RunPosition next = next_position(run.progress);
    if (!options_.has_gradients || !options_.every.is_due(next)) return;
    write_statistics(run, "gradients", next.step, [&](const at::Tensor& parameter) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) return at::Tensor();
      const at::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
      return batch.loss_scale == 1 ? dense : dense / batch.loss_scale;
    });
  }

  void after_step(RunView& run, const StepReport& report) override {
    const Progress& progress = report.progress;
    if (!options_.every.is_due(position_of(progress))) return;
    run.wrapper.store().read_whole([&] {
      write_statistics(run, "parameters", progress.step, [](const at::Tensor& parameter) { return parameter; });
    });
  }

 private:
  /// @param chosen  what is looked at; undefined = nothing
  template <class Choose>
  void write_statistics(RunView& run, const std::string& title, std::int64_t step, const Choose& chosen) const {
    if (!run.world.is_root()) return;  // all hold the same
    EventStorage& events = run.events;
    const std::int64_t step_before = events.step();
    events.set_step(step);
    const auto scope = events.scope(title);
    const parallel::ParameterStore& store = run.wrapper.store();
    Moments all;
    for (std::size_t i = 0; i < store.size(); ++i) {
      const at::Tensor values = chosen(store.parameter(i).tensor);
      if (!values.defined()) continue;
      const Moments moments = moments_of(values);
      all += moments;
      if (options_.bins > 0) put_histogram(events, store.parameter(i).name, values, moments);
      if (!options_.is_by_parameter) continue;
      const auto named = events.scope(store.parameter(i).name);
      put(events, moments);
    }
    if (!options_.is_by_parameter) put(events, all);
    events.set_step(step_before);
  }

  void put_histogram(EventStorage& events, const std::string& name, const at::Tensor& values,
                     const Moments& moments) const {
    if (moments.count == 0 || !std::isfinite(moments.largest)) return;
    const at::Tensor flat = values.detach().to(at::kCPU, at::kFloat).contiguous();
    Histogram histogram =
        histogram_of({flat.const_data_ptr<float>(), static_cast<std::size_t>(flat.numel())}, options_.bins);
    histogram.name = name;
    events.put(std::move(histogram));
  }

  Options options_;
};

std::unique_ptr<Hook> make_parameter_statistics(const Section& options, const HookContext&) {
  return std::make_unique<ParameterStatisticsHook>(
      ParameterStatisticsHook::Options{.every = every_of(options),
                                       .is_by_parameter = options.text("by") == "parameter",
                                       .has_gradients = options.boolean("gradients"),
                                       .bins = static_cast<std::size_t>(options.integer("bins"))});
}

}  // namespace

HookRow parameter_statistics_row() {
  return {.name = "parameter_statistics",
          .help =
              "Logs norm, mean, standard deviation, maximum magnitude and number of zeros of parameters, and of "
              "gradients before clipping",
          .keys = {renamed_every_key("100", "measurements", "interval"),
                   keys::choice("by", "all", "Statistics of all parameters together, or of each parameter",
                                {"all", "parameter"}),
                   keys::boolean("gradients", "false",
                                 "Also measure gradients, which requires gathering them in every step"),
                   keys::integer("bins", "0", "Bins of the histogram of each parameter. 0 = no histograms", 0, 10000)},
          .priority = Priority::normal,
          .make = make_parameter_statistics};
}

}  // namespace lockstep::engine
