// SPDX-License-Identifier: BSD-3-Clause
// `trainer plan` and `trainer job`, compared with runs of the same configuration.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <sys/resource.h>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace plan_test {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ProgramResult;

const std::string kSmall = " --data.train_size=480 --data.val_size=48 --train.global_batch_size=8";

json parsed(const ProgramResult& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::size_t begin = outcome.output.find("{\n");
  if (begin == std::string::npos) return {};
  return json::parse(outcome.output.substr(begin, outcome.output.rfind('}') + 1 - begin));
}

json plan_on(int ranks, const std::string& arguments) {
  return parsed(testing::run_ranks(ranks, "plan --json --measure-s 0.1" + arguments));
}

/// The output of a command on one rank.
ProgramResult alone(const std::string& arguments) {
  return testing::run_shell(testing::trainer_program() + " " + arguments);
}

struct Configuration {
  const char* name;
  std::string arguments;
};

const std::vector<Configuration>& configurations() {
  static const std::vector<Configuration> all = {
      {"cnn", ""},
      {"average", " --ema.kind=ema"},
      {"batch norm and momentum", " --model.name=resnet18 --optim.name=sgd --optim.momentum=0.9"},
      {"matrices", " --optim.name=muon --optim.lr=0.01"},
      {"own shapes", " --optim.name=adafactor"},
      {"one optimizer per part", " --optim.part=classifier,name=sgd,momentum=0.9 --optim.part=others,names=rest"},
      {"frozen", " --finetune.train=head"},
      {"shards", " --strategy.name=sharded --strategy.stage=3"},
  };
  return all;
}

std::int64_t sum_of(const checkpoints::Archive& archive, const std::string& group) {
  std::int64_t bytes = 0;
  for (const std::string& path : archive.array_paths()) {
    const bool is_own = archive.first_path_of(path).empty();
    if (is_own && path.starts_with(group)) bytes += static_cast<std::int64_t>(archive.array(path).bytes.size());
  }
  return bytes;
}

TEST(PlanTest, CheckpointsHaveThePlannedBytes) {
  for (const Configuration& each : configurations()) {
    const testing::TemporaryFolder folder;
    const std::string keys = kSmall + each.arguments;
    const json computed = parsed(alone("plan --json --computed" + keys)).at("computed");
    const ProgramResult run =
        testing::run_ranks(2, "--quiet --train.max_steps=2 --run.dir=" + folder.path("run") + keys);
    ASSERT_EQ(run.exit_code, 0) << each.name << run.output;
    const std::string checkpoint = folder.path("run/ckpt/") + checkpoints::folder_name(2);
    const checkpoints::Archive archive = checkpoints::read(checkpoint);
    const json& planned = computed.at("checkpoint");
    EXPECT_EQ(planned.at("model_bytes"), sum_of(archive, "/model/")) << each.name;
    // Besides the state, an optimizer stores counts of updates, names and numbers.
    std::int64_t state = sum_of(archive, "/ema/");
    std::int64_t parameters = 0;
    for (const std::string& path : archive.array_paths()) {
      const checkpoints::Array& array = archive.array(path);
      const bool is_state = path.starts_with("/optim/") && path.find("/state/") != std::string::npos;
      if (is_state) state += static_cast<std::int64_t>(array.bytes.size());
      if (!path.starts_with("/model/params/") || !archive.first_path_of(path).empty()) continue;
      parameters += static_cast<std::int64_t>(array.bytes.size() / size_of(array.dtype));
    }
    EXPECT_EQ(planned.at("optimizer_bytes"), state) << each.name;
    EXPECT_EQ(computed.at("parameters"), parameters) << each.name;
    std::int64_t size = 0;
    for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
      if (entry.is_regular_file()) size += static_cast<std::int64_t>(entry.file_size());
    }
    // Names, digests, the configuration and the environment of the run come with the arrays.
    EXPECT_GE(size, planned.at("bytes").get<std::int64_t>()) << each.name;
    EXPECT_LT(size, planned.at("bytes").get<std::int64_t>() + 400'000) << each.name;
  }
}

