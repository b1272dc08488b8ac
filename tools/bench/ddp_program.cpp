// SPDX-License-Identifier: BSD-3-Clause
// A user's program whose steps are timed: the trainer with a data source and models that do what the peers of
// tools/bench/ddp_bench do, on the same numbers. It prints one JSON line.
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <cmath>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>

#include "core/system/resources.hpp"
#include "core/text/table.hpp"
#include "mlp6.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;  // this is a program of its own

constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kStepsOfEpoch = 1'000'000;

/// Random samples, over and over. Rank r's share of every global batch is what the peers' rank r draws, so shuffling
/// must be off.
class Noise : public data::Dataset {
 public:
  /// @param steps  global batches in an epoch
  Noise(std::vector<std::int64_t> shape, std::int64_t share, std::int64_t ranks, std::int64_t steps)
      : shape_(std::move(shape)), steps_(steps) {
    std::vector<std::int64_t> sizes = shape_;
    sizes.insert(sizes.begin(), share);
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> targets;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const at::Generator generator =
          at::detail::createCPUGenerator(bench::kPeerSeed + static_cast<std::uint64_t>(rank));
      inputs.push_back(at::randn(sizes, generator));
      targets.push_back(at::randint(kClasses, {share}, generator, at::kLong));
    }
    input_ = at::cat(inputs);
    target_ = at::cat(targets);
  }

  std::int64_t size() const override { return input_.size(0) * steps_; }
  Task task() const override { return {.sample_shape = shape_, .classes = kClasses}; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    std::vector<std::int64_t> indices;
    for (const batch::Draw& draw : draws) indices.push_back(draw.index);
    const at::Tensor rows = at::tensor(at::ArrayRef<std::int64_t>(indices), at::kLong).remainder(input_.size(0));
    return {input_.index_select(0, rows), target_.index_select(0, rows)};
  }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(input_.numel()); }

 private:
  std::vector<std::int64_t> shape_;
  std::int64_t steps_;
  at::Tensor input_;
  at::Tensor target_;
};

data::Source noise_source() {
  const auto count = [](const char* name, const char* help) { return keys::integer(name, "1", help, 1, 1 << 20); };
  return {.name = "noise",
          .help = "normally distributed samples with random classes",
          .keys = {keys::integers("data.noise_shape", std::to_string(bench::kMlpWidth), "noise: shape of a sample", 1,
                                  1 << 20),
                   count("data.noise_share", "noise: samples per rank and step"),
                   count("data.noise_ranks", "noise: ranks")},
          .open = [](const Section& data) {
            const auto samples = [&data](std::int64_t steps) {
              return std::make_shared<Noise>(data.integers("noise_shape"), data.integer("noise_share"),
                                             data.integer("noise_ranks"), steps);
            };
            // The trainer evaluates after an epoch: none ends among the timed steps.
            return data::Splits{.train = samples(kStepsOfEpoch), .val = samples(1)};
          }};
}

/// How many steps are timed. The same number follows untimed, since the peers do so before they tell their loss.
struct Plan {
  std::int64_t warmup_steps;
  std::int64_t timed_steps;
};

/// Times a step as the peers do: it begins after a barrier and takes as long as on the slowest rank. It ends where the
/// trainer begins its next forward, so everything that the trainer does between two steps counts, too.
class StepClock {
 public:
  explicit StepClock(Plan plan) : plan_(plan) {}

  void on_forward() {
    const std::int64_t done = steps_++;
    if (done > plan_.warmup_steps && done <= plan_.warmup_steps + plan_.timed_steps) {
      times_.push_back(bench::milliseconds_since(begun_));
    }
    if (done >= plan_.warmup_steps && done < plan_.warmup_steps + plan_.timed_steps) {
      if (!world_) world_ = mpi::Communicator::world();
      world_->barrier();
      begun_ = bench::Clock::now();
    }
    if (done == plan_.warmup_steps + 2 * plan_.timed_steps) tell();
  }

