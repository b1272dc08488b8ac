// SPDX-License-Identifier: BSD-3-Clause
// Every kind of sample, output and task, trained and evaluated by a run as the engine sets it up: on any number of
// ranks the losses are those of one rank.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoints/store/store.hpp"
#include "sample_kinds.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace kinds_test {

using namespace sample_kinds;

struct Seen {
  std::vector<double> losses;
  std::vector<std::pair<std::string, double>> evaluation;
};

Seen run_of(const mpi::Communicator& world, const SampleKind& kind, const Settings& more, const Registry& registry) {
  SmallRun run(world, settings_of(kind, more), registry);
  std::vector<Record> records;
  run.trainer.add_reporter([&](const Record& record) { records.push_back(record); });
  run.trainer.add_hook(evaluate_hook(run.sections, registry.meters));
  run.trainer.train();
  return {.losses = run.losses, .evaluation = run.trainer.view().measured.values};
}

Seen run_of(const mpi::Communicator& world, const SampleKind& kind, const Settings& more) {
  return run_of(world, kind, more, tables_of(kind));
}

void expect_alike(const Seen& seen, const Seen& expected, double tolerance) {
  ASSERT_EQ(seen.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < seen.losses.size(); ++i) {
    EXPECT_NEAR(seen.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i])) << "step " << i;
  }
  ASSERT_EQ(seen.evaluation.size(), expected.evaluation.size());
  for (std::size_t i = 0; i < seen.evaluation.size(); ++i) {
    EXPECT_EQ(seen.evaluation[i].first, expected.evaluation[i].first);
    EXPECT_NEAR(seen.evaluation[i].second, expected.evaluation[i].second, 1e-9) << seen.evaluation[i].first;
  }
}

class KindsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  const SampleKind& kind() const { return kinds()[GetParam()]; }
  mpi::Communicator world_ = mpi::Communicator::world();
  mpi::Communicator self_ = world_.split(world_.rank());
};

// Holds in every layout and step. A batch of one rank's micro_batches is weighted by what it counts.
TEST_P(KindsTest, TrainsAndIsEvaluatedAsOnOneRank) {
  const Seen alone = run_of(self_, kind(), {});
  EXPECT_TRUE(std::isfinite(alone.losses.back()));
  for (const std::string& name : kind().measured) {
    const auto is_this = [&name](const auto& value) { return value.first == "val/" + name; };
    EXPECT_TRUE(std::any_of(alone.evaluation.begin(), alone.evaluation.end(), is_this)) << name;
  }
  for (const Settings& layout :
       {Settings{{"strategy.name", "ddp"}}, Settings{{"strategy.name", "ddp"}, {"train.micro_batch", "2"}},
        Settings{{"train.lanes", "6"}}, Settings{{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
        Settings{{"strategy.name", "sharded"}, {"strategy.stage", "2"}}}) {
    SCOPED_TRACE(layout.back().first + "=" + layout.back().second);
    expect_alike(run_of(world_, kind(), layout), alone, 1e-11);
  }
  for (const char* step : {"model", "simple", "amp", "standard"}) {
    SCOPED_TRACE(step);
    const Settings settings = {{"train.step_kind", step}};
    expect_alike(run_of(world_, kind(), settings), run_of(self_, kind(), settings), 1e-11);
  }
}

TEST_P(KindsTest, ContinuesBitForBit) {
  const testing::TemporaryFolder folder;
  const std::string path = world_.broadcast(folder.path());
  const Registry registry = tables_of(kind());
  const auto folder_of = [&path](const Settings& layout) { return path + "/" + layout.front().second; };
  for (const Settings& layout :
       {Settings{{"strategy.name", "ddp"}, {"train.micro_batch", "2"}}, Settings{{"train.lanes", "6"}},
        Settings{{"strategy.name", "sharded"}, {"strategy.stage", "3"}}}) {
    SCOPED_TRACE(layout.back().first + "=" + layout.back().second);
    const Seen straight = run_of(world_, kind(), layout);
    SmallRun begun(world_, with(settings_of(kind(), layout), {{"train.max_steps", "2"}}), registry);
    begun.trainer.train();
    const checkpoints::Archive saved = capture(begun.trainer, "", world_.is_root());
    if (world_.is_root()) checkpoints::write(folder_of(layout), 2, saved);
    world_.barrier();
    SmallRun resumed(world_, settings_of(kind(), layout), registry);
    checkpoints::Archive archive;
    resumed.model.wrapper->parameters().write([&] {
      archive = checkpoints::read(checkpoints::checkpoint_of(folder_of(layout), 2), restore_targets(resumed.trainer));
    });
    restore(resumed.trainer, archive);
    EXPECT_EQ(reproducibility_of(resumed.trainer, archive).text(), "bitwise");
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 2, straight.losses.end()));
    world_.barrier();
  }
}

