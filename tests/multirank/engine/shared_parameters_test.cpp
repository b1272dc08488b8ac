// SPDX-License-Identifier: BSD-3-Clause
// One copy of the parameters per host: a run starts, is saved, continues and is evaluated with the bits that it has
// when every rank keeps its own.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "parallel/store/parameter_store.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace shared_parameters_test {

constexpr std::array kForms = {"true", "false"};

Settings settings_of(const std::string& shares, const char* steps) {
  return {{"model.name", "cnn"},     {"model.channels", "4,8"},         {"model.hidden", "16"},
          {"model.dropout", "0.1"},  {"optim.name", "adamw"},           {"optim.lr", "0.01"},
          {"data.train_size", "50"}, {"train.global_batch_size", "12"}, {"train.clip_norm", "0.5"},
          {"data.val_size", "20"},   {"ddp.shared_parameters", shares}, {"data.workers", "0"},
          {"train.max_steps", steps}};
}

std::vector<at::Tensor> values_of(WrappedModel& model) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : model.wrapper->model().parameters()) values.push_back(parameter.detach().clone());
  return values;
}

bool is_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = at::equal(a[i], b[i]);
  return all;
}

void assign(WrappedModel& model, const std::vector<at::Tensor>& values) {
  model.wrapper->store().write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) model.wrapper->model().parameters()[i].copy_(values[i]);
  });
}

class SharedParametersTest : public ::testing::Test {
 protected:
  SharedParametersTest() : shared_(world_.broadcast(folder_.path())) {}
  ~SharedParametersTest() override { world_.barrier(); }
  void SetUp() override {
    if (world_.size() == 1) GTEST_SKIP() << "one rank shares with nobody";
  }

