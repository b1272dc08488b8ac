// SPDX-License-Identifier: BSD-3-Clause
// Lockstep's side of tools/bench/models: one model, whose training steps or forwards are timed on request.
//
// usage: bench_models PIPES SIDE BATCH CLASSES PIXELS|IMAGES|FIELDS KEY=VALUE...
//
// PIPES.in.R and PIPES.out.R are pipes of rank R. "step N" and "forward N" are answered by "done MILLISECONDS...", with
// the time of each; the first answer is "ready LOSS", where the loss is that of the first step. "profile_step N" and
// "profile_forward N" are answered by "done KIND=MILLISECONDS,..."; tools/bench/models lists the kinds. "quit" ends the
// program. While no rank has work, none takes processor time. The initial values and the images are those of
// models_peer.py. With MODELS_CLOCK=processor in the environment, the times are those of the processor.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "core/system/memory.hpp"
#include "engine/evaluation/batch_loop.hpp"
#include "engine/measures/flop_counter.hpp"
#include "engine/measures/trace.hpp"
#include "engine/session.hpp"
#include "engine/setup/composition.hpp"
#include "kernels/kernels.hpp"
#include "step_profile.hpp"

namespace {

using namespace lockstep;  // this is a program of its own

constexpr std::int64_t kWarmUpSteps = 2;

double milliseconds() {
  static const char* const clock = std::getenv("MODELS_CLOCK");
  timespec time{};
  clock_gettime(clock != nullptr && std::string(clock) == "processor" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC,
                &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// Numbers in [-1, 1) that a formula scatters; models_peer.py has the same.
/// @param name  which numbers
at::Tensor scattered(const std::string& name, at::IntArrayRef shape) {
  std::uint32_t start = 0x811C9DC5U;
  for (const char c : name) start = (start ^ static_cast<unsigned char>(c)) * 0x01000193U;
  at::Tensor values = at::empty(shape);
  const std::span<float> elements(values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  std::uint32_t index = start;
  for (float& element : elements) {
    std::uint32_t x = ++index * 0x9E3779B1U;
    x = (x ^ (x >> 15)) * 0x85EBCA6BU;
    x ^= x >> 13;
    element = static_cast<float>(x) * 0x1p-31F - 1.0F;
  }
  return values;
}

/// Weights of matrices and convolutions have the variance 1 / (number of inputs); positions and tokens are small,
/// biases 0. What a model sets to constants by itself stays: scales of norms and of residual branches.
void initialize(models::Model& model) {
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    at::Tensor& parameter = item.value();
    if (item.key().ends_with("bias")) {
      parameter.zero_();
    } else if (parameter.dim() > 1) {
      const double inputs = static_cast<double>(parameter.numel() / parameter.size(0));
      const double scale = parameter.dim() == 3 ? 0.02 : std::sqrt(3 / inputs);
      parameter.copy_(scattered(item.key(), parameter.sizes()) * scale);
    }
  }
}

struct Work {
  std::string pipes;
  std::int64_t side;
  std::int64_t batch;  ///< samples of a rank
  std::int64_t classes;
  /// IMAGES: a class for each; PIXELS: a class for each pixel; FIELDS: numbers along a line with SIDE points, one
  /// channel
  std::string kind;

  bool is_of_pixels() const { return kind == "PIXELS"; }
  bool is_of_fields() const { return kind == "FIELDS"; }
};

Task task_of(const Work& work) {
  if (work.is_of_fields()) {
    return {.sample_shape = {1, work.side},
            .kind = TaskKind::regression,
            .fields = {.channels = {"u"}, .units = {""}, .axes = {"x"}, .coordinates = {{}}, .inputs = {"u"}}};
  }
  return {.sample_shape = {3, work.side, work.side},
          .classes = work.classes,
          .kind = work.is_of_pixels() ? TaskKind::segmentation : TaskKind::classification};
}

batch::Batch batch_of(const Work& work, int rank) {
  if (work.is_of_fields()) {
    const std::vector<std::int64_t> shape = {work.batch, 1, work.side};
    return {scattered("inputs" + std::to_string(rank), shape), scattered("targets" + std::to_string(rank), shape)};
  }
  const std::string name = "images" + std::to_string(rank);
  std::vector<std::int64_t> shape = {work.batch};
  if (work.is_of_pixels()) shape.insert(shape.end(), {work.side, work.side});
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return {scattered(name, {work.batch, 3, work.side, work.side}),
          at::arange(count).mul(7).remainder(work.classes).view(shape)};
}

/// Notes when the parts of a step end, and counts the operations of its forward.
struct Parts : parallel::StepObserver {
  void on_prepared(const batch::Batch&) override { counter.emplace(); }
  void on_forward(const batch::Outputs&) override {
    flops = counter->count();
    counter.reset();
  }
  void on_backward() override { update -= milliseconds(); }
  void on_update() override { update += milliseconds(); }

  std::optional<engine::FlopCounter> counter;
  std::int64_t flops = 0;
  double update = 0;  ///< milliseconds
};

class Contender {
 public:
  Contender(const Work& work, const Sections& sections, const mpi::Communicator& world)
      : batch_(batch_of(work, world.rank())), world_(&world) {
    const bool is_bf16 = sections.at("train").text("precision") == "bf16";
    if (is_bf16 && !kernels::is_used(kernels::Kernel::rounded_products)) type_ = at::kBFloat16;
    const Task task = task_of(work);
    std::shared_ptr<models::Model> model = models::build(sections.at("model"), task, 1, at::kFloat);
    initialize(*model);
    made_.emplace(engine::make_resources(sections, world), sections, engine::builtin_registry(), task,
                  engine::ModelRequest{.given = std::move(model)});
    wrapper().model().train();
  }

  /// @return  the loss
  double step() {
    evaluation_.reset();
    return wrapper().train_step(batch_, made_->updates.first(), 1.0, {}, observer_).loss;
  }

  std::vector<double> milliseconds_of_steps(std::int64_t count) {
    return times(count, [this] { step(); });
  }

  /// The kinds of work in a step or a forward with their times, as text; the times are those of one.
  std::string profile(bool is_step, std::int64_t count) {
    const auto run = [&] { return is_step ? milliseconds_of_steps(count) : milliseconds_of_forwards(count); };
    Parts parts;
    observer_ = &parts;
    step();
    observer_ = nullptr;
    run();  // memory of both kinds is there from now on
    const long pages = bench::page_faults();
    run();
    const double faults = static_cast<double>(bench::page_faults() - pages) / static_cast<double>(count);
    engine::OperatorTrace trace(std::size_t{1} << 22U);
    const std::vector<double> traced = run();
    const double whole = std::accumulate(traced.begin(), traced.end(), 0.0) / static_cast<double>(count);
    const bench::WorkTimes times = bench::work_times(trace.take());
    const double flops = static_cast<double>(parts.flops) * (is_step ? 3 : 1);
    std::ostringstream text;
    text << std::fixed << std::setprecision(2) << "whole=" << whole;
    double named = is_step ? parts.update : 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double time = times[i] / static_cast<double>(count);
      named += time;
      text << ',' << bench::kWorkNames[i] << '=' << time;
    }
    if (is_step) text << ",update=" << parts.update;
    text << ",between operators=" << std::max(0.0, whole - named) << ",page faults=" << faults
         << ",GFLOP=" << flops / 1e9 << ",GFLOP/s at most=" << engine::measured_peak_flops(at::kCPU, type_) / 1e9;
    return text.str();
  }

  std::vector<double> milliseconds_of_forwards(std::int64_t count) {
    if (!evaluation_) evaluation_.emplace(wrapper().model());  // one evaluation up to the next step
    return times(count, [this] {
      const c10::InferenceMode inference;
      const parallel::DistributedDataParallel::OptimContext context(wrapper(), /*completes_step=*/true);
      wrapper().forward(wrapper().prepare(batch_, /*is_training=*/false)).main().cpu();
    });
  }

 private:
  parallel::DistributedDataParallel& wrapper() { return *made_->model.wrapper; }

  template <class Function>
  std::vector<double> times(std::int64_t count, const Function& function) {
    std::vector<double> result;
    for (std::int64_t i = 0; i < count; ++i) {
      world_->barrier();
      const double begin = milliseconds();
      function();
      result.push_back(milliseconds() - begin);
    }
    return result;
  }

  batch::Batch batch_;
  const mpi::Communicator* world_;
  parallel::StepObserver* observer_ = nullptr;
  at::ScalarType type_ = at::kFloat;  // type of the factors of products
  std::optional<engine::Composition> made_;
  std::optional<engine::EvaluationMode> evaluation_;
};

void serve(const Work& work, Contender& contender, int rank) {
  std::ifstream in(work.pipes + ".in." + std::to_string(rank));
  std::ofstream out(work.pipes + ".out." + std::to_string(rank));
  const double loss = contender.step();
  for (std::int64_t i = 1; i < kWarmUpSteps; ++i) contender.step();
  contender.milliseconds_of_forwards(1);
  out << "ready " << std::setprecision(8) << loss << std::endl;
  for (std::string line; std::getline(in, line) && line != "quit";) {
    std::istringstream words(line);
    std::string what;
    std::int64_t count = 0;
    words >> what >> count;
    out << "done";
    if (what.starts_with("profile")) {
      out << ' ' << contender.profile(what == "profile_step", count) << std::endl;
      continue;
    }
    const std::vector<double> times =
        what == "step" ? contender.milliseconds_of_steps(count) : contender.milliseconds_of_forwards(count);
    for (const double time : times) out << ' ' << time;
    out << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();  // trainer::run does the same
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 5) {
    std::fputs("usage: bench_models PIPES SIDE BATCH CLASSES PIXELS|IMAGES|FIELDS KEY=VALUE...\n", stderr);
    mpi::Environment::abort(ExitCode::configuration);
  }
  const Work work{.pipes = arguments[0],
                  .side = std::stoll(arguments[1]),
                  .batch = std::stoll(arguments[2]),
                  .classes = std::stoll(arguments[3]),
                  .kind = arguments[4]};
  config::Config config(engine::all_keys(engine::builtin_registry()));
  for (const std::string& setting : std::span(arguments).subspan(5)) {
    const std::size_t position = setting.find('=');
    config.set(setting.substr(0, position), setting.substr(position + 1), "bench");
  }
  Contender contender(work, config.sections(), world);
  serve(work, contender, world.rank());
  environment.finish();
}
