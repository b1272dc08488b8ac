// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "engine/data_moments.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/session.hpp"
#include "engine/setup/rollout.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/setup/teacher.hpp"

namespace lockstep::engine {

namespace {

constexpr double kOldShare = 0.9;  // weight of the old mean when a new loss is added
constexpr double kDiverged = 4;

/// Sets the rate of every step and stops when the loss diverges.
class RangeHook : public Hook {
 public:
  RangeHook(const LrRange& range, std::vector<LrPoint>& points) : range_(range), points_(&points) {}

  void before_step(RunView& run) override {
    const double factor = range_.rate(run.progress.step) / run.optimizer.optimizer().groups().front().base_lr;
    for (auto& [part, wrapper] : run.parts) {
      for (optim::ParamGroup& group : wrapper.optimizer().groups()) group.options.at("lr") = factor * group.base_lr;
    }
  }

  void after_step(RunView& run, const StepReport& report) override {
    if (report.is_void) return;
    if (report.is_skipped || !add_point(*points_, report.lr, report.loss)) run.requests.finish();
  }

 private:
  LrRange range_;
  std::vector<LrPoint>* points_;
};

}  // namespace

double LrRange::rate(std::int64_t step) const {
  const double where = static_cast<double>(step) / static_cast<double>(steps - 1);
  return lowest * std::pow(highest / lowest, where);
}

bool add_point(std::vector<LrPoint>& points, double lr, double loss) {
  if (!std::isfinite(loss)) return false;
  // The weights of n losses have the sum 1 - 0.9^n.
  const auto weights = [](std::size_t count) { return 1 - std::pow(kOldShare, static_cast<double>(count)); };
  const double sum = points.empty() ? 0 : points.back().smoothed * weights(points.size());
  const double smoothed = (kOldShare * sum + (1 - kOldShare) * loss) / weights(points.size() + 1);
  points.push_back({lr, loss, smoothed});
  const auto lowest = std::ranges::min_element(points, {}, &LrPoint::smoothed);
  return smoothed <= kDiverged * lowest->smoothed;
}

std::optional<double> suggested_lr(const std::vector<LrPoint>& points) {
  std::optional<double> suggestion;
  double steepest = 0;
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    const double slope =
        (points[i + 1].smoothed - points[i - 1].smoothed) / std::log(points[i + 1].lr / points[i - 1].lr);
    if (slope >= steepest) continue;
    steepest = slope;
    suggestion = points[i].lr;
  }
  return suggestion;
}

std::vector<LrPoint> find_lr(const mpi::Communicator& world, const Sections& configured, const Registry& registry,
                             const LrRange& range) {
  const std::string origin = "lr-find";
  Sections sections = configured;
  world.all_or_throw([&] {
    const bool is_valid = range.lowest > 0 && range.highest > range.lowest && range.steps >= 2;
    if (!is_valid) throw ConfigError("lr-find: the rates must satisfy 0 < lowest < highest, with at least 2 steps");
    if (sections.at("optim").real("lr") <= 0) throw ConfigError(sections.at("optim").cite("lr") + " must be above 0");
    Section& train = sections.at("train");
    train.set("max_steps", std::to_string(range.steps), origin);
    train.set("max_epochs", "0", origin);
    train.set("nonfinite", "skip", origin);
  });
  data::OpenOptions options = open_options(sections, registry);
  options.used = used_splits({"train"});
  data::Splits splits = open_splits(world, sections.at("data"), registry, options);
  Composition made(make_resources(sections, world), sections, registry,
                   training_task(world, sections.at("model"), *splits.train));
  world.all_or_throw([&] { splits.train = trained_dataset(splits.train, sections); });
  attach_teacher(made.resources, *made.model.wrapper, sections, registry, *splits.train);
  Trainer trainer(sections, made, std::move(splits), registry);
  std::vector<LrPoint> points;
  trainer.add_hook(Priority::lowest, std::make_unique<RangeHook>(range, points));
  if (const auto& post_local = made.model.post_local) trainer.add_hook(post_local_hook(post_local->averages()));
  trainer.train();
  return points;
}

}  // namespace lockstep::engine
