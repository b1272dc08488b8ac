// SPDX-License-Identifier: BSD-3-Clause
// What is divided among ranks trains as what every rank holds, and their checkpoints are each other's.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/sampling.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace sharded_test {

constexpr std::int64_t kSavedStep = 4;
constexpr std::int64_t kSteps = 8;

Settings strategy_of(int stage) {
  if (stage == 0) return {{"strategy.name", "ddp"}, {"ddp.shared_parameters", "false"}};
  return {{"strategy.name", "sharded"}, {"strategy.stage", std::to_string(stage)}};
}

const Settings kSteady = {{"train.max_steps", std::to_string(kSteps)},
                          {"train.global_batch_size", "12"},
                          {"train.micro_batch", "2"},
                          {"train.clip_norm", "0.5"},
                          {"data.workers", "0"},
                          {"optim.name", "adamw"},
                          {"optim.lr", "0.001"},
                          {"optim.no_decay", "norms_biases"},
                          {"run.threads", "1"}};

Settings gpt(const Settings& more) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return with({{"data.name", "text"},
               {"data.path", std::string(source != nullptr ? source : ".") + "/checkpoints/FORMAT.md"},
               {"data.block", "16"},
               {"model.name", "gpt"},
               {"model.depth", "2"},
               {"model.num_heads", "2"},
               {"model.embed_dim", "48"}},
              more);
}

struct Case {
  const char* name;
  Settings settings;
  double tolerance = 1e-6;
  std::optional<at::ScalarType> parameters_type = {};
};

/// A small run with an optimizer that needs the whole of a parameter: its shape, or sums over it.
Settings mlp(const std::string& rule, const Settings& more) {
  return with({{"model.name", "mlp"},
               {"model.hidden", "32,16"},
               {"data.train_size", "100"},
               {"train.precision", "fp64"},
               {"optim.name", rule},
               {"optim.weight_decay", "0.01"}},
              more);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"gpt", gpt({})},
      {"gpt, recomputed", gpt({{"model.recompute", "block*"}})},
      // A last bit of a parameter may decide how it is rounded to 16 bits.
      {"gpt, bf16", gpt({{"train.precision", "bf16"}}), 1e-4},
      {"gpt, 16-bit parameters", gpt({{"train.precision", "bf16"}}), 1e-4, at::kBFloat16},
      {"gpt, bf16 parameters", gpt({{"train.precision", "bf16"}, {"train.param_dtype", "bf16"}}), 1e-4},
      {"muon", mlp("muon", {{"optim.lr", "0.02"}, {"optim.momentum", "0.95"}, {"optim.ns_bf16", "false"}}), 1e-9},
      {"adafactor", mlp("adafactor", {{"optim.lr", "0.01"}}), 1e-9},
      {"lars", mlp("lars", {{"optim.lr", "1"}, {"optim.momentum", "0.9"}}), 1e-9},
      {"larc", mlp("larc", {{"optim.lr", "1"}, {"optim.trust_coefficient", "0.02"}}), 1e-9},
      {"lamb", mlp("lamb", {{"optim.lr", "0.01"}}), 1e-9},
      {"lbfgs",
       mlp("lbfgs", {{"optim.lr", "1"},
                     {"optim.max_iter", "3"},
                     {"optim.history_size", "4"},
                     {"optim.line_search_fn", "strong_wolfe"},
                     {"optim.weight_decay", "0"},
                     {"optim.no_decay", "none"},
                     {"train.clip_norm", "0"}}),
       1e-7},
      {"cnn", {{"model.name", "cnn"}, {"data.train_size", "100"}}},
  };
  return all;
}

const Case& case_named(const std::string& name) {
  return *std::find_if(cases().begin(), cases().end(), [&](const Case& c) { return c.name == name; });
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

void expect_near(const std::vector<double>& losses, const std::vector<double>& expected, double tolerance = 1e-6) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_LE(std::abs(losses[i] - expected[i]), tolerance * std::abs(expected[i])) << "step " << i + 1;
  }
}

std::vector<double> tail(const std::vector<double>& losses) { return {losses.begin() + kSavedStep, losses.end()}; }

