// SPDX-License-Identifier: BSD-3-Clause
// Memory of a rank and time of a step with one strategy: what tools/bench/sharding puts into a table.
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <torch/types.h>

#include <cstdio>
#include <fstream>
#include <malloc.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.hpp"
#include "engine/session.hpp"
#include "engine/setup/composition.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;

constexpr int kSteps = 5;

/// A number of kilobytes from a file of lines "Name:  123 kB", as MB.
double megabytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

/// Memory of this rank, what it shares with others counted in parts.
double memory() { return megabytes("/proc/self/smaps_rollup", "Pss"); }

struct Row {
  double steady = 0;  ///< MB between steps
  double peak = 0;    ///< MB within a step
  double step = 0;    ///< ms
};

Row measure(const mpi::Communicator& world, const std::vector<std::pair<std::string, std::string>>& settings) {
  const engine::Registry& registry = engine::builtin_registry();
  config::Config config(engine::all_keys(registry));
  for (const auto& [key, value] : settings) config.set(key, value, "bench");
  const Task task{.sample_shape = {64}, .classes = 4096, .is_text = true};
  engine::Composition made(engine::make_resources(config.sections(), world), config.sections(), registry, task);
  const at::Tensor tokens = torch::randint(4096, {1, 64}, at::kLong);
  const batch::Batch batch{tokens, torch::randint(4096, {1, 64}, at::kLong)};
  const auto step = [&] { made.model.wrapper->train_step(batch, made.updates.first(), 1.0); };
  step();
  step();
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) {
    world.barrier();
    const auto begin = bench::Clock::now();
    step();
    times.push_back(bench::milliseconds_since(begin));
  }
  const double peak = megabytes("/proc/self/status", "VmHWM") - megabytes("/proc/self/status", "VmRSS");
  malloc_trim(0);
  return {.steady = memory(), .peak = memory() + peak, .step = bench::median(times)};
}

}  // namespace

int main(int argc, char** argv) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const std::map<std::string, Settings> strategies = {
      {"ddp, private", {{"strategy.name", "ddp"}, {"ddp.shared_parameters", "false"}}},
      {"ddp, shared", {{"strategy.name", "ddp"}}},
      {"stage 1", {{"strategy.name", "sharded"}, {"strategy.stage", "1"}}},
      {"stage 2", {{"strategy.name", "sharded"}, {"strategy.stage", "2"}}},
      {"stage 3", {{"strategy.name", "sharded"}, {"strategy.stage", "3"}}},
      {"stage 3, no prefetch", {{"strategy.name", "sharded"}, {"strategy.stage", "3"}, {"strategy.prefetch", "false"}}},
      {"ddp, private, bf16",
       {{"strategy.name", "ddp"},
        {"ddp.shared_parameters", "false"},
        {"train.precision", "bf16"},
        {"train.param_dtype", "bf16"},
        {"train.master_weights", "false"}}},
      {"stage 3, bf16",
       {{"strategy.name", "sharded"},
        {"strategy.stage", "3"},
        {"train.precision", "bf16"},
        {"train.param_dtype", "bf16"},
        {"train.master_weights", "false"}}}};
  const auto chosen = argc == 2 ? strategies.find(argv[1]) : strategies.end();
  if (chosen == strategies.end()) return std::fprintf(stderr, "usage: bench_sharding STRATEGY\n"), 2;
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  Settings settings = {{"model.name", "gpt"},      {"model.depth", "8"},    {"model.num_heads", "8"},
                       {"model.embed_dim", "512"}, {"optim.name", "adamw"}, {"run.threads", "1"}};
  settings.insert(settings.end(), chosen->second.begin(), chosen->second.end());
  const double before = memory();
  const Row row = measure(world, settings);
  if (world.is_root()) {
    std::printf("%-22s %6d %12.0f %10.0f %10.0f\n", chosen->first.c_str(), world.size(), row.steady - before,
                row.peak - before, row.step);
  }
  environment.finish();
}
