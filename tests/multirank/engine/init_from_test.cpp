// SPDX-License-Identifier: BSD-3-Clause
// Initial parameters from a file.
#include "engine/state/init_from.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "checkpoints/interop/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/state/run_state.hpp"
#include "parallel/sync/tensor_collectives.hpp"
#include "small_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace init_from_test {

const Settings kBase = {{"model.name", "mlp"}, {"model.hidden", "16"}, {"data.train_size", "100"}};

class InitFromTest : public ::testing::Test {
 protected:
  /// Files of a model with other initial values than those of seed 1.
  InitFromTest() : other_(world_, with(kBase, {{"run.seed", "2"}})) {
    shared_ = world_.broadcast(folder_.path());
    const checkpoints::Archive archive = capture(other_.trainer, "", world_.is_root());
    if (world_.is_root()) {
      checkpoints::write(shared_, 0, archive);
      write_as("flat.safetensors", "");
      write_as("flat.pt", "");
      write_as("prefixed.npz", "module.");
    }
    world_.barrier();
  }
  ~InitFromTest() override { world_.barrier(); }

  void write_as(const std::string& name, const std::string& prefix) {
    std::vector<checkpoints::NamedArray> arrays;
    for (const auto& item : other_.strategy.model().model().named_parameters()) {
      arrays.push_back({prefix + item.key(),
                        {.dtype = DType::float32,
                         .shape = item.value().sizes().vec(),
                         .bytes = parallel::bytes_of(item.value()),
                         .owner = nullptr}});
    }
    const std::string path = shared_ + "/" + name;
    checkpoints::write_foreign(path, *checkpoints::export_kind_of(path), arrays, {});
  }

  /// Whether a run of seed 1 that begins from the file has the other model's parameters.
  bool takes(const Settings& init) {
    SmallRun run(world_, with(kBase, init));
    EXPECT_FALSE(equals_other(run));
    EXPECT_TRUE(init_from(run.strategy, run.sections.at("init")).empty());
    return equals_other(run);
  }

  bool equals_other(SmallRun& run) {
    const auto mine = run.strategy.model().model().parameters();
    const auto others = other_.strategy.model().model().parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!at::equal(mine[i], others[i])) return false;
    }
    return true;
  }

  std::string error_of(const Settings& settings) {
    SmallRun run(world_, with(kBase, settings));
    try {
      init_from(run.strategy, run.sections.at("init"));
      return "";
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;
  SmallRun other_;
};

TEST_F(InitFromTest, ItsOwnCheckpointsAndOtherFiles) {
  EXPECT_TRUE(takes({{"init.from", shared_ + "/step-000000000000"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/step-000000000000/state.h5"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/flat.safetensors"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/flat.pt"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/prefixed.npz"}, {"init.rename", "module.="}}));
}

TEST_F(InitFromTest, OtherNamesAreListed) {
  const std::string error = error_of({{"init.from", shared_ + "/prefixed.npz"}});
  EXPECT_NE(error.find("'hidden0.weight' is missing"), std::string::npos) << error;
  EXPECT_NE(error.find("'module.hidden0.weight' is not in the model"), std::string::npos) << error;
  EXPECT_NE(error.find("init.rename"), std::string::npos) << error;
}

TEST_F(InitFromTest, OtherShapesAreListedOrSkipped) {
  const Settings wider = {{"init.from", shared_ + "/flat.pt"}, {"model.hidden", "16,8"}};
  const std::string error = error_of(wider);
  EXPECT_NE(error.find("'head.weight' is float32 [10, 16], the model has float32 [10, 8]"), std::string::npos) << error;
  EXPECT_NE(error.find("'hidden1.weight' is missing"), std::string::npos) << error;
  SmallRun run(world_, with(with(kBase, wider), {{"init.partial", "true"}}));
  EXPECT_EQ(init_from(run.strategy, run.sections.at("init")).size(), 3U);  // head.weight; hidden1's weight and bias
  EXPECT_TRUE(at::equal(run.strategy.model().model().named_parameters()["hidden0.weight"],
                        other_.strategy.model().model().named_parameters()["hidden0.weight"]));
}

TEST_F(InitFromTest, NothingInCommonIsAnErrorEvenInPart) {
  EXPECT_NE(error_of({{"init.from", shared_ + "/prefixed.npz"}, {"init.partial", "true"}}), "");
  EXPECT_NE(error_of({{"init.from", shared_ + "/nowhere.pt"}}).find("nowhere.pt"), std::string::npos);
}

// Lower precision outside, float32 here.
TEST_F(InitFromTest, FloatingTypesAreConverted) {
  SmallRun run(world_, with(kBase, {{"init.from", shared_ + "/flat.pt"}, {"train.precision", "fp64"}}));
  EXPECT_TRUE(init_from(run.strategy, run.sections.at("init")).empty());
  EXPECT_TRUE(at::equal(run.strategy.model().model().parameters()[0],
                        other_.strategy.model().model().parameters()[0].to(at::kDouble)));
}

}  // namespace init_from_test
}  // namespace lockstep::engine