TEST(ShardedTest, StagesHaveTheLossesOfReplicasAndExchangeCheckpoints) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder mine;
  const std::string folder = world.broadcast(mine.path());
  std::uint64_t number = 0;
  for (const Case& c : cases()) {
    ++number;
    std::vector<std::vector<double>> losses;  // losses by stage
    const auto saved_by = [&](int stage) { return folder + "/" + c.name + std::to_string(stage); };
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(std::string(c.name) + ", stage " + std::to_string(stage));
      SmallRun run(world, with(with(kSteady, c.settings), strategy_of(stage)), builtin_registry(), c.parameters_type);
      run.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(run.trainer, saved_by(stage)));
      run.trainer.train();
      losses.push_back(run.losses);
      expect_near(losses.back(), losses.front(), c.tolerance);
    }
    EXPECT_GT(std::abs(losses[0].back() - losses[0].front()), 1e-3);  // it does train
    for (int from = 0; from <= 3; ++from) {
      const checkpoints::Archive archive = checkpoints::read(checkpoints::checkpoint_of(saved_by(from), kSavedStep));
      for (int target = 0; target <= 3; ++target) {
        if (!testing::is_sampled(number + static_cast<std::uint64_t>(from + target), 4)) continue;
        SCOPED_TRACE(std::string(c.name) + ", from stage " + std::to_string(from) + " to " + std::to_string(target));
        SmallRun run(world, with(with(kSteady, c.settings), strategy_of(target)), builtin_registry(),
                     c.parameters_type);
        restore(run.trainer, archive);
        EXPECT_EQ(reproducibility_of(run.trainer, archive, {}).level == Reproducibility::Degree::bitwise,
                  from == target || world.size() == 1);
        run.trainer.train();
        if (from == target) {
          EXPECT_EQ(run.losses, tail(losses[static_cast<std::size_t>(target)]));
        }
        expect_near(run.losses, tail(losses.front()), c.tolerance);
      }
    }
  }
}

TEST(ShardedTest, CheckpointsContinueOnOtherNumbersOfRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder mine;
  const std::string folder = world.broadcast(mine.path());
  const auto continues = [&](const Case& c, int stage) {
    SCOPED_TRACE(std::string(c.name) + ", stage " + std::to_string(stage));
    const Settings settings = with(kSteady, c.settings);
    const std::string saved = folder + "/" + c.name + std::to_string(stage);
    SmallRun run(world, with(settings, strategy_of(stage)));
    run.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(run.trainer, saved));
    run.trainer.train();
    const checkpoints::Archive archive = checkpoints::read(checkpoints::checkpoint_of(saved, kSavedStep));
    for (int size = 1; size < world.size(); ++size) {
      const mpi::Communicator ranks = world.split(world.rank() < size ? 0 : 1);
      if (world.rank() >= size) continue;
      SmallRun fewer(ranks, with(settings, strategy_of(stage)));
      restore(fewer.trainer, archive);
      fewer.trainer.train();
      expect_near(fewer.losses, tail(run.losses), c.tolerance);
    }
    world.barrier();
  };
  for (const char* const name : {"gpt", "muon", "adafactor", "lbfgs"}) {
    for (int stage = 1; stage <= 3; ++stage) continues(case_named(name), stage);
  }
}

/// Two hosts, or one for each rank, that hold a copy each.
Settings on_hosts(const mpi::Communicator& world, int stage) {
  const int hosts = world.size() % 2 == 0 ? 2 : world.size();
  return with(strategy_of(stage), {{"strategy.shard_within", "host"}, {"comm.hosts", std::to_string(hosts)}});
}

