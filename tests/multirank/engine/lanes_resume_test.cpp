// SPDX-License-Identifier: BSD-3-Clause
// With lanes, a checkpoint of one number of ranks continues with any other, and nobody can tell from the bits.
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace lanes_resume_test {

/// Has parameters, running statistics and random draws: all that a checkpoint carries or that a rank could color.
class Normed : public models::Model {
 public:
  Normed(const Section& model, const Task& task) {
    conv_ = register_module("conv", std::make_shared<models::Conv2d>(task.sample_shape[0], 4, 3));
    norm_ = register_module("norm", std::make_shared<models::BatchNorm>(4));
    dropout_ = register_module("dropout", std::make_shared<models::Dropout>(model.real("dropout")));
    head_ = register_module("head", std::make_shared<models::Linear>(
                                        task.sample_shape[1] / 4 * (task.sample_shape[2] / 4) * 4, task.classes));
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor features = at::relu(models::run(*norm_, models::run(*conv_, input)));
    const at::Tensor pooled = at::max_pool2d(features, 4).flatten(1);
    return models::run(*head_, models::run(*dropout_, pooled));
  }

 private:
  std::shared_ptr<models::Conv2d> conv_;
  std::shared_ptr<models::BatchNorm> norm_;
  std::shared_ptr<models::Dropout> dropout_;
  std::shared_ptr<models::Linear> head_;
};

std::shared_ptr<models::Model> make_normed(const Section& model, const Task& task) {
  return std::make_shared<Normed>(model, task);
}

const Registry& registry_with_normed() {
  static const Registry registry = [] {
    Registry all;
    all.models.push_back({"normed", "convolution, batch norm, dropout and a linear layer", {}, make_normed});
    return all;
  }();
  return registry;
}

constexpr std::int64_t kSavedStep = 5;  // inside the second epoch of 4 steps
constexpr std::int64_t kSteps = 12;

/// Writes a checkpoint in the middle of a run that continues.
class SaveHook : public Hook {
 public:
  SaveHook(Trainer& trainer, std::string folder) : trainer_(&trainer), folder_(std::move(folder)) {}
  void after_step(RunView& view, const StepReport& report) override {
    if (report.progress.step != kSavedStep) return;
    const checkpoints::Archive archive = capture(*trainer_, "", view.world.is_root());
    if (view.world.is_root()) checkpoints::write(folder_, kSavedStep, archive);
  }

 private:
  Trainer* trainer_;
  std::string folder_;
};

struct Case {
  const char* name;
  Settings settings;
  Settings combined = {};  // combined: what several ranks have beside
};

class LanesResumeTest : public ::testing::TestWithParam<Case> {
 protected:
  LanesResumeTest() : shared_(world_.broadcast(folder_.path())) {}
  ~LanesResumeTest() override { world_.barrier(); }

  Settings settings_on(const mpi::Communicator& ranks) const {
    const Settings all = with({{"model.name", "normed"},
                               {"model.dropout", "0.25"},
                               {"train.global_batch_size", "24"},
                               {"train.lanes", "8"},
                               {"train.max_steps", std::to_string(kSteps)},
                               {"train.clip_norm", "0.5"},
                               {"sched.rule", "cosine"},
                               {"data.workers", "0"},
                               {"data.train_size", "100"},
                               {"data.val_size", "10"}},
                              GetParam().settings);
    return ranks.size() > 1 ? with(all, GetParam().combined) : all;
  }

  std::string folder_of(int size) const { return shared_ + "/" + std::to_string(size); }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

TEST_P(LanesResumeTest, OtherNumbersOfRanksContinueBitForBit) {
  if (world_.size() != 3) GTEST_SKIP() << "3 ranks run all world sizes";
  checkpoints::Archive undisturbed;
  std::vector<double> losses;
  std::vector<double> norms;
  for (int size = 1; size <= 3; ++size) {
    const mpi::Communicator ranks = world_.split(world_.rank() < size ? 0 : 1);
    if (world_.rank() < size) {
      SmallRun run(ranks, settings_on(ranks), registry_with_normed());
      run.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(run.trainer, folder_of(size)));
      run.trainer.train();
      if (size == 1) {
        undisturbed = capture(run.trainer, "", run.trainer.view().world.is_root());
        losses = run.losses;
        norms = run.norms;
        checkpoints::write(folder_of(0), kSteps, undisturbed);  // its arrays are the run's, which ends here
        undisturbed = checkpoints::read(folder_of(0) + "/" + checkpoints::folder_name(kSteps));
      }
    }
    world_.barrier();
  }
  for (int saved = 1; saved <= 3; ++saved) {
    const auto midway = checkpoints::read(folder_of(saved) + "/" + checkpoints::folder_name(kSavedStep));
    EXPECT_EQ(midway.integer("/", "world_size"), saved);
    for (int size = 1; size <= 3; ++size) {
      SCOPED_TRACE("saved on " + std::to_string(saved) + ", resumed on " + std::to_string(size));
      const mpi::Communicator ranks = world_.split(world_.rank() < size ? 0 : 1);
      if (world_.rank() >= size) continue;
      SmallRun run(ranks, settings_on(ranks), registry_with_normed());
      restore(run.trainer, midway);
      run.trainer.train();
      const checkpoints::Archive reached = capture(run.trainer, "", run.trainer.view().world.is_root());
      if (world_.rank() != 0) continue;
      EXPECT_EQ(run.losses, std::vector<double>(losses.begin() + kSavedStep, losses.end()));
      EXPECT_EQ(run.norms, std::vector<double>(norms.begin() + kSavedStep, norms.end()));
      EXPECT_EQ(testing::differences(reached, undisturbed), "");
      EXPECT_NE(testing::differences(midway, undisturbed), "");
    }
  }
  if (world_.rank() == 0) {
    EXPECT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(norms.size(), static_cast<std::size_t>(kSteps));
    EXPECT_TRUE(undisturbed.has("/model/buffers/norm.running_var"));
  }
}

const Settings kAdamW = {{"optim.name", "adamw"}, {"optim.lr", "0.01"}};
const Settings kSgd = {{"optim.name", "sgd"}, {"optim.lr", "0.05"}, {"optim.momentum", "0.9"}};

INSTANTIATE_TEST_SUITE_P(Cases, LanesResumeTest,
                         ::testing::Values(Case{"adamw", kAdamW}, Case{"sgd", kSgd},
                                           Case{"adamwPrivate", with(kAdamW, {{"ddp.shared_parameters", "false"}})},
                                           Case{"sgdOverMpi", kSgd, {{"comm.backend", "mpi"}}}),
                         [](const auto& test) { return std::string(test.param.name); });

/// The other rules, with all the state that each can have.
std::vector<Case> other_rules() {
  const Settings decay = {{"optim.lr", "0.01"}, {"optim.weight_decay", "0.01"}};
  const Settings momentum = with(decay, {{"optim.momentum", "0.9"}});
  std::vector<Case> cases;
  for (const char* rule : {"adagrad", "adadelta", "adamax", "nadam", "radam", "lion", "lamb", "adafactor"}) {
    cases.push_back({rule, with(decay, {{"optim.name", rule}})});
  }
  for (const char* rule : {"lars", "larc", "muon"}) cases.push_back({rule, with(momentum, {{"optim.name", rule}})});
  cases.push_back({"rprop", {{"optim.name", "rprop"}, {"optim.lr", "0.01"}}});
  cases.push_back({"adam", with(decay, {{"optim.name", "adam"}, {"optim.amsgrad", "true"}})});
  cases.push_back({"rmsprop", with(momentum, {{"optim.name", "rmsprop"}, {"optim.centered", "true"}})});
  cases.push_back({"lbfgs",
                   {{"optim.name", "lbfgs"},
                    {"optim.lr", "1"},
                    {"optim.max_iter", "3"},
                    {"optim.history_size", "4"},
                    {"optim.line_search_fn", "strong_wolfe"},
                    {"train.clip_norm", "0"}}});
  cases.push_back({"asgd", with(decay, {{"optim.name", "asgd"}, {"optim.t0", "3"}})});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Rules, LanesResumeTest, ::testing::ValuesIn(other_rules()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(LanesResumeCases, AreOfEveryRule) { EXPECT_EQ(other_rules().size() + 2, optim::builtin_rules().size()); }

}  // namespace lanes_resume_test
}  // namespace lockstep::engine