TEST(PlanTest, RanksHoldThePlannedMemory) {
  for (const int ranks : {1, 2}) {
    for (const Configuration& each : configurations()) {
      if (ranks == 1 && !each.arguments.empty() && !testing::is_long_run()) continue;
      const json plan = plan_on(ranks, kSmall + each.arguments + " --train.global_batch_size=2");
      ASSERT_TRUE(plan.contains("measured")) << each.name;
      const json& computed = plan.at("computed").at("ranks").at(0).at("memory_bytes");
      const json& held = plan.at("measured").at("memory_bytes");
      for (const char* kind : {"parameters", "optimizer", "buffers", "sharers"}) {
        EXPECT_EQ(computed.at(kind), held.at(kind)) << each.name << " " << kind << " on " << ranks;
      }
      const bool has_buckets = ranks > 1 && std::string(each.name) != "shards";
      if (!has_buckets) continue;
      EXPECT_EQ(computed.at("gradients"), held.at("gradients")) << each.name;
    }
  }
}

TEST(PlanTest, MeasuresAndPredictsOnOneAndTwoRanks) {
  for (const int ranks : {1, 2}) {
    const json plan = plan_on(ranks, kSmall + " --mtbf-hours 1000 --train.time_limit=1");
    const json& measured = plan.at("measured");
    EXPECT_EQ(measured.at("ranks"), ranks);
    EXPECT_EQ(measured.at("checks").size(), static_cast<std::size_t>(ranks));
    double phases = 0;
    for (const char* phase : {"forward", "backward", "optimizer_step"}) {
      EXPECT_GT(measured.at("phases_s").at(phase), 0) << phase;
      phases += measured.at("phases_s").at(phase).get<double>();
    }
    EXPECT_LT(phases, measured.at("phases_s").at("train_step_total"));
    // A convolution of 32 channels for 8 / ranks images of 28 x 28 pixels is kept for backward.
    EXPECT_GT(measured.at("activation_bytes"), 8 / ranks * 26 * 26 * 16 * 4);
    const double per_rank = measured.at("activation_bytes").get<double>() + measured.at("process_bytes").get<double>();
    EXPECT_DOUBLE_EQ(measured.at("host_total_bytes").get<double>(),
                     plan.at("computed").at("host_bytes").get<double>() + ranks * per_rank);
    const json& predicted = plan.at("predicted");
    EXPECT_GT(predicted.at("step_s"), 0);
    EXPECT_LT(predicted.at("step_low_s"), predicted.at("step_s"));
    EXPECT_GT(predicted.at("step_high_s"), predicted.at("step_s"));
    EXPECT_EQ(predicted.at("limit_s"), 1);
    const double seconds = std::min(1.0, predicted.at("run_s").get<double>());
    EXPECT_DOUBLE_EQ(predicted.at("rank_hours").get<double>(), seconds / 3600 * ranks);
    EXPECT_EQ(predicted.at("between_s"), 0);
    EXPECT_EQ(predicted.at("inside_s").get<double>() > 0, ranks > 1);
    EXPECT_GT(plan.at("reliability").at("daly_s"), 0);
    EXPECT_EQ(plan.at("reliability").at("job_mtbf_s"), 3.6e6);
  }
}

TEST(PlanTest, AnotherJobHasOtherNumbers) {
  const std::string keys = " --ranks 512 --hosts 64" + kSmall + " --train.global_batch_size=480";
  const json plan = plan_on(2, keys + " --link-gbit 100 --latency-us 2");
  EXPECT_EQ(plan.at("backend"), "hierarchical");
  const json& computed = plan.at("computed");
  ASSERT_EQ(computed.at("ranks").size(), 3U);
  EXPECT_EQ(computed.at("ranks").at(1).at("rank"), 256);
  EXPECT_EQ(computed.at("ranks").at(2).at("samples"), 0);
  EXPECT_NE(computed.at("warnings").at(0).get<std::string>().find("32 of 512 ranks without a sample"),
            std::string::npos);
  EXPECT_GT(plan.at("predicted").at("between_s"), 0);
  // A link of a tenth of the speed takes more time.
  const json slow = plan_on(2, keys + " --link-gbit 10 --latency-us 2");
  EXPECT_GT(slow.at("predicted").at("between_s"), plan.at("predicted").at("between_s"));
}