std::vector<std::string> sorted_paths(const checkpoints::Archive& archive) {
  std::vector<std::string> paths = archive.array_paths();
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Copies on hosts change the rounding of sums alone.
TEST(ShardedTest, CopiesOnHostsExchangeCheckpointsWithOneCopy) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder mine;
  const std::string folder = world.broadcast(mine.path());
  std::uint64_t number = 0;
  for (const char* const name : {"gpt", "muon", "adafactor"}) {
    for (int stage = 1; stage <= 3; ++stage) {
      if (!testing::is_sampled(++number, 2)) continue;
      SCOPED_TRACE(std::string(name) + ", stage " + std::to_string(stage));
      const Case& c = case_named(name);
      const Settings settings = with(kSteady, c.settings);
      const auto run = [&](const Settings& strategy) {
        return std::make_unique<SmallRun>(world, with(settings, strategy));
      };
      const auto saved = [&](const Settings& strategy, const std::string& directory) {
        const auto whole = run(strategy);
        whole->trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(whole->trainer, directory));
        whole->trainer.train();
        return std::pair(whole->losses, checkpoints::read(checkpoints::checkpoint_of(directory, kSavedStep)));
      };
      const std::string place = folder + "/" + name + std::to_string(stage);
      const auto [of_one, one] = saved(strategy_of(stage), place + "one");
      const auto [of_copies, copies] = saved(on_hosts(world, stage), place + "copies");
      expect_near(of_copies, of_one, c.tolerance);
      EXPECT_EQ(sorted_paths(copies), sorted_paths(one));
      EXPECT_EQ(copies.has_attribute("/", "shard_copies"), world.size() > 1);
      if (stage == 1) {  // gradients are those of replicas
        const std::string differences = testing::differences(copies, one);
        EXPECT_TRUE(differences.empty() || differences == "paths ") << differences;  // they lie in another order
      }
      const auto resumed = [&](const Settings& strategy, const checkpoints::Archive& from) {
        const auto there = run(strategy);
        restore(there->trainer, from);
        const auto level = reproducibility_of(there->trainer, from, {}).level;
        there->trainer.train();
        return std::pair(level == Reproducibility::Degree::bitwise, there->losses);
      };
      EXPECT_EQ(resumed(on_hosts(world, stage), copies), std::pair(true, tail(of_copies)));
      const auto [is_bitwise, on_one] = resumed(strategy_of(stage), copies);
      EXPECT_EQ(is_bitwise, world.size() == 1);
      expect_near(on_one, tail(of_one), c.tolerance);
      expect_near(resumed(on_hosts(world, stage), one).second, tail(of_one), c.tolerance);
      expect_near(resumed(strategy_of(0), copies).second, tail(of_one), c.tolerance);
      for (int size = 1; size < world.size(); ++size) {
        const mpi::Communicator ranks = world.split(world.rank() < size ? 0 : 1);
        if (world.rank() >= size) continue;
        SmallRun fewer(ranks, with(settings, on_hosts(ranks, stage)));
        restore(fewer.trainer, copies);
        fewer.trainer.train();
        expect_near(fewer.losses, tail(of_one), c.tolerance);
      }
      world.barrier();
    }
  }
}

TEST(ShardedTest, LanesGiveTheSameBitsWithCopiesOnHosts) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings lanes = {{"train.lanes", "12"}, {"train.micro_batch", "0"}};
  const Settings settings = with(with(kSteady, cases().back().settings), lanes);
  SmallRun one(world, with(settings, strategy_of(1)));
  SmallRun copies(world, with(settings, on_hosts(world, 1)));
  one.trainer.train();
  copies.trainer.train();
  EXPECT_EQ(copies.losses, one.losses);
  EXPECT_EQ(copies.norms, one.norms);
  EXPECT_EQ(copies.norms.size(), static_cast<std::size_t>(kSteps));
}

/// Does on the CPU what is done on GPUs.
Resources make_as_on_gpu(const Sections& sections, const mpi::Communicator& world) {
  Resources resources = make_resources(sections, world);
  resources.is_as_on_gpu = true;
  return resources;
}

/// @param number  of the case before, for the sample
void expect_exchange_as_on_gpu(const mpi::Communicator& world, const Case& c, const std::string& folder,
                               std::uint64_t number) {
  const Settings settings = with(with(kSteady, c.settings), {{"ema.kind", "ema"}, {"ema.decay", "0.9"}});
  const auto averaging = [](SmallRun& run) {
    run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
  };
  const double tolerance = std::max(c.tolerance, 1e-6);
  const auto read = [](const std::string& path) {
    return checkpoints::read(checkpoints::checkpoint_of(path, kSavedStep));
  };
  SmallRun replicas(world, with(settings, strategy_of(0)));
  averaging(replicas);
  replicas.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(replicas.trainer, folder + "/ddp"));
  replicas.trainer.train();
  for (int stage = 1; stage <= 3; ++stage) {
    for (const char* const offload : {"false", "true"}) {
      if (!testing::is_sampled(++number, 3)) continue;
      SCOPED_TRACE(std::string(c.name) + ", stage " + std::to_string(stage) + ", offload " + offload);
      const Settings sharded = with(with(settings, strategy_of(stage)), {{"strategy.offload", offload}});
      const std::string saved = folder + "/" + std::to_string(stage) + offload;
      SmallRun run(world, sharded, builtin_registry(), {}, make_as_on_gpu);
      averaging(run);
      run.trainer.add_hook(Priority::very_low, std::make_unique<SaveHook>(run.trainer, saved));
      run.trainer.train();
      expect_near(run.losses, replicas.losses, tolerance);
      SmallRun here(world, sharded, builtin_registry(), {}, make_as_on_gpu);
      averaging(here);
      restore(here.trainer, read(saved));
      here.trainer.train();
      EXPECT_EQ(here.losses, tail(run.losses));
      SmallRun from_replicas(world, sharded, builtin_registry(), {}, make_as_on_gpu);
      averaging(from_replicas);
      restore(from_replicas.trainer, read(folder + "/ddp"));
      from_replicas.trainer.train();
      expect_near(from_replicas.losses, tail(replicas.losses), tolerance);
      SmallRun to_replicas(world, with(settings, strategy_of(0)));
      averaging(to_replicas);
      restore(to_replicas.trainer, read(saved));
      to_replicas.trainer.train();
      expect_near(to_replicas.losses, tail(replicas.losses), tolerance);
    }
  }
}

