// SPDX-License-Identifier: BSD-3-Clause
// Every family of models under every option that divides, repeats or rounds its computation: training agrees with plain
// training, and a run that resumes ends with the same bits. Short runs take a part of the pairs, another one on each
// number of ranks; long runs take all.
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/setup/init_from.hpp"
#include "models/script/parameter_roles.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace families_test {

constexpr std::int64_t kSavedStep = 2;
constexpr std::int64_t kSteps = 4;
constexpr std::int64_t kClasses = 3;

struct Family {
  std::string name;
  Settings settings;
  std::string recomputed;  ///< patterns of blocks; empty = it has none
  std::int64_t layers;     ///< layers with learning rates of their own
  Task task = {};          ///< task of generated samples; without a shape, the settings name the data
  bool has_batch_norm = true;
};

Task images(std::int64_t side) { return {.sample_shape = {3, side, side}, .classes = kClasses}; }

Task masks(std::int64_t side) {
  return {.sample_shape = {3, side, side}, .classes = kClasses, .kind = TaskKind::segmentation};
}

/// One channel of targets on the grid of the inputs.
Task field(const std::vector<std::int64_t>& sample) {
  Task task{.sample_shape = sample, .kind = TaskKind::regression};
  task.fields.channels = {"u"};
  return task;
}

Settings text() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return {{"data.name", "text"},
          {"data.path", std::string(source != nullptr ? source : ".") + "/README.md"},
          {"data.block", "8"}};
}

/// @param archive  of TorchScript
std::vector<Family> families(const std::string& archive) {
  return {
      {"mlp",
       {{"model.hidden", "8,8"}, {"model.norm", "batch"}, {"model.dropout", "0.1"}},
       "hidden*",
       3,
       {.sample_shape = {5}, .classes = 1, .kind = TaskKind::regression}},
      {"cnn", {{"model.channels", "4,4"}, {"model.hidden", "8"}}, "conv*", 3, images(8), false},
      {"gpt",
       with(text(),
            {{"model.depth", "2"}, {"model.num_heads", "2"}, {"model.embed_dim", "16"}, {"model.dropout", "0.1"}}),
       "block*",
       4,
       {},
       false},
      // Not less wide: 1x1 convolutions of LibTorch 2.11 with a stride and 4 input channels overwrite other memory.
      {"resnet18", {{"model.width", "8"}}, "layer*.*", 6, images(8)},
      {"resnet50", {{"model.width", "8"}, {"model.groups", "2"}}, "layer*", 6, images(32)},
      {"vit",
       {{"model.embed_dim", "12"}, {"model.depth", "3"}, {"model.patch_size", "8"}, {"model.drop_path", "0.2"}},
       "blocks.*",
       5,
       images(16),
       false},
      {"convnext",
       {{"model.depths", "1,2"}, {"model.widths", "8,16"}, {"model.drop_path", "0.2"}},
       "stages.*.blocks.*",
       5,
       images(16),
       false},
      {"unet", {{"model.width", "4"}, {"model.depth", "2"}}, "down*,up*", 6, masks(16)},
      {"unet_resnet18",
       {{"model.width", "8"}, {"model.decoder_widths", "8,8,4,4,4"}},
       "encoder.layer*.*,decoder.blocks.*",
       11,
       masks(32)},
      {"unet_classic", {{"model.width", "4"}, {"model.padding", "circular"}}, "encoder*,decoder*", 10, field({2, 32})},
      {"fno",
       {{"model.width", "4"}, {"model.depth", "2"}, {"model.modes", "4"}},
       "fno_blocks.convs.*",
       4,
       field({2, 9, 8}),
       false},
      {"mobilenet_v2", {{"model.width_mult", "0.1"}}, "features.*", 20, images(32)},
      {"mobilenet_v3_small", {{"model.width_mult", "0.25"}}, "features.*", 14, images(32)},
      {"efficientnet_b0", {{"model.width_mult", "0.1"}}, "features.*.*", 19, images(32)},
      // Its batch norm refuses SyncBN.
      {"torchscript", {{"model.file", archive}}, "", 1, images(8), false},
  };
}

/// A pure function of sample and place, in (-1, 1).
at::Tensor drawn(std::int64_t sample, const std::vector<std::int64_t>& shape, double stride) {
  const std::int64_t count = c10::multiply_integers(shape);
  return at::sin(torch::arange(count, at::kDouble).square() * stride + static_cast<double>(sample) * 1.3).view(shape);
}