/// The loss of the model trains one child after the other, each from the outputs after the updates before it.
parallel::StepResult train_in_turn(StepContext& step) {
  const auto frame = step.wrapper.micro_batch(step.optimizer, step.reads_gradients);
  const batch::Batch prepared = step.wrapper.prepare(step.batch, /*is_training=*/true);
  parallel::StepResult result;
  for (auto& [name, optimizer] : step.parts) {
    models::ParsedLosses losses;
    {
      const auto context = step.wrapper.optim_context(optimizer);
      losses = models::parse_losses(models::losses_of(step.wrapper.model(), step.wrapper.forward(prepared), prepared),
                                    models::LossSum::named, step.weights);
    }
    result.update = optimizer.update_params(losses.total, step.weights.of_total());
    result.read(losses, step.weights);
  }
  return result;
}

std::vector<std::string> children_of(const SampleKind& kind) {
  std::vector<std::string> names;
  for (const auto& child : kind.make(Section("model"), kind.task)->named_children()) names.push_back(child.key());
  return names;
}

TEST_P(KindsTest, TrainsSeparateChildrenInTurn) {
  const std::vector<std::string> children = children_of(kind());
  const auto run_in_turn = [&](const mpi::Communicator& world) {
    Registry registry = tables_of(kind());
    registry.steps.push_back({.name = "in_turn",
                              .help = "",
                              .keys = {},
                              .make = [](const Section&) { return ManualStep(train_in_turn); },
                              .parts = children});
    return run_of(world, kind(), {{"train.step_kind", "in_turn"}, {"strategy.separate", "true"}}, registry);
  };
  const Seen alone = run_in_turn(self_);
  EXPECT_NE(alone.losses.front(), alone.losses.back()) << "it is trained";
  expect_alike(run_in_turn(world_), alone, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(Kinds, KindsTest, ::testing::Range<std::size_t>(0, kinds().size()),
                         [](const auto& kind) { return std::string(kinds()[kind.param].name); });

// A checkpointed block keeps only its inputs, all of them, and a shard is gathered for each output that comes back.
TEST(BlocksOfSeveralTensorsTest, AreRecomputedAndGathered) {
  const mpi::Communicator world = mpi::Communicator::world();
  const mpi::Communicator self = world.split(world.rank());
  const SampleKind& skips = kinds().back();
  const Seen alone = run_of(self, skips, {});
  for (const Settings& layout :
       {Settings{{"strategy.name", "ddp"}}, Settings{{"train.lanes", "6"}},
        Settings{{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
        Settings{{"strategy.name", "sharded"}, {"strategy.stage", "3"}, {"strategy.blocks", "down.*,up"}}}) {
    expect_alike(run_of(world, skips, with(layout, {{"model.recompute", "down,up"}})), alone, 1e-11);
  }
}

// Without the counts a rank with few valid samples would weigh as much as one with many.
TEST(CountsTest, ItemsWeighTheSameHoweverTheyAreDivided) {
  const mpi::Communicator world = mpi::Communicator::world();
  const mpi::Communicator self = world.split(world.rank());
  const SampleKind& valid = kinds()[3];
  const Seen whole = run_of(self, valid, {});
  for (const Settings& parts : {Settings{}, Settings{{"train.micro_batch", "1"}}, Settings{{"train.lanes", "12"}}}) {
    expect_alike(run_of(world, valid, parts), whole, 1e-12);
  }
}

/// Counts what makes no sense on the last rank.
class Miscounting : public Validated {
 public:
  using Validated::Validated;
  std::vector<std::pair<std::string, double>> counts(const batch::Batch& batch) const override {
    const mpi::Communicator world = mpi::Communicator::world();
    const bool is_last = world.rank() == world.size() - 1;
    if (is_last && ++calls > 2) return {{"loss", -1}};
    return Validated::counts(batch);
  }
  mutable int calls = 0;
};

TEST(CountsTest, AWrongCountIsReportedOnEveryRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  SampleKind kind = kinds()[3];
  kind.make = made<Miscounting>;
  const std::string who = world.size() == 1 ? "" : "rank " + std::to_string(world.size() - 1) + ": ";
  try {
    run_of(world, kind, {{"strategy.name", "ddp"}});
    FAIL() << "trained";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), who + "the model counts -1 items of the loss 'loss'");
  }
}

TEST(EvaluationTimesTest, AreRegularOrAtTheEndOrNever) {
  const mpi::Communicator world = mpi::Communicator::world();
  const SampleKind& kind = kinds()[5];
  const auto evaluations = [&](const Settings& more) {
    const Registry registry = tables_of(kind);
    SmallRun run(world,
                 with({{"data.name", "kind"},
                       {"model.name", "kind"},
                       {"train.global_batch_size", "12"},
                       {"train.max_steps", "5"},
                       {"eval.every", "2"}},
                      more),
                 registry);
    std::vector<std::int64_t> steps;
    run.trainer.add_reporter([&](const Record& record) {
      if (record.kind == "eval") steps.push_back(std::get<std::int64_t>(record.values.front().second));
    });
    run.trainer.add_hook(evaluate_hook(run.sections, registry.meters));
    run.trainer.train();
    return steps;
  };
  if (!world.is_root()) {
    for (const char* every : {"2", "end", "never", "0.000001s"}) evaluations({{"eval.every", every}});
    return;
  }
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(evaluations({{"eval.every", "2"}}), Steps({2, 4, 5}));
  EXPECT_EQ(evaluations({{"eval.every", "end"}}), Steps({5}));
  EXPECT_EQ(evaluations({{"eval.every", "never"}}), Steps());
  EXPECT_EQ(evaluations({{"eval.every", "0.000001s"}}), Steps({1, 2, 3, 4, 5}));  // a step takes longer
}

/// Counts the samples whose file has an even number, and checks that a number and a text belong to the same sample.
metrics::Meter file_meter(bool needs_all_samples) {
  const auto even_files = [](const metrics::Samples& samples) {
    std::int64_t even = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const int number = std::stoi(std::get<std::string>(samples.values.at("file").at(i)));
      EXPECT_EQ(number % 3, std::get<double>(samples.values.at("label").at(i)));
      EXPECT_EQ(number, samples.indices[i]);
      even += number % 2 == 0 ? 1 : 0;
    }
    return even;
  };
  metrics::Meter meter{.results = {{.name = needs_all_samples ? "even_of_all" : "even"}},
                       .reads = {.values = {"file", "label"}}};
  if (needs_all_samples) {
    meter.read_all = [even_files](const metrics::Samples& samples) {
      return metrics::Reading{.numbers = {static_cast<double>(even_files(samples))}};
    };
  } else {
    meter.words = 1;
    meter.add = [even_files](const metrics::Samples& samples, std::span<std::int64_t> words) {
      words[0] += even_files(samples);
    };
    meter.read = [](std::span<const std::int64_t> words) {
      return metrics::Reading{.numbers = {static_cast<double>(words[0])}};
    };
  }
  return meter;
}

// Kind 0 has a file name in each sample. Of its 13 validation samples, 7 have an even number.
TEST(MeterValuesTest, MetersReadNumbersAndTextsOfSamples) {
  const mpi::Communicator world = mpi::Communicator::world();
  const SampleKind& kind = kinds()[0];
  Registry registry = tables_of(kind);
  for (const bool all : {false, true}) {
    registry.meters.push_back({.name = all ? "files_of_all" : "files",
                               .help = "",
                               .needs = "",
                               .keys = {},
                               .make = [all](const Section&, std::int64_t) { return file_meter(all); }});
  }
  SmallRun run(world, settings_of(kind, {{"eval.metrics", "files"}, {"eval.metrics", "files_of_all"}}), registry);
  run.trainer.add_hook(evaluate_hook(run.sections, registry.meters));
  run.trainer.train();
  int found = 0;
  for (const auto& [name, value] : run.trainer.view().measured.values) {
    if (name != "val/even" && name != "val/even_of_all") continue;
    EXPECT_EQ(value, 7) << name;
    ++found;
  }
  EXPECT_EQ(found, 2);
}

}  // namespace kinds_test
}  // namespace lockstep::engine
