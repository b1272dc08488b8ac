// SPDX-License-Identifier: BSD-3-Clause
// A user's program that trains a generator and a discriminator of digits with the trainer: two parts of the parameters
// with optimizers of their own, a step that updates them in turn, a hook that shows generated images, and a meter of
// the discriminator.
//
// With KILL_AT=N in the environment, rank 0 is killed after step N.
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <csignal>
#include <cstdlib>
#include <memory>

using namespace lockstep;

constexpr std::int64_t kPixels = 28 * 28;
constexpr std::int64_t kNoise = 16;

/// Two layers: features -> hidden -> result.
class Network : public models::Block {
 public:
  Network(std::int64_t features, std::int64_t hidden, std::int64_t result)
      : first_(register_module("first", std::make_shared<models::Linear>(features, hidden))),
        second_(register_module("second", std::make_shared<models::Linear>(hidden, result))),
        seen_(register_buffer("seen", torch::zeros({1}, at::kLong))) {}
  at::Tensor forward(const at::Tensor& input) override {
    if (is_training()) seen_ += 1;
    return models::run(*second_, at::leaky_relu(models::run(*first_, input), 0.2));
  }

 private:
  std::shared_ptr<models::Linear> first_;
  std::shared_ptr<models::Linear> second_;
  at::Tensor seen_;  // number of forwards in training
};

class Gan : public models::Model {
 public:
  Gan()
      : generator_(register_module("generator", std::make_shared<Network>(kNoise, 64, kPixels))),
        discriminator_(register_module("discriminator", std::make_shared<Network>(kPixels, 64, 1))) {}

  /// [N, 784] images in [-1, 1] from noise [N, 16].
  at::Tensor generate(const at::Tensor& noise) { return at::tanh(models::run(*generator_, noise)); }
  /// The scores [N, 1] of images; positive = real.
  at::Tensor forward(const at::Tensor& images) override { return models::run(*discriminator_, images.flatten(1)); }
  models::LossMap losses(const at::Tensor& scores, const at::Tensor&) const override {
    return {{"loss", loss_of(scores, /*should_be_real=*/true)}};
  }
  static at::Tensor loss_of(const at::Tensor& scores, bool should_be_real) {
    const at::Tensor wanted = at::full(scores.sizes(), should_be_real ? 1.0 : 0.0, scores.options().dtype(at::kFloat));
    return at::binary_cross_entropy_with_logits(scores.to(at::kFloat), wanted, {}, {}, at::Reduction::Mean);
  }

 private:
  std::shared_ptr<Network> generator_;
  std::shared_ptr<Network> discriminator_;
};

/// First the discriminator learns to tell real and generated images apart, then the generator to deceive it.
parallel::StepResult train_in_turn(engine::StepContext& step) {
  auto& gan = dynamic_cast<Gan&>(step.wrapper.model());
  const auto frame = step.wrapper.micro_batch(step.optimizer, step.reads_gradients);
  const batch::Batch real = step.wrapper.prepare(step.batch, /*is_training=*/true);
  const at::Tensor noise = at::randn({real.input().size(0), kNoise}, real.input().options());
  parallel::StepResult result;
  // The parameters of the other part require no gradients in the context of a part.
  const auto update = [&](const std::string& part, const auto& loss_of) {
    optim::OptimWrapper& optimizer = step.parts.at(part);
    at::Tensor loss;
    {
      const auto context = step.wrapper.optim_context(optimizer);
      loss = step.wrapper.run(loss_of);
    }
    result.update = optimizer.update_params(loss, step.weights.of_total());
    return loss.item<double>();
  };
  const double judged = update("discriminator", [&] {
    return Gan::loss_of(gan.forward(real.input()), true) + Gan::loss_of(gan.forward(gan.generate(noise)), false);
  });
  const double deceived = update("generator", [&] { return Gan::loss_of(gan.forward(gan.generate(noise)), true); });
  result.loss = judged + deceived;
  result.values = {{"loss_discriminator", judged}, {"loss_generator", deceived}};
  return result;
}

/// Shows an image that the generator makes from the same noise each time.
class GeneratedImages : public engine::Hook {
 public:
  void after_step(engine::RunView& run, const engine::StepReport& report) override {
    if (report.progress.step % 8 == 0 && run.world.is_root() && run.events.keeps_pictures()) show(run);
    const char* const last = std::getenv("KILL_AT");
    if (last != nullptr && report.progress.step == std::atoll(last) && run.world.is_root()) std::raise(SIGKILL);
  }

 private:
  static void show(engine::RunView& run) {
    const torch::NoGradGuard no_grad;
    auto& gan = dynamic_cast<Gan&>(run.wrapper.model());
    const at::Tensor noise = at::linspace(-1, 1, kNoise).unsqueeze(0);
    const at::Tensor gray = gan.generate(noise).add(1).mul(127.5).to(at::kByte).flatten();
    const at::Tensor pixels = gray.unsqueeze(1).expand({kPixels, 3}).contiguous();
    const auto* const begin = pixels.const_data_ptr<std::uint8_t>();
    run.events.put(Picture{.name = "generated",
                           .height = 28,
                           .width = 28,
                           .pixels = {begin, begin + pixels.numel()},
                           .caption = "generated"});
  }
};

/// The fraction of the digits that the discriminator predicts as real.
metrics::Meter real_meter(const Section&, std::int64_t) {
  return {.results = {{.name = "predicted_as_real"}},
          .words = 2,
          .add =
              [](const metrics::Samples& samples, std::span<std::int64_t> words) {
                for (const double score : samples.outputs) words[0] += score > 0 ? 1 : 0;
                words[1] += std::ssize(samples.outputs);
              },
          .read =
              [](std::span<const std::int64_t> words) {
                return metrics::Reading{.numbers = {static_cast<double>(words[0]) / static_cast<double>(words[1])}};
              }};
}

std::shared_ptr<models::Model> make_gan(const Section&, const Task&) { return std::make_shared<Gan>(); }

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.models.push_back(
      {.name = "gan", .help = "a generator and a discriminator of digits", .keys = {}, .make = make_gan});
  registry.steps.push_back({.name = "gan",
                            .help = "updates the discriminator, then the generator",
                            .keys = {},
                            .make = [](const Section&) { return engine::ManualStep(train_in_turn); },
                            .parts = {"discriminator", "generator"}});
  registry.hooks.push_back(
      {.name = "generated", .help = "shows generated images", .keys = {}, .make = [](const auto&, const auto&) {
         return std::make_unique<GeneratedImages>();
       }});
  registry.meters.push_back({.name = "predicted_as_real",
                             .help = "fraction of the digits that the discriminator predicts as real",
                             .needs = "one score per sample",
                             .keys = {},
                             .make = real_meter});
  trainer::run(argc, argv, registry);
}