/// Samples of a task. The target follows from the input.
class Samples : public data::SampleDataset {
 public:
  explicit Samples(Task task) : task_(std::move(task)) {}
  std::int64_t size() const override { return 36; }
  Task task() const override { return task_; }
  std::uint64_t digest() const override { return 1; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const at::Tensor input = drawn(draw.index, task_.sample_shape, 0.7).to(at::kFloat);
    if (!task_.fields.channels.empty()) return {{"data", input}, {"label", input.slice(0, 0, 1).square()}};
    if (task_.kind == TaskKind::regression) return {{"data", input}, {"label", input.sum().view({1})}};
    if (task_.kind == TaskKind::classification) return {{"data", input}, {"label", draw.index % kClasses}};
    return {{"data", input}, {"label", ((input[0] + 1) * 1.4).to(at::kLong)}};
  }

 private:
  Task task_;
};

/// Convolution, batch norm, dropout and a linear layer for images of 3 channels, as Python would save them.
void write_script(const std::string& path) {
  namespace script = torch::jit;
  const auto layer = [](const char* name, const std::vector<std::int64_t>& shape) {
    script::Module module(name);
    module.register_parameter("weight", drawn(0, shape, 0.3).to(at::kFloat).requires_grad_(), false);
    module.register_parameter("bias", drawn(1, {shape[0]}, 0.3).to(at::kFloat).requires_grad_(), false);
    return module;
  };
  script::Module norm = layer("Norm", {4});
  norm.register_buffer("running_mean", torch::zeros({4}));
  norm.register_buffer("running_var", torch::ones({4}));
  script::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_module("conv", layer("Conv", {4, 3, 3, 3}));
  net.register_module("norm", norm);
  net.register_module("head", layer("Head", {kClasses, 4}));
  net.define(R"(
def forward(self, x):
    x = torch.conv2d(x, self.conv.weight, self.conv.bias, [1, 1], [1, 1])
    x = torch.batch_norm(x, self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var,
                         self.training, 0.1, 1e-5, False)
    x = torch.dropout(torch.relu(x).mean([2, 3]), 0.1, self.training)
    return torch.matmul(x, self.head.weight.t()) + self.head.bias
)");
  net.save(path);
}

Registry registry_of(const Family& family) {
  Registry registry;
  registry.sources.push_back({.name = "drawn", .help = "", .keys = {}, .open = [&family](const Section&) {
                                return data::Splits{.train = std::make_shared<Samples>(family.task)};
                              }});
  return registry;
}

/// The runs that a run with an option must equal, in addition to its own resumed run.
enum class Equal {
  plain,     ///< the run without the option
  one_rank,  ///< the run of one rank
  nothing
};

struct Option {
  std::string name;
  Settings settings;
  Equal equal = Equal::plain;
  double tolerance = 1e-8;  ///< relative tolerance of losses; 0 = equal bits
  bool needs_batch_norm = false;
};

const Settings kDouble = {{"train.precision", "fp64"}};
const Settings kNoDraws = {{"model.dropout", "0"}, {"model.drop_path", "0"}, {"model.head_dropout", "0"}};

Settings stage(int number) {
  return with(kDouble, {{"strategy.name", "sharded"}, {"strategy.stage", std::to_string(number)}});
}

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"recompute", kDouble},
      {"stage 1", stage(1)},
      {"stage 2", stage(2)},
      {"stage 3", stage(3)},
      {"lanes", {{"train.lanes", "6"}}, Equal::one_rank, 0},
      // The statistics are those of the whole batch of one rank.
      {"SyncBN", with(with(kDouble, kNoDraws), {{"ddp.sync_batch_norm", "true"}}), Equal::one_rank, 1e-8, true},
      {"autocast", {{"train.precision", "bf16"}}, Equal::plain, 0.2},
      {"layer_decay", {{"optim.paramwise", "layer_decay=0.5"}}, Equal::nothing},
  };
  return all;
}

Settings settings_of(const Family& family, const Settings& option) {
  Settings settings = with({{"model.name", family.name},
                            {"train.global_batch_size", "12"},
                            {"train.max_steps", std::to_string(kSteps)},
                            {"train.clip_norm", "0.5"},
                            {"data.workers", "0"},
                            {"optim.name", "adamw"},
                            {"optim.lr", "0.002"},
                            {"run.threads", "1"}},
                           family.settings);
  if (!family.task.sample_shape.empty()) settings.emplace_back("data.name", "drawn");
  return with(settings, option);
}

/// Writes a checkpoint in the middle of a run that continues.
class SaveHook : public Hook {
 public:
  SaveHook(Trainer& trainer, std::string folder) : trainer_(&trainer), folder_(std::move(folder)) {}
  void after_step(RunView& view, const StepReport& report) override {
    if (report.progress.step != kSavedStep) return;
    const bool is_root = view.world.is_root();
    const checkpoints::Archive archive = capture(*trainer_, "", is_root);
    if (is_root) checkpoints::write(folder_, kSavedStep, archive);
    view.world.barrier();
  }

