// SPDX-License-Identifier: BSD-3-Clause
// What eval.metrics measures is that of the whole data set, whoever saw which part of it.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/saving/best_values.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace evaluation_meters_test {

const Settings kEveryMeterOfClasses = {{"model.name", "mlp"},          {"eval.metrics", "top_k,k=3"},
                                       {"eval.metrics", "confusion"},  {"eval.metrics", "overlap"},
                                       {"eval.metrics", "perplexity"}, {"eval.metrics", "calibration"},
                                       {"eval.metrics", "auroc"},      {"eval.metrics", "average_precision"}};

metrics::Meters measured(SmallRun& run, std::int64_t batch_size,
                         const std::vector<metrics::MeterRow>& rows = metrics::builtin_meters()) {
  metrics::Meters meters =
      make_meters(EvalSettings::from(run.sections.at("eval")).metrics, run.splits.val->task(), rows);
  evaluate(run, *run.splits.val, batch_size, meters);
  return meters;
}

std::vector<std::uint64_t> bits_of(const metrics::Meters& meters) {
  std::vector<std::uint64_t> bits;
  const auto readings = meters.read();
  for (const auto& [name, value] : readings.numbers) bits.push_back(std::bit_cast<std::uint64_t>(value));
  for (const Table& table : readings.tables) {
    for (const double value : table.values) bits.push_back(std::bit_cast<std::uint64_t>(value));
  }
  return bits;
}

double number(const metrics::Meters& meters, const std::string& wanted) {
  for (const auto& [name, value] : meters.read().numbers) {
    if (name == wanted) return value;
  }
  ADD_FAILURE() << "nothing measures " << wanted;
  return 0;
}

/// Its numbers are how many samples it was shown, the largest index, how many it was given at the end, and the sum of
/// their indices.
std::vector<metrics::MeterRow> counting_rows() {
  using metrics::Samples;
  const auto shown = [](const Section&, std::int64_t) {
    return metrics::Meter{
        .results = {{"shown"}},
        .words = 1,
        .add = [](const Samples& samples,
                  std::span<std::int64_t> words) { words[0] += static_cast<std::int64_t>(samples.size()); },
        .read = [](std::span<const std::int64_t> words) { return metrics::Reading{{static_cast<double>(words[0])}}; }};
  };
  const auto given = [](const Section&, std::int64_t) {
    return metrics::Meter{.results = {{"given"}, {"index_sum"}}, .read_all = [](const Samples& samples) {
                            const auto sum = std::accumulate(samples.indices.begin(), samples.indices.end(), 0.0);
                            return metrics::Reading{{static_cast<double>(samples.size()), sum}};
                          }};
  };
  const auto largest = [](const Section&, std::int64_t) {
    const auto add = [](const Samples& samples, std::span<std::int64_t> words) {
      for (const std::int64_t index : samples.indices) words[0] = std::max(words[0], index);
    };
    return metrics::Meter{
        .results = {{"largest"}}, .words = 1, .maxima = 1, .add = add, .read = [](std::span<const std::int64_t> words) {
          return metrics::Reading{{static_cast<double>(words[0])}};
        }};
  };
  return {{.name = "shown", .help = "", .needs = "", .keys = {}, .make = shown},
          {.name = "largest", .help = "", .needs = "", .keys = {}, .make = largest},
          {.name = "given", .help = "", .needs = "", .keys = {}, .make = given}};
}

// 101 samples divide evenly among neither 2 nor 3 nor 4 ranks; 2 leave ranks idle, as does a single batch.
TEST(EvaluationMetersTest, HaveTheBitsOfOneRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  const mpi::Communicator self = world.split(world.rank());
  for (const char* const size : {"101", "2", "1"}) {
    const Settings settings = with(kEveryMeterOfClasses, {{"data.val_size", size}});
    SmallRun alone(self, settings);
    SmallRun combined(world, settings);
    for (const std::int64_t batch : {1, 7, 200}) {
      EXPECT_EQ(bits_of(measured(combined, batch)), bits_of(measured(alone, batch)))
          << size << " samples in batches of " << batch;
    }
  }
}

TEST(EvaluationMetersTest, SeeEverySampleOnce) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const std::int64_t size : {1, 2, 3, 4, 5, 101}) {
    SmallRun run(world, {{"model.name", "mlp"},
                         {"data.val_size", std::to_string(size)},
                         {"eval.metrics", "shown"},
                         {"eval.metrics", "largest"},
                         {"eval.metrics", "given"}});
    for (const std::int64_t batch : {1, 3, 200}) {
      const metrics::Meters meters = measured(run, batch, counting_rows());
      const auto count = static_cast<double>(size);
      EXPECT_EQ(number(meters, "shown"), count) << batch;
      EXPECT_EQ(number(meters, "largest"), count - 1) << batch;
      EXPECT_EQ(number(meters, "given"), count) << batch;
      EXPECT_EQ(number(meters, "index_sum"), count * (count - 1) / 2) << batch;
    }
  }
}