  void on_loss(const at::Tensor& loss) { loss_ = loss.detach(); }

 private:
  /// Collective; rank 0 prints. The loss is rank 0's own, of the last step that is complete.
  void tell() {
    world_->all_reduce(std::span(times_), mpi::Op::max);
    std::vector<double> peaks(static_cast<std::size_t>(world_->size()));
    const double mine = peak_memory_mb();
    world_->all_gather(std::span(&mine, 1), std::span(peaks));
    std::ostringstream text;
    text << R"({"name": "ddp_program", "world": )" << world_->size() << R"(, "threads": )" << at::get_num_threads()
         << R"(, "iters": )" << times_.size() << R"(, "median_ms": )" << bench::median(times_) << R"(, "min_ms": )"
         << *std::min_element(times_.begin(), times_.end()) << R"(, "loss": )" << std::setprecision(17)
         << loss_.item<double>() << R"(, "peak_rss_mb": [)" << std::setprecision(6);
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) text << (rank == 0 ? "" : ", ") << peaks[rank];
    text << "]}";
    if (world_->is_root()) log::plain(text.str());
  }

  Plan plan_;
  std::int64_t steps_ = 0;  // begun so far
  std::vector<double> times_;
  bench::Clock::time_point begun_;
  at::Tensor loss_;
  std::optional<mpi::Communicator> world_;
};

/// Another model, with the peers' initial values and a clock.
class Timed : public models::Model {
 public:
  Timed(std::shared_ptr<models::Model> inner, Plan plan)
      : inner_(register_module("inner", std::move(inner))), clock_(std::make_unique<StepClock>(plan)) {}

  at::Tensor forward(const at::Tensor& input) override {
    if (is_training()) clock_->on_forward();
    return models::run(*inner_, input);
  }

  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    models::LossMap losses = inner_->losses(output, target);
    if (is_training()) clock_->on_loss(models::total_loss(losses));
    return losses;
  }

 private:
  std::shared_ptr<models::Model> inner_;
  std::unique_ptr<StepClock> clock_;
};

/// Gives linear and convolutional layers PyTorch's initial values, drawn in the order in which the peers make them.
void initialize_as_peers(models::Model& model) {
  const torch::NoGradGuard no_grad;
  at::manual_seed(bench::kPeerSeed);
  double bound = 0;  // bound of the layer at hand; 0: its values are constants
  for (auto& item : model.named_parameters()) {
    at::Tensor& parameter = item.value();
    if (parameter.dim() > 1) {
      bound = 1 / std::sqrt(static_cast<double>(parameter.numel() / parameter.size(0)));
    } else if (!item.key().ends_with("bias")) {
      bound = 0;
    }
    if (bound > 0) parameter.copy_(torch::empty(parameter.sizes()).uniform_(-bound, bound));
  }
}

std::shared_ptr<models::Model> make_timed(const Section& model, const Task& task) {
  std::vector<models::ModelRow> rows = models::builtin_models();
  rows.push_back(bench::mlp6_row());
  const models::ModelRow& row = find_row(rows, model.text("inner"), model.cite("inner"));
  std::shared_ptr<models::Model> inner = row.make(model, task);
  initialize_as_peers(*inner);
  return std::make_shared<Timed>(std::move(inner), Plan{.warmup_steps = model.integer("warmup_steps"),
                                                        .timed_steps = model.integer("timed_steps")});
}

models::ModelRow timed_row() {
  const auto steps = [](const char* name, const char* value, const char* help) {
    return keys::integer(name, value, help, 1, 1e6);
  };
  return {.name = "timed",
          .help = "another model whose steps are timed",
          .keys = {keys::text("model.inner", "mlp6", "the model (timed)"),
                   steps("model.warmup_steps", "10", "steps before those that are timed (timed)"),
                   steps("model.timed_steps", "50", "steps that are timed (timed)")},
          .make = make_timed};
}

}  // namespace

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.sources.push_back(noise_source());
  registry.models.push_back(timed_row());
  trainer::run(argc, argv, registry);
}
