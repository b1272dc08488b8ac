// SPDX-License-Identifier: BSD-3-Clause
// With one rank the wrapper should cost nothing: its step beside a plain LibTorch loop with the same model and SGD, in
// alternating blocks of steps. Prints one JSON line with the ratio of the two and its 95 % confidence interval.
//
// usage: bench_single_rank [STEPS_OF_A_BLOCK]
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "config/config.hpp"
#include "engine/session.hpp"
#include "engine/setup/composition.hpp"
#include "mlp6.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;

constexpr std::int64_t kBatch = 8;
constexpr double kLr = 0.01;
constexpr int kPairs = 40;
constexpr int kWarmupPairs = 2;
constexpr double kStudent = 2.023;  // 97.5 % point of Student's t for kPairs - 1 degrees of freedom

/// The wrapper, as the trainer sets it up.
class Wrapped {
 public:
  explicit Wrapped(const mpi::Communicator& world) {
    registry_.models.push_back(bench::mlp6_row());
    config::Config config(engine::all_keys(registry_));
    for (const auto& [key, value] : {std::pair{"model.name", "mlp6"}, {"optim.name", "sgd"}, {"optim.lr", "0.01"}}) {
      config.set(key, value, "bench");
    }
    const Task task{.sample_shape = {bench::kMlpWidth}, .classes = bench::kMlpWidth};
    const Sections& sections = config.sections();
    made_.emplace(engine::make_resources(sections, world), sections, registry_, task);
  }

  double step(const batch::Batch& batch) {
    return made_->model.wrapper->train_step(batch, made_->updates.first(), 1.0).loss;
  }
  models::Model& model() { return made_->model.wrapper->model(); }

 private:
  engine::Registry registry_;
  std::optional<engine::Composition> made_;
};

/// The code that one would write without the wrapper.
class Plain {
 public:
  explicit Plain(models::Model& like) {
    for (const at::Tensor& parameter : like.parameters()) {
      parameters_.push_back(parameter.detach().clone().requires_grad_());
    }
  }

  double step(const batch::Batch& batch) {
    at::Tensor x = batch.input();
    for (std::size_t i = 0; i < parameters_.size(); i += 2) {
      x = at::relu(at::linear(x, parameters_[i], parameters_[i + 1]));
    }
    const at::Tensor loss = x.square().mean();
    const auto value = loss.item<double>();
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters_) {
      parameter.add_(parameter.grad(), -kLr);
      parameter.mutable_grad().reset();
    }
    return value;
  }

 private:
  std::vector<at::Tensor> parameters_;  // weight, bias, weight, ...
};

struct BlockResult {
  double milliseconds;  // milliseconds of a step, the median
  double loss;          // loss of the last step
};

template <class Loop>
BlockResult run_block(Loop& loop, const batch::Batch& batch, int steps) {
  BlockResult result{};
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const bench::Clock::time_point begin = bench::Clock::now();
    result.loss = loop.step(batch);
    times.push_back(bench::milliseconds_since(begin));
  }
  result.milliseconds = bench::median(std::move(times));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  const int block_steps = argc > 1 ? std::atoi(argv[1]) : 8;
  Wrapped wrapped(world);
  Plain plain(wrapped.model());
  at::manual_seed(bench::kPeerSeed);
  const batch::Batch batch{at::randn({kBatch, bench::kMlpWidth}), at::zeros({kBatch}, at::kLong)};

  std::vector<double> wrapped_ms;
  std::vector<double> plain_ms;
  double sum = 0;
  double squares = 0;
  double difference = 0;
  for (int pair = -kWarmupPairs; pair < kPairs; ++pair) {
    BlockResult ours{};
    BlockResult theirs{};
    if (pair % 2 == 0) ours = run_block(wrapped, batch, block_steps);
    theirs = run_block(plain, batch, block_steps);
    if (pair % 2 != 0) ours = run_block(wrapped, batch, block_steps);
    difference = std::abs(ours.loss / theirs.loss - 1);
    if (pair < 0) continue;
    wrapped_ms.push_back(ours.milliseconds);
    plain_ms.push_back(theirs.milliseconds);
    const double log_ratio = std::log(ours.milliseconds / theirs.milliseconds);
    sum += log_ratio;
    squares += log_ratio * log_ratio;
  }
  const double mean = sum / kPairs;
  const double deviation = std::sqrt((squares - kPairs * mean * mean) / (kPairs - 1));
  const double half_width = kStudent * deviation / std::sqrt(double{kPairs});
  std::printf(R"({"name": "single_rank", "pairs": %d, "median_ms": %.4f, "plain_ms": %.4f, "ratio": %.4f, )"
              R"("low": %.4f, "high": %.4f, "loss_difference": %.3g})"
              "\n",
              kPairs, bench::median(wrapped_ms), bench::median(plain_ms), std::exp(mean), std::exp(mean - half_width),
              std::exp(mean + half_width), difference);
  environment.finish();
}