  /// Whether every rank's values are those of rank 0. Collective.
  bool is_same_everywhere(const std::vector<at::Tensor>& values) const {
    std::string bytes;
    for (const at::Tensor& value : values) {
      const at::Tensor flat = value.contiguous();
      bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
    }
    const std::vector<std::string> all = world_.all_gather(bytes);
    return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; });
  }

  /// The values that `trainer` holds, written and read again on every rank. Collective.
  checkpoints::Archive through_a_file(Trainer& trainer, const std::string& name) const {
    const checkpoints::Archive archive = capture(trainer, "", trainer.view().world.is_root());
    const std::string folder = shared_ + "/" + name;
    if (world_.is_root()) checkpoints::write(folder, trainer.progress().step, archive);
    world_.barrier();
    return checkpoints::read(folder + "/" + checkpoints::folder_name(trainer.progress().step));
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

TEST_F(SharedParametersTest, BeginWithTheSameValuesInOneCopy) {
  SmallRun combined(world_, settings_of("true", "3"));
  SmallRun apart(world_, settings_of("false", "3"));
  EXPECT_TRUE(combined.model.wrapper->store().is_shared());
  EXPECT_FALSE(apart.model.wrapper->store().is_shared());
  EXPECT_TRUE(is_equal(values_of(combined.model), values_of(apart.model)));
  EXPECT_TRUE(is_same_everywhere(values_of(combined.model)));
  // The values that one rank writes all ranks read, where there is one copy only.
  for (SmallRun* run : {&combined, &apart}) {
    const at::Tensor parameter = run->model.wrapper->model().parameters()[0];
    run->model.wrapper->parameters().write([&] {
      const torch::NoGradGuard no_grad;
      if (world_.rank() == 1) parameter.fill_(7);
    });
    EXPECT_EQ((parameter == 7).all().item<bool>(), run == &combined || world_.rank() == 1);
  }
}

// The archives of the two forms are the same, and either form continues from either.
TEST_F(SharedParametersTest, AreSavedOnceAndResumedBitForBit) {
  std::map<std::string, checkpoints::Archive> midway;
  std::map<std::string, checkpoints::Archive> end;
  std::map<std::string, std::vector<double>> losses;
  for (const std::string shares : kForms) {
    SmallRun half(world_, settings_of(shares, "5"));
    half.trainer.train();
    midway[shares] = through_a_file(half.trainer, "half" + shares);
    SmallRun whole(world_, settings_of(shares, "11"));
    whole.trainer.train();
    end[shares] = through_a_file(whole.trainer, "whole" + shares);
    losses[shares] = whole.losses;
    const checkpoints::Archive archive = capture(whole.trainer, "", whole.trainer.view().world.is_root());
    if (!world_.is_root()) continue;
    // Nothing is gathered for the archive: it has the copy that the ranks share, and the one state of the optimizer.
    const auto* const saved = archive.array("/model/params/conv0.weight").bytes.data();
    EXPECT_EQ(saved, whole.model.wrapper->model().named_parameters()["conv0.weight"].const_data_ptr());
    EXPECT_EQ(archive.arrays_in("/model/params"), archive.arrays_in("/optim/0/state/exp_avg"));
  }
  EXPECT_EQ(losses["true"], losses["false"]);
  EXPECT_EQ(testing::differences(midway["true"], midway["false"]), "");
  EXPECT_EQ(testing::differences(end["true"], end["false"]), "");
  EXPECT_NE(testing::differences(midway["true"], end["true"]), "");
  for (const std::string from : kForms) {
    for (const std::string target : kForms) {
      SmallRun resumed(world_, settings_of(target, "11"));
      restore(resumed.trainer, midway[from]);
      resumed.trainer.train();
      EXPECT_EQ(resumed.losses, std::vector<double>(losses[target].begin() + 5, losses[target].end()));
      EXPECT_TRUE(is_same_everywhere(values_of(resumed.model)));
      EXPECT_EQ(testing::differences(through_a_file(resumed.trainer, from + target), end[target]), "");
    }
  }
}

// The same as an average of past weights: other values take the place of the trained ones for an evaluation.
TEST_F(SharedParametersTest, AreEvaluatedWithOtherWeightsInTheirPlace) {
  std::map<std::string, std::vector<double>> evaluations;
  std::map<std::string, std::vector<at::Tensor>> ends;
  for (const std::string shares : kForms) {
    SmallRun undisturbed(world_, settings_of(shares, "8"));
    undisturbed.trainer.train();

    SmallRun run(world_, settings_of(shares, "4"));
    const std::vector<at::Tensor> initial = values_of(run.model);
    run.trainer.train();
    const checkpoints::Archive saved = through_a_file(run.trainer, "swapped" + shares);
    const std::vector<at::Tensor> trained = values_of(run.model);
    const auto loss = [&] { return evaluate(run, *run.trainer.view().data.splits().val, 3).mean_loss(); };
    const double before = loss();
    std::vector<at::Tensor> average;
    for (std::size_t i = 0; i < trained.size(); ++i) average.push_back((initial[i] + trained[i]) / 2);
    assign(run.model, average);
    EXPECT_TRUE(is_equal(values_of(run.model), average));
    const double swapped = loss();
    assign(run.model, trained);
    EXPECT_EQ(loss(), before);
    EXPECT_NE(swapped, before);
    evaluations[shares] = {before, swapped};

    SmallRun longer(world_, settings_of(shares, "8"));
    restore(longer.trainer, saved);
    assign(longer.model, average);
    evaluate(longer, *longer.trainer.view().data.splits().val, 3);
    assign(longer.model, trained);
    longer.trainer.train();
    EXPECT_TRUE(is_equal(values_of(longer.model), values_of(undisturbed.model)));
    ends[shares] = values_of(longer.model);
  }
  EXPECT_EQ(evaluations["true"], evaluations["false"]);
  EXPECT_TRUE(is_equal(ends["true"], ends["false"]));
}

}  // namespace shared_parameters_test
}  // namespace lockstep::engine