// Updates by tensors, or with the optimizer's state in the host's memory: their checkpoints are those of replicas, too.
TEST(ShardedTest, WhatGpusDoHasTheLossesAndCheckpointsOfReplicas) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder mine;
  const std::string folder = world.broadcast(mine.path());
  std::uint64_t number = 0;
  for (const char* const name : {"gpt", "gpt, bf16 parameters", "muon", "adafactor", "lars", "lbfgs"}) {
    expect_exchange_as_on_gpu(world, case_named(name), folder + "/" + name, number++);
  }
}

// Parameters are gathered in forwards, of which all ranks must run as many.
TEST(ShardedTest, EvaluationHasFewerBatchesThanRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = with(kSteady, cases().back().settings);
  SmallRun whole(world, with(settings, strategy_of(0)));
  SmallRun sharded(world, with(settings, strategy_of(3)));
  const auto expected = evaluate(whole, *whole.splits.val, whole.splits.val->size());
  const auto sums = evaluate(sharded, *sharded.splits.val, sharded.splits.val->size());
  EXPECT_EQ(sums.count, expected.count);
  EXPECT_EQ(sums.correct, expected.correct);
  EXPECT_EQ(sums.mean_loss(), expected.mean_loss());
}

TEST(StrategyTest, AModelThatIsGivenIsWrapped) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Sections sections = sections_of(with(kSteady, cases().back().settings));
  const Task task = data::open(sections.at("data")).train->task();
  const auto model = models::build(sections.at("model"), task, 5, at::kFloat);
  Composition made(make_resources(sections, world), sections, builtin_registry(), task, {.given = model});
  EXPECT_EQ(&made.model.wrapper->model(), model.get());
  EXPECT_EQ(made.updates.parts.size(), 1U);
  EXPECT_FALSE(made.updates.has_parts);
  EXPECT_EQ(&made.updates.all(), &made.updates.first());
}

TEST(StrategyTest, RaisesTheLimitOfOpenFilesAsFarAsItMay) {
  EXPECT_EQ(open_files_limit(1024, 524288, 4096), 4096U);
  EXPECT_EQ(open_files_limit(65536, 524288, 4096), 65536U);
  EXPECT_EQ(open_files_limit(1024, 2048, 4096), 2048U);
}

/// The sentence that making and preparing a strategy is refused with.
std::string refusal(const mpi::Communicator& world, const Settings& settings) {
  try {
    const SmallRun run(world, with(with(kSteady, cases().back().settings), settings));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StrategyTest, WhatDoesNotFitIsRefusedOnEveryRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  const struct {
    Settings settings;
    const char* words;
    int ranks = 1;
  } refusals[] = {
      {{{"strategy.name", "single"}}, "single requires one rank", 2},
      {with(strategy_of(2), {{"train.lanes", "12"}, {"train.micro_batch", "0"}}),
       "train.lanes (test) cannot be combined with strategy.stage=2: lanes are summed as whole gradients"},
      {with(strategy_of(3), {{"train.lanes", "12"}, {"train.micro_batch", "0"}}), "strategy.stage=1"},
      {with(strategy_of(1), {{"train.lanes", "12"}, {"train.micro_batch", "0"}, {"optim.name", "muon"}}),
       "train.lanes (test) cannot be combined with strategy.stage=1 and optim.name=muon"},
      {with(strategy_of(2), {{"ddp.comm_hook", "powersgd"}}), "needs whole buckets"},
      {with(strategy_of(3), {{"strategy.blocks", "nothing"}}), "the model does not have a block named 'nothing'"},
  };
  for (const auto& [settings, words, ranks] : refusals) {
    if (world.size() < ranks) continue;
    EXPECT_NE(refusal(world, settings).find(words), std::string::npos) << refusal(world, settings);
  }
  if (world.size() != 3) return;
  const Settings uneven = {{"strategy.name", "sharded"}, {"strategy.shard_within", "host"}, {"comm.hosts", "2"}};
  EXPECT_NE(refusal(world, uneven).find("there are 2 on the host of rank 0 and 1 on the host of rank 2"),
            std::string::npos);
}

}  // namespace sharded_test
}  // namespace lockstep::engine
