// SPDX-License-Identifier: BSD-3-Clause
// A training with a step of its own: a generator and a discriminator of digits, each with its optimizer, that only
// the wrapper, the optimizers and checkpoints are taken from.
//
// usage: gan_program FOLDER STEPS [fp16]    continues from the newest checkpoint in FOLDER, and leaves one there
//
// Prints a line for each step, and at the end what the discriminator makes of digits of either kind.
#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper_dict.hpp>
#include <lockstep/parallel/separate_distributed_data_parallel.hpp>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "checkpoints/store/store.hpp"
#include "engine/state/separate_state.hpp"
#include "models/generators.hpp"

namespace {

namespace batch = lockstep::batch;
namespace checkpoints = lockstep::checkpoints;
namespace data = lockstep::data;
namespace engine = lockstep::engine;
namespace models = lockstep::models;
namespace mpi = lockstep::mpi;
namespace optim = lockstep::optim;
namespace parallel = lockstep::parallel;

constexpr std::int64_t kPixels = 28 * 28;
constexpr std::int64_t kNoise = 16;
constexpr std::int64_t kGlobalBatch = 32;
constexpr std::uint64_t kSeed = 7;

/// Two layers: features -> hidden -> result.
class Network : public models::Block {
 public:
  Network(std::int64_t features, std::int64_t hidden, std::int64_t result)
      : first_(register_module("first", std::make_shared<models::Linear>(features, hidden))),
        second_(register_module("second", std::make_shared<models::Linear>(hidden, result))) {
    seen = register_buffer("seen", torch::zeros({1}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& input) override {
    if (is_training()) seen += 1;
    return models::run(*second_, at::leaky_relu(models::run(*first_, input), 0.2));
  }

  at::Tensor seen;  ///< forwards in training

 private:
  std::shared_ptr<models::Linear> first_;
  std::shared_ptr<models::Linear> second_;
};

class Gan : public models::Model {
 public:
  Gan()
      : generator_(register_module("generator", std::make_shared<Network>(kNoise, 64, kPixels))),
        discriminator_(register_module("discriminator", std::make_shared<Network>(kPixels, 64, 1))) {
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& noise) override { return at::tanh(models::run(*generator_, noise)); }
  at::Tensor judge(const at::Tensor& images) { return models::run(*discriminator_, images); }

 private:
  std::shared_ptr<Network> generator_;
  std::shared_ptr<Network> discriminator_;
};

at::Tensor loss_of(const at::Tensor& judged, bool should_be_real) {
  const at::Tensor wanted = at::full(judged.sizes(), should_be_real ? 1.0 : 0.0);
  return at::binary_cross_entropy_with_logits(judged.to(at::kFloat), wanted);
}

/// First the discriminator, then the generator; the one that rests must not keep what the other's loss gave it.
models::LossMap step_of(parallel::SeparateDistributedDataParallel& wrapper, Gan& gan, const batch::Batch& real,
                        optim::OptimWrapperDict& optimizers) {
  const at::Tensor noise = torch::randn({real.input().size(0), kNoise});
  const at::Tensor judged = loss_of(gan.judge(real.input().flatten(1)), true) +
                            loss_of(gan.judge(gan.forward(noise).detach().to(at::kFloat)), false);
  optimizers.at("discriminator").update_params(judged);
  const at::Tensor deceived = loss_of(gan.judge(gan.forward(noise)), true);
  optimizers.at("generator").update_params(deceived);
  wrapper.child("discriminator").parameters().drop_gradients();
  return {{"loss_discriminator", judged.detach()}, {"loss_generator", deceived.detach()}};
}

optim::OptimWrapper make_optimizer(optim::FlatParameters& trained, const lockstep::Section& optim, bool is_fp16) {
  const optim::Rule& rule = optim::find_rule(optim.text("name"));
  std::vector<optim::ParameterInfo> parameters;
  for (const optim::Block& block : trained.blocks()) {
    for (const optim::Segment& segment : block.segments) {
      parameters.push_back({segment.name, static_cast<std::int64_t>(segment.shape.size())});
    }
  }
  optim::OptimWrapper::WrapperOptions options;
  if (is_fp16) options.scaler = optim::GradScalerOptions{.init_scale = 1e8, .growth_interval = 5};
  return {optim::Optimizer(rule, optim::build_groups(optim, rule, parameters), trained), trained, options};
}

void run(const mpi::Communicator& world, const std::string& folder, std::int64_t steps, bool is_fp16) {
  at::set_num_threads(1);
  const auto collectives = mpi::make_collectives(world, {});
  lockstep::Section data_keys = lockstep::Section::with_defaults("data", data::data_keys());
  data_keys.set("train_size", "640", "this program");
  data_keys.set("val_size", "64", "this program");
  const data::Splits splits = data::open(data_keys);
  const data::Sampler sampler(splits.train->size(), kGlobalBatch, kSeed);
  const data::Share share = data::share_of(kGlobalBatch, world.rank(), world.size());

  models::seed_generators(kSeed, lockstep::random::Stream::initialization, 0);
  const auto gan = std::make_shared<Gan>();
  parallel::DdpOptions ddp;
  ddp.shares_parameters = world.size() > 1;
  if (is_fp16) ddp.autocast = at::kHalf;
  parallel::SeparateDistributedDataParallel wrapper(gan, world, *collectives, ddp);
  optim::OptimWrapperDict optimizers;
  for (const std::string& name : wrapper.names()) {
    lockstep::Section optim = lockstep::Section::with_defaults("optim", optim::optim_keys());
    optim.set("name", name == "generator" ? "adam" : "rmsprop", "this program");
    optimizers.add(name, make_optimizer(wrapper.child(name).parameters(), optim, is_fp16));
  }

  std::int64_t step = 0;
  if (const auto newest = checkpoints::latest(folder)) {
    checkpoints::Archive archive;
    world.all_or_throw([&] { archive = checkpoints::read(*newest); });
    step = engine::restore(wrapper, optimizers, archive);
  }
  for (; step < steps; ++step) {
    const auto draws = sampler.draws(step / sampler.steps_per_epoch(), step % sampler.steps_per_epoch(), share);
    models::seed_generators(kSeed, lockstep::random::Stream::forward, static_cast<std::uint64_t>(step),
                            static_cast<std::uint64_t>(world.rank()));
    const models::LossMap losses =
        wrapper.train_step(splits.train->get(draws), optimizers,
                           [&](const batch::Batch& batch, auto& all) { return step_of(wrapper, *gan, batch, all); });
    std::vector<double> values;
    for (const auto& [name, loss] : losses) values.push_back(loss.parts.front().item<double>());
    collectives->all_reduce(values.data(), values.size(), lockstep::DType::float64, mpi::ReduceOp::average);
    if (!world.is_root()) continue;
    const auto* const scaler = optimizers.at("generator").scaler();
    std::printf("step %d losses %.17g %.17g scale %g\n", static_cast<int>(step) + 1, values[0], values[1],
                scaler != nullptr ? scaler->scale() : 1.0);
  }
  const checkpoints::Archive archive = engine::capture(wrapper, optimizers, step, world.is_root());
  if (world.is_root()) checkpoints::write(folder, step, archive);
  world.barrier();

  wrapper.model().eval();
  const torch::NoGradGuard no_grad;
  const batch::Batch all = splits.val->get(batch::draws_in_order(0, splits.val->size()));
  const at::Tensor real = gan->judge(all.input().flatten(1));
  if (!world.is_root()) return;
  std::printf("real digits predicted as real: %.3f\n", (real > 0).to(at::kDouble).mean().item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  try {
    if (argc < 3) throw lockstep::ConfigError("usage: gan_program FOLDER STEPS [fp16]");
    run(world, argv[1], std::atoll(argv[2]), argc > 3 && std::string(argv[3]) == "fp16");
    environment.finish();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;  // which ends the other ranks, too
  }
}