 private:
  Trainer* trainer_;
  std::string folder_;
};

std::vector<double> losses_of(const mpi::Communicator& world, const Settings& settings, const Registry& registry) {
  SmallRun run(world, settings, registry);
  run.trainer.train();
  return run.losses;
}

class FamiliesTest : public ::testing::Test {
 protected:
  FamiliesTest() : shared_(world_.broadcast(folder_.path())), families_(families(shared_ + "/net.pt")) {
    if (world_.is_root()) write_script(shared_ + "/net.pt");
    world_.barrier();
  }
  ~FamiliesTest() override { world_.barrier(); }

  void check(const Family& family, const Option& option) {
    const Registry registry = registry_of(family);
    Settings with_option = option.settings;
    if (option.name == "recompute") with_option.emplace_back("model.recompute", family.recomputed);
    const Settings settings = settings_of(family, with_option);
    const std::vector<double> losses = expect_resumes(settings, registry, family.name + option.name);
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_NE(losses.front(), losses.back());
    if (option.equal != Equal::nothing) expect_equal(losses, family, option, settings, registry);
  }

  /// @return  the losses of all steps
  std::vector<double> expect_resumes(const Settings& settings, const Registry& registry, const std::string& name) {
    const std::string folder = shared_ + "/" + name;
    checkpoints::Archive undisturbed;
    std::vector<double> losses;
    {
      SmallRun run(world_, settings, registry);
      run.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(run.trainer, folder));
      run.trainer.train();
      losses = run.losses;
      const checkpoints::Archive end = capture(run.trainer, "", world_.is_root());
      if (world_.is_root()) checkpoints::write(folder, kSteps, end);
      world_.barrier();
    }
    SmallRun run(world_, settings, registry);
    restore(run.trainer, checkpoints::read(checkpoints::checkpoint_of(folder, kSavedStep)));
    run.trainer.train();
    EXPECT_EQ(run.losses, std::vector<double>(losses.begin() + kSavedStep, losses.end()));
    const checkpoints::Archive reached = capture(run.trainer, "", world_.is_root());
    if (world_.is_root()) {
      EXPECT_EQ(testing::differences(reached, checkpoints::read(checkpoints::checkpoint_of(folder, kSteps))), "");
    }
    return losses;
  }

  void expect_equal(const std::vector<double>& losses, const Family& family, const Option& option,
                    const Settings& settings, const Registry& registry) {
    std::vector<double> expected;
    if (option.equal == Equal::one_rank) {
      const mpi::Communicator alone = world_.split(world_.rank());
      expected = losses_of(alone, settings, registry);
    } else {
      const bool is_double = option.settings.size() > 0 && option.settings.front() == kDouble.front();
      expected = losses_of(world_, settings_of(family, is_double ? kDouble : Settings{}), registry);
    }
    // Rounding to 16 bits in one step is amplified by the next ones.
    const std::size_t steps = option.name == "autocast" ? 1 : losses.size();
    for (std::size_t i = 0; i < steps; ++i) {
      EXPECT_LE(std::abs(losses[i] - expected[i]), option.tolerance * std::abs(expected[i])) << "step " << i + 1;
    }
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
  std::vector<Family> families_;
};

TEST_F(FamiliesTest, TrainAlikeAndResumeUnderEveryOption) {
  constexpr std::size_t kPart = 4;  // short runs test one of this many pairs
  for (std::size_t f = 0; f < families_.size(); ++f) {
    for (std::size_t o = 0; o < options().size(); ++o) {
      const Option& option = options()[o];
      const bool is_chosen = (f + o + static_cast<std::size_t>(world_.size())) % kPart == 0;
      if (!is_chosen && !testing::is_long_run()) continue;
      const Family& family = families_[f];
      if (option.needs_batch_norm && !family.has_batch_norm) continue;
      if (option.name == "recompute" && family.recomputed.empty()) continue;
      SCOPED_TRACE(family.name + ", " + option.name);
      check(family, option);
    }
  }
}