TEST(EvaluationMetersTest, AgreeWithWhatIsMeasuredAnyway) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(
      world,
      {{"model.name", "mlp"}, {"data.val_size", "101"}, {"eval.metrics", "top_k,k=1"}, {"eval.metrics", "perplexity"}});
  metrics::Meters meters = make_meters(EvalSettings::from(run.sections.at("eval")).metrics, run.splits.val->task());
  const auto sums = evaluate(run, *run.splits.val, 10, meters);
  EXPECT_EQ(number(meters, "top_1_accuracy"), sums.accuracy());
  EXPECT_NEAR(number(meters, "cross_entropy"), sums.mean_loss(), 1e-6);  // its batches have float32 losses
}

// The evaluation of a run shows tables, and that of a checkpoint only numbers: the same ones in the same order.
TEST(EvaluationMetersTest, NumbersOfClassesDoNotDependOnWhetherTablesAreShown) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const char* is_per_class : {"true", "false"}) {
    SmallRun run(world, {{"model.name", "mlp"},
                         {"data.val_size", "60"},
                         {"eval.metrics", "overlap"},
                         {"eval.per_class", is_per_class}});
    const EvalSettings settings = EvalSettings::from(run.sections.at("eval"));
    const auto readings_with = [&](bool has_tables) {
      EvaluationCounts counts(settings, *run.splits.val, metrics::builtin_meters(), has_tables);
      counts.evaluate(world, *run.model.wrapper, *run.splits.val, {7});
      return counts.read();
    };
    const auto shown = readings_with(true);
    EXPECT_EQ(readings_with(false).numbers, shown.numbers);
    ASSERT_FALSE(shown.tables.empty());
    EXPECT_EQ(shown.tables.front().name, "confusion");
    const auto place_of = [&shown](const std::string& name) {
      const auto has_name = [&name](const auto& number) { return number.first == name; };
      return std::find_if(shown.numbers.begin(), shown.numbers.end(), has_name) - shown.numbers.begin();
    };
    const bool has_classes = place_of("accuracy/0") < std::ssize(shown.numbers);
    EXPECT_EQ(has_classes, settings.is_per_class);
    EXPECT_EQ(place_of("accuracy/9") < place_of("iou/0"), has_classes);
  }
}

// The last sample is one rank's alone.
TEST(EvaluationMetersTest, WhatOneRankRefusesEndsOnAllOfThem) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.val_size", "9"}, {"eval.metrics", "shown"}});
  auto rows = counting_rows();
  rows[0].make = [](const Section&, std::int64_t) {
    return metrics::Meter{.results = {{"shown"}},
                          .words = 1,
                          .add =
                              [](const metrics::Samples& samples, std::span<std::int64_t>) {
                                if (samples.indices.back() == 8) throw DataError("sample 8 is refused");
                              },
                          .read = [](std::span<const std::int64_t>) { return metrics::Reading{{0}}; }};
  };
  try {
    measured(run, 1, rows);
    ADD_FAILURE() << "nothing is refused";
  } catch (const DataError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_NE(std::string(error.what()).find("sample 8 is refused"), std::string::npos);
  }
  EXPECT_EQ(number(measured(run, 1, counting_rows()), "shown"), 9);
}

TEST(EvaluationMetersTest, AreReportedBesideLossAndAccuracy) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(
      world,
      with(kTwelveSteps,
           {{"data.val_size", "20"}, {"eval.every", "6"}, {"eval.metrics", "top_k,k=3"}, {"eval.metrics", "auroc"}}));
  run.trainer.add_hook(evaluate_hook(run.sections));
  run.trainer.train();
  std::vector<std::string> names;
  for (const auto& [name, value] : run.trainer.view().measured.values) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"val/loss", "val/accuracy", "val/top_3_accuracy", "val/top_3_precision",
                                      "val/top_3_recall", "val/auroc", "val/auroc_weighted", "val/auroc_one_vs_one"}));
}

TEST(EvaluationMetersTest, AWrongNameEndsTheRunBeforeItsFirstStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"eval.metrics", "top_k,k=11"}}));
  run.trainer.add_hook(evaluate_hook(run.sections));
  try {
    run.trainer.train();
    ADD_FAILURE() << "11 of 10 digits are taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("eval.metrics"), std::string::npos) << error.what();
    EXPECT_EQ(run.trainer.progress().step, 0);
  }
}

// ckpt.better=auto goes by names: it must not take a worse value for the better one.
TEST(EvaluationMetersTest, NamesDoNotMisleadAboutWhatIsBetter) {
  const Task task = {.sample_shape = {10, 8}, .classes = 10};
  for (const metrics::MeterRow& row : metrics::builtin_meters()) {
    const std::string text = row.name;
    for (const metrics::Result& result : metrics::make_meter(text, task, "test").results) {
      const auto better = better_by_name(result.name);
      if (!better) continue;
      EXPECT_EQ(*better, result.is_higher_better ? Better::higher : Better::lower) << result.name;
    }
  }
}

}  // namespace evaluation_meters_test
}  // namespace lockstep::engine
