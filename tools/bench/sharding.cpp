// SPDX-License-Identifier: BSD-3-Clause
// Memory of a rank and time of a step for ddp and the stages of sharded, in one table. Start it with mpirun on as many
// ranks as wanted: what is divided among ranks should shrink with them.
#include <lockstep/config/config.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/mpi/environment.hpp>

#include <torch/types.h>

#include <cstdio>
#include <fstream>
#include <malloc.h>
#include <string>
#include <vector>

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
  const engine::Tables& tables = engine::builtin_tables();
  config::Config config(engine::all_keys(tables));
  for (const auto& [key, value] : settings) config.set(key, value, "bench");
  const Task task{.sample_shape = {64}, .classes = 4096, .is_text = true};
  const auto strategy = engine::make_strategy(config.sections(), world, tables);
  strategy->prepare(task);
  const data::Batch batch{.input = torch::randint(4096, {1, 64}, at::kLong),
                          .target = torch::randint(4096, {1, 64}, at::kLong)};
  const auto step = [&] { strategy->model().train_step(batch, strategy->optimizer(), 1.0); };
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
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  const std::vector<std::pair<std::string, std::string>> common = {
      {"model.name", "gpt"},   {"model.layers", "8"}, {"model.heads", "8"},      {"model.features", "512"},
      {"optim.name", "adamw"}, {"run.threads", "1"},  {"train.micro_batch", "0"}};
  double before = memory();
  if (world.is_root()) {
    std::printf("gpt of 27 M parameters (108 MB), AdamW, %d ranks; memory of rank 0 beyond %.0f MB of the program\n",
                world.size(), before);
    std::printf("%-22s %12s %12s %10s\n", "", "between MB", "peak MB", "step ms");
  }
  const std::vector<std::pair<const char*, std::vector<std::pair<std::string, std::string>>>> rows = {
      {"ddp, private", {{"strategy.name", "ddp"}, {"ddp.shared_parameters", "false"}}},
      {"ddp, shared", {{"strategy.name", "ddp"}, {"ddp.shared_parameters", "auto"}}},
      {"sharded, stage 1", {{"strategy.name", "sharded"}, {"strategy.stage", "1"}}},
      {"sharded, stage 2", {{"strategy.name", "sharded"}, {"strategy.stage", "2"}}},
      {"sharded, stage 3", {{"strategy.name", "sharded"}, {"strategy.stage", "3"}}},
      {"the same, no prefetch",
       {{"strategy.name", "sharded"}, {"strategy.stage", "3"}, {"strategy.prefetch", "false"}}},
  };
  const std::string only = argc > 1 ? argv[1] : "";
  for (const auto& [name, more] : rows) {
    if (!only.empty() && only != name) continue;
    auto settings = common;
    settings.insert(settings.end(), more.begin(), more.end());
    const Row row = measure(world, settings);
    if (world.is_root()) {
      std::printf("%-22s %12.0f %12.0f %10.0f\n", name, row.steady - before, row.peak - before, row.step);
      std::fflush(stdout);
    }
    malloc_trim(0);
    before = memory();
  }
  environment.finish();
}