// Each family has as many learning rates as layers, and no parameter is left out.
TEST_F(FamiliesTest, LayersHaveLearningRatesOfTheirOwn) {
  for (const Family& family : families_) {
    SCOPED_TRACE(family.name);
    const Registry registry = registry_of(family);
    const Settings settings = settings_of(family, {{"optim.paramwise", "layer_decay=0.5"}});
    SmallRun run(world_, settings, registry);
    std::set<double> rates;
    for (const optim::ParamGroup& group : run.updates.first().optimizer().groups()) rates.insert(group.base_lr);
    std::set<double> expected;
    for (std::int64_t i = 0; i < family.layers; ++i) expected.insert(0.002 * std::pow(0.5, i));
    EXPECT_EQ(rates, expected);
    const auto layers = models::layers_of(run.model.wrapper->model());
    EXPECT_EQ(layers.size(), static_cast<std::size_t>(family.layers));
    for (const auto& item : run.model.wrapper->model().named_parameters()) {
      const auto has = [&item](const std::vector<std::string>& beginnings) {
        return std::any_of(beginnings.begin(), beginnings.end(),
                           [&item](const std::string& beginning) { return item.key().starts_with(beginning); });
      };
      EXPECT_EQ(std::count_if(layers.begin(), layers.end(), has), 1) << item.key();
    }
  }
}

/// Writes the parameters and the running statistics of a model. Those of an FNO are complex, as in its library.
void write_weights(const models::Model& model, const std::string& path) {
  std::vector<at::Tensor> values;  // which the arrays refer to
  std::vector<checkpoints::NamedArray> arrays;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      if (!item.value().is_floating_point()) continue;
      values.push_back(item.value().detach().contiguous());
      arrays.push_back({item.key(),
                        {.dtype = DType::float32,
                         .shape = values.back().sizes().vec(),
                         .bytes = parallel::bytes_of(values.back()),
                         .owner = nullptr}});
      if (!item.key().ends_with(".weight.tensor")) continue;
      arrays.back().array.dtype = DType::complex64;
      arrays.back().array.shape.pop_back();
    }
  };
  add(model.named_parameters());
  add(model.named_buffers());
  checkpoints::write_foreign(path, *checkpoints::export_kind_of(path), arrays, {});
}

// The encoder of a U-Net starts from the weights of a ResNet, of which only the last layer is left out.
TEST_F(FamiliesTest, AnEncoderTakesTheWeightsOfAResNet) {
  const Family resnet = {"resnet18", {{"model.width", "8"}, {"model.stem", "imagenet"}}, "", 6, images(32)};
  const Family& unet = *std::find_if(families_.begin(), families_.end(),
                                     [](const Family& family) { return family.name == "unet_resnet18"; });
  const Registry of_resnet = registry_of(resnet);
  const Registry of_unet = registry_of(unet);
  SmallRun from(world_, settings_of(resnet, {{"run.seed", "2"}}), of_resnet);
  const std::string file = shared_ + "/resnet18.safetensors";
  const models::Model& model = from.model.wrapper->model();
  if (world_.is_root()) write_weights(model, file);
  world_.barrier();
  SmallRun target(world_, settings_of(unet, {{"init.from", file}, {"init.partial", "true"}}), of_unet);
  const auto parameters = target.model.wrapper->model().named_parameters();
  const at::Tensor decoder = parameters["decoder.blocks.0.conv1.0.weight"].clone();
  init_from(target.resources.world, *target.model.wrapper, target.sections);
  std::size_t taken = 0;
  for (const auto& item : model.named_parameters()) {
    if (item.key().starts_with("fc.")) continue;
    EXPECT_TRUE(at::equal(parameters["encoder." + item.key()], item.value())) << item.key();
    ++taken;
  }
  EXPECT_EQ(taken, 60U);
  EXPECT_TRUE(at::equal(parameters["decoder.blocks.0.conv1.0.weight"], decoder));
}

// Files of the library have complex weights, which are pairs in the model.
TEST_F(FamiliesTest, AnFnoTakesComplexWeights) {
  const Family& fno =
      *std::find_if(families_.begin(), families_.end(), [](const Family& family) { return family.name == "fno"; });
  const Registry registry = registry_of(fno);
  const std::string file = shared_ + "/fno.safetensors";
  SmallRun from(world_, settings_of(fno, {{"run.seed", "2"}}), registry);
  if (world_.is_root()) write_weights(from.model.wrapper->model(), file);
  world_.barrier();
  SmallRun target(world_, settings_of(fno, {{"init.from", file}}), registry);
  const auto expected = from.model.wrapper->model().named_parameters();
  const auto parameters = target.model.wrapper->model().named_parameters();
  const std::string complex = "fno_blocks.convs.1.weight.tensor";
  EXPECT_FALSE(at::equal(parameters[complex], expected[complex]));
  init_from(target.resources.world, *target.model.wrapper, target.sections);
  for (const auto& item : expected) EXPECT_TRUE(at::equal(parameters[item.key()], item.value())) << item.key();
}

}  // namespace families_test
}  // namespace lockstep::engine
