// SPDX-License-Identifier: BSD-3-Clause
// What the training loop costs: the whole program with its default hooks, logs and files beside a bare loop of loader
// and train_step over an equal model. Both in one process, in blocks of steps that take turns: the bare loop is a hook.
// A second bare loop shows how far equal loops differ.
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "engine/setup/composition.hpp"

namespace {

using lockstep::Section;
namespace data = lockstep::data;
namespace engine = lockstep::engine;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The quantile of sorted values.
double at_part(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5)];
}

/// Steps without anything around them.
class BareLoop {
 public:
  explicit BareLoop(const lockstep::Sections& sections, const engine::RunView& run)
      : made_(engine::make_resources(sections, run.world), sections, engine::builtin_registry(),
              run.data.splits().train->task()),
        sampler_(run.data.sampler()) {
    const auto& world = run.world;
    const data::Share share = data::share_of(sampler_.global_batch_size(), world.rank(), world.size());
    const auto plan = [this, share](std::int64_t k) {
      return sampler_.draws(k / sampler_.steps_per_epoch(), k % sampler_.steps_per_epoch(), share);
    };
    loader_ = std::make_unique<data::Loader>(run.data.splits().train, plan, 0, std::int64_t{1} << 40,
                                             data::LoaderOptions{.workers = 1, .prefetch = 3});
    made_.model.wrapper->model().train();
  }

  double seconds(std::int64_t steps) {
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
      made_.model.wrapper->train_step(loader_->next(), made_.updates.first(), 1.0);
    }
    return seconds_since(begin);
  }

 private:
  engine::Composition made_;
  const data::Sampler& sampler_;
  std::unique_ptr<data::Loader> loader_;
};

class BareLoopHook : public engine::Hook {
 public:
  BareLoopHook(const lockstep::Sections& sections, std::int64_t block) : sections_(&sections), block_(block) {}

  void before_train(engine::RunView& run) override {
    bare_ = std::make_unique<BareLoop>(*sections_, run);
    control_ = std::make_unique<BareLoop>(*sections_, run);
    begin_ = Clock::now();
  }

  void between_steps(engine::RunView& run, const engine::StepReport& report) override {
    if (report.progress.step % block_ != 0) return;
    const double ours = seconds_since(begin_);
    const double bare = bare_->seconds(block_);
    const double control = control_->seconds(block_);
    if (report.progress.step > kWarmUpBlocks * block_) {
      ratios_.push_back(ours / bare);
      controls_.push_back(control / bare);
      bare_ms_.push_back(1000 * bare / static_cast<double>(block_));
    }
    if (run.world.size() > 1) run.world.barrier();
    begin_ = Clock::now();
  }

  void after_train(engine::RunView& run, engine::Outcome outcome) override {
    if (outcome == engine::Outcome::failed || !run.world.is_root() || ratios_.size() < 3) return;
    std::sort(bare_ms_.begin(), bare_ms_.end());
    std::printf("%zu pairs of %lld steps of %.2f ms\n", ratios_.size(), static_cast<long long>(block_),
                at_part(bare_ms_, 0.5));
    tell("loop / bare loop", ratios_);
    tell("bare loop / bare loop", controls_);
    std::fflush(stdout);
  }

 private:
  /// The median with its interval from the order statistics (binomial, 95 %).
  static void tell(const char* what, std::vector<double> ratios) {
    std::sort(ratios.begin(), ratios.end());
    const auto count = static_cast<double>(ratios.size());
    const double reach = 0.98 * std::sqrt(count);
    const double low = std::max(0.0, count / 2 - reach) / (count - 1);
    const double high = std::min(count - 1, count / 2 + reach) / (count - 1);
    std::printf("%-22s %.4f, 95 %% interval %.4f to %.4f\n", what, at_part(ratios, 0.5), at_part(ratios, low),
                at_part(ratios, high));
  }

  static constexpr std::int64_t kWarmUpBlocks = 2;

  const lockstep::Sections* sections_;
  std::int64_t block_;
  std::unique_ptr<BareLoop> bare_;
  std::unique_ptr<BareLoop> control_;
  Clock::time_point begin_;
  std::vector<double> ratios_;
  std::vector<double> controls_;
  std::vector<double> bare_ms_;
};

}  // namespace

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.hooks.push_back(
      {.name = "bare_loop",
       .help = "takes turns with a bare loop and compares their times",
       .keys =
           {{.name = "block", .type = lockstep::KeyType::integer, .default_value = "40", .help = "steps of a block"}},
       .priority = engine::Priority::lowest,
       .make = [](const Section& options, const engine::HookContext& context) {
         return std::make_unique<BareLoopHook>(context.run, options.integer("block"));
       }});
  lockstep::trainer::run(argc, argv, registry);
}