TEST(PlanTest, TenThousandRanksAreQuickAndSmall) {
  const json plan = parsed(alone(
      "plan --json --ranks 10000 --hosts 625 --measure-s 0.1 --data.train_size=10000 --train.global_batch_size=10000"));
  EXPECT_LT(plan.at("planning_s"), 1);
  EXPECT_GT(plan.at("predicted").at("step_s"), 0);
  rusage children{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &children), 0);
  EXPECT_LT(children.ru_maxrss, 1'000'000) << "kB";
}

TEST(PlanTest, ThePageHasAllParts) {
  const ProgramResult page = testing::run_ranks(2, "plan --measure-s 0.1 --mtbf-hours 100" + kSmall);
  ASSERT_EQ(page.exit_code, 0) << page.output;
  std::size_t position = 0;
  for (const char* words :
       {"2 ranks on 1 host", "\nComputed\n", "\nMeasured here\n", "\nPredicted\n", "\nReliability\n"}) {
    position = page.output.find(words, position);
    EXPECT_NE(position, std::string::npos) << words << " is missing in: " << page.output;
  }
  EXPECT_EQ(page.output.find("warning r0"), std::string::npos) << page.output;
}

TEST(PlanTest, NothingIsLeftBehind) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_shell("cd " + folder.path() + " && " + testing::trainer_program() +
                                                   " plan --measure-s 0.1 --run.dir=" + folder.path("a/b") + kSmall);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(fs::is_empty(folder.path())) << *fs::directory_iterator(folder.path());
}

TEST(PlanTest, ADryRunPlansTheRanksAtHandAndLeavesNothingBehind) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = testing::run_ranks(
      2, "train --run.dry_run=true --train.time_limit=01:00:00 --run.dir=" + folder.path("a") + kSmall);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* words : {"2 ranks on 1 host", "\nComputed\n", "\nMeasured here\n", "\nPredicted\n"}) {
    EXPECT_NE(outcome.output.find(words), std::string::npos) << words << " is missing in: " << outcome.output;
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << *fs::directory_iterator(folder.path());
}

struct BadInput {
  const char* arguments;
  const char* words;
};

TEST(PlanTest, BadInputIsOneSentence) {
  for (const auto& [arguments, words] : std::vector<BadInput>{
           {"plan --ranks 0", "--ranks: '0' is not a number from 1 to 1000000"},
           {"plan --ranks 2.5", "--ranks: '2.5' is not an integer"},
           {"plan --ranks 2 --hosts 3", "2 ranks cannot run on 3 hosts"},
           {"plan --link-gbit x", "--link-gbit: 'x' is not a number"},
           {"plan --computed --mtbf-hours 3", "--mtbf-hours has no effect with --computed"},
           {"plan --measure-s 0.01 --train.time_limit=soon",
            "train.time_limit (command line): 'soon' is not a duration"},
           {"plan --save-s 3", "--save-s requires --mtbf-hours"},
           {"job", "job needs --slurm"},
           {"job --slurm --time x", "--time: 'x' is not a duration"},
           {"job --slurm --plan /nowhere", "/nowhere cannot be read"},
           {"job --slurm --plan /dev/null", "is not JSON"},
       }) {
    const ProgramResult outcome = alone(std::string(arguments) + " --log.level=warning");
    EXPECT_EQ(outcome.exit_code, 2) << arguments << outcome.output;
    const auto lines = testing::error_lines(outcome.output);
    ASSERT_EQ(lines.size(), 1U) << outcome.output;
    EXPECT_NE(lines[0].find(words), std::string::npos) << lines[0];
  }
}

TEST(PlanTest, AFailureOfSomeRanksEndsAllOfThem) {
  const ProgramResult outcome = testing::run_ranks(2, "plan --train.lanes=8 --ddp.comm_hook=fp16" + kSmall, 30);
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  EXPECT_NE(outcome.output.find("ddp.comm_hook"), std::string::npos) << outcome.output;
}

// ---- job scripts

TEST(JobTest, APlanBecomesAScriptThatBashAccepts) {
  const testing::TemporaryFolder folder;
  const std::string keys = " --ranks 64 --hosts 8 --train.global_batch_size=64 --data.train_size=640";
  const ProgramResult plan = alone("plan --json --measure-s 0.1" + keys + " > " + folder.path("plan.json"));
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  testing::write_file(folder.path("a.ini"), "[optim]\nlr = 0.5\n");
  const ProgramResult script = alone("job --slurm --plan " + folder.path("plan.json") + " --cpus 2 --config " +
                                     folder.path("a.ini") + " '--run.name=it'\\''s' > " + folder.path("job"));
  ASSERT_EQ(script.exit_code, 0) << script.output;
  const std::string text = testing::read_file(folder.path("job"));
  for (const std::string line : {"#SBATCH --ntasks=64\n", "#SBATCH --nodes=8\n", "#SBATCH --cpus-per-task=2\n",
                                 "#SBATCH --mem-per-cpu=", "#SBATCH --time=", "--config=", "'--run.name=it'\\''s'"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  const ProgramResult checked = testing::run_shell("bash -n " + folder.path("job"));
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
  EXPECT_EQ(alone("job --slurm --ranks 3 --plan " + folder.path("plan.json")).exit_code, 2);
}

/// Submits a script, and prints what the job wrote.
TEST(JobTest, SlurmRunsTheScript) {
  const testing::TemporaryFolder folder;
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  const std::string tools = (source != nullptr ? source : ".") + std::string("/tests/system/");
  const ProgramResult script =
      alone("job --slurm --ranks 2 --hosts 1 --time 0:10:00 --train.max_steps=3" + kSmall + " > " + folder.path("job"));
  ASSERT_EQ(script.exit_code, 0) << script.output;
  testing::write_file(folder.path("submit"), "cd " + folder.path() + " && sbatch --wait --parsable job; cat ./*.out\n");
  const ProgramResult job =
      testing::run_shell("export LOCKSTEP_TRAINER=" + testing::trainer_program() + "; " + tools + "private_slurm.sh " +
                             folder.path("slurm") + " bash " + folder.path("submit"),
                         300);
  constexpr int kNotPermitted = 77;
  if (job.exit_code == kNotPermitted) GTEST_SKIP() << job.output;
  const std::string run = folder.path("runs/lockstep-1");
  EXPECT_NE(testing::read_file(run + "/STATUS.json").find("\"done\""), std::string::npos) << job.output;
  EXPECT_NE(job.output.find("2 ranks on 1 host"), std::string::npos) << job.output;
}

// ---- the error bar

/// The median time of a step of a run.
double true_step(int ranks) {
  const testing::TemporaryFolder folder;
  const ProgramResult run = testing::run_ranks(
      ranks, "--quiet --train.max_steps=120 --log.every=1 --eval.every=never --ckpt.every=never --run.dir=" +
                 folder.path("run"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  std::vector<double> seconds;
  for (const auto& [step, value] : report::read_series(folder.path("run/metrics.jsonl"), "seconds_per_step")) {
    if (step > 10) seconds.push_back(value);
  }
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2));
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

/// Long, because it measures times. The error bar holds the true time in nine of ten trials.
TEST(PlanTest, TheErrorBarHoldsTheTrueTimeOfAStep) {
  if (!testing::is_long_run()) GTEST_SKIP() << "measures times for minutes; runs with tools/test --long";
  constexpr int kTrials = 10;
  for (const int ranks : {1, 2, 4}) {
    int held = 0;
    std::string trials;
    for (int trial = 0; trial < kTrials; ++trial) {
      const json predicted = parsed(testing::run_ranks(ranks, "plan --json")).at("predicted");
      const double seconds = true_step(ranks);
      const bool is_held = predicted.at("step_low_s") <= seconds && seconds <= predicted.at("step_high_s");
      held += is_held ? 1 : 0;
      trials += "\n" + predicted.at("step_low_s").dump() + " <= " + std::to_string(seconds) +
                " <= " + predicted.at("step_high_s").dump() + (is_held ? "" : " misses");
    }
    EXPECT_GE(held, 9) << ranks << " ranks" << trials;
    std::cout << ranks << " ranks: " << held << " of " << kTrials << trials << "\n";
  }
}

}  // namespace plan_test
}  // namespace lockstep
