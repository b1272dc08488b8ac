// SPDX-License-Identifier: BSD-3-Clause
// Each row of runs.txt on the fake GPU, beside the same run on the CPU.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "fake_run.hpp"
#include "run_data.hpp"
#include "run_table.hpp"
#include "support/archives.hpp"
#include "support/sampling.hpp"

namespace lockstep {
namespace runs_test {

using Json = nlohmann::json;
using testing::ProgramResult;
using testing::RunRow;

using Numbers = std::map<std::string, double>;

/// Times, and memory.
bool is_of_the_machine(const std::string& name) {
  static const std::regex words("second|time|wait|thread|_mb|_ms|mfu");
  return std::regex_search(name, words);
}

void add(Numbers& numbers, const std::string& name, const Json& value) {
  if (value.is_structured()) {
    for (const auto& [part, inside] : value.items()) add(numbers, name + " " + part, inside);
  } else if (is_of_the_machine(name)) {
    return;
  } else if (value.is_number()) {
    numbers[name] = value.get<double>();
  } else if (value.is_string()) {  // "NaN"
    if (const auto number = parse_any_real(value.get<std::string>())) numbers[name] = *number;
  }
}

/// Those of a finished training.
Numbers numbers_of_run(const std::string& folder) {
  Numbers numbers;
  std::ifstream lines(folder + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json object = Json::parse(line);
    if (object.contains("step")) add(numbers, "step " + object["step"].dump(), object);
  }
  return numbers;
}

/// Those of the document in what `trainer eval --json` printed.
Numbers numbers_in(const std::string& output) {
  Numbers numbers;
  const std::size_t begin = output.find('{');
  if (begin != std::string::npos) add(numbers, "", Json::parse(output.substr(begin, output.rfind('}') + 1 - begin)));
  return numbers;
}

/// @param bound  relative for losses
double largest_difference(const std::string& name, double expected, double bound) {
  const double size = std::abs(expected);
  return bound * (name.find("loss") != std::string::npos ? size : std::max(1.0, size));
}

void expect_near(const Numbers& numbers, const Numbers& expected, double bound) {
  EXPECT_FALSE(expected.empty());
  for (const auto& [name, value] : expected) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) {
      ADD_FAILURE() << name << " is missing";
    } else if (!std::isfinite(value)) {
      EXPECT_EQ(std::to_string(found->second), std::to_string(value)) << name;
    } else {
      EXPECT_NEAR(found->second, value, largest_difference(name, value, bound)) << name;
    }
  }
  EXPECT_EQ(numbers.size(), expected.size());
}

std::string threads(std::uint64_t seed) {
  return "FAKE_GPU_SCHEDULE=threads FAKE_GPU_DELAY_US=200 FAKE_GPU_SEED=" + std::to_string(seed);
}

/// Orders in which streams may run: all, or a sample.
std::vector<std::string> schedules() {
  const std::uint64_t seed = testing::test_seed();
  if (!testing::is_long_run()) return {threads(seed)};
  return {threads(seed), threads(seed + 1), threads(seed + 2), "FAKE_GPU_SCHEDULE=lazy FAKE_GPU_NCCL_POLLS=5",
          "FAKE_GPU_SCHEDULE=eager FAKE_GPU_NCCL_POLLS=0"};
}

struct Case {
  RunRow row;
  int ranks;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.row.name << " on " << c.ranks; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const RunRow& row : testing::run_rows()) {
    for (const std::int64_t ranks : row.ranks) all.push_back({row, static_cast<int>(ranks)});
  }
  return all;
}

struct Result {
  Numbers numbers = {};
  std::string file = {};        ///< bytes of what predict writes
  std::string checkpoint = {};  ///< the checkpoint of a training
};

class FakeGpuRunTest : public ::testing::TestWithParam<Case> {
 protected:
  const RunRow& row() const { return GetParam().row; }
  bool is_drawn() const { return row().bound == "drawn"; }
  double bound() const { return parse_real(row().bound).value_or(0); }  // 0 = equal bits

  bool has(const std::string& word) const {
    return std::find(row().words.begin(), row().words.end(), word) != row().words.end();
  }

  bool has_digits() const {
    const auto& words = row().words;
    return std::none_of(words.begin(), words.end(), [](const auto& word) { return word.starts_with("data.name="); });
  }

  std::string train() const {
    return (has_digits() ? testing::kFakeRun : " train " + testing::kFakeOptions) + "--log.every=4 ";
  }

  /// @param path  what the run makes
  std::string arguments(const std::string& path, const std::string& device) {
    std::string words = row().command == "eval"      ? " eval --json --from={run}"
                        : row().command == "predict" ? " predict --from={run}"
                                                     : train() + "--run.dir=" + path;
    words += " --run.device=" + device;
    for (const std::string& word : row().words) {
      if (device == "cuda" || word != "comm.backend=nccl") words += " '--" + word + "'";
    }
    return data_.filled_in(words, path);
  }

  ProgramResult on_fake(const std::string& path, const std::string& schedule) {
    const std::string words = arguments(path, "cuda");
    return testing::run_on_fake_gpu(GetParam().ranks, words, testing::kKernelsOfTheFake + schedule);
  }

  ProgramResult on_cpu(const std::string& path) {
    return testing::run_ranks(GetParam().ranks, arguments(path, "cpu"), 120, testing::kKernelsOfTheFake);
  }

  Result result_of(const ProgramResult& outcome, const std::string& path) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    if (row().command == "eval") return {.numbers = numbers_in(outcome.output)};
    if (row().command == "predict") return {.file = predicted(path)};
    return {.numbers = numbers_of_run(path), .checkpoint = checkpoints::latest(path + "/ckpt").value_or("")};
  }

  std::string predicted(const std::string& path) {
    for (const std::string& word : row().words) {
      if (word.starts_with("predict.out=")) {
        return testing::read_file(data_.filled_in(word.substr(word.find('=') + 1), path));
      }
    }
    return "";
  }

  void expect_that_the_gpu_was_used(const ProgramResult& outcome, const std::string& path) const {
    EXPECT_NE(outcome.output.find(row().text), std::string::npos) << outcome.output;
    if (row().command != "train") return;
    EXPECT_NE(testing::read_file(path + "/env.json").find("\"gpus\": \"fake GPU\""), std::string::npos);
    if (has("run.cuda_graphs=true") && row().text.empty()) {
      EXPECT_EQ(outcome.output.find("steps are not captured"), std::string::npos) << outcome.output;
    }
  }

  void expect_equal(const Result& result, const Result& expected) const {
    EXPECT_TRUE(result.file == expected.file) << result.file.substr(0, 1000) << "\n" << expected.file.substr(0, 1000);
    if (row().command == "predict") {
      EXPECT_NE(result.file, "");
    } else {
      expect_near(result.numbers, expected.numbers, bound());
    }
    if (bound() == 0 && row().command == "train") {
      EXPECT_EQ(testing::differences(checkpoints::read(result.checkpoint), checkpoints::read(expected.checkpoint)), "");
    }
  }

  testing::TemporaryFolder folder_;
  testing::RowData data_{folder_};
};

// Masks of other random numbers change a loss by a few percent.
constexpr double kDrawn = 0.2;

TEST_P(FakeGpuRunTest, IsThatOfTheCpu) {
  if (row().command == "refused") {
    const ProgramResult outcome = on_fake(folder_.path("refused"), "");
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_NE(outcome.output.find(row().text), std::string::npos) << outcome.output;
    return;
  }
  const std::string cpu = folder_.path("cpu");
  Result expected = result_of(on_cpu(cpu), cpu);
  if (HasFailure()) return;
  std::vector<std::string> chosen = schedules();
  if (is_drawn() && chosen.size() == 1) chosen.emplace_back("FAKE_GPU_SCHEDULE=lazy");
  for (std::size_t i = 0; i < chosen.size() && !HasFailure(); ++i) {
    SCOPED_TRACE(chosen[i]);
    const std::string path = folder_.path("fake" + std::to_string(i));
    const ProgramResult outcome = on_fake(path, chosen[i]);
    const Result result = result_of(outcome, path);
    expect_that_the_gpu_was_used(outcome, path);
    if (is_drawn() && i == 0) {
      expect_near(result.numbers, expected.numbers, kDrawn);
      expected = result;
    } else {
      expect_equal(result, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FakeGpuRunTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.row.name + "_" + std::to_string(test.param.ranks); });

// Otherwise, an equal result would prove nothing.
TEST(FakeGpuCommandsTest, EachUsesTheGpu) {
  const testing::TemporaryFolder folder;
  testing::RowData data(folder);
  const std::string train = testing::kFakeRun.substr(testing::kFakeRun.find("--"));
  for (const std::string& command :
       {" train " + train + "--run.dir={out}", " lr-find --steps=4 " + train, std::string(" eval --from={run}"),
        std::string(" predict --from={run} --predict.out={out}.jsonl")}) {
    const ProgramResult outcome = testing::run_on_fake_gpu(
        1, data.filled_in(command, folder.path("out")) + " --run.device=cuda", "FAKE_GPU_FAULT=sticky:1");
    EXPECT_EQ(outcome.exit_code, 70) << outcome.output;
    EXPECT_NE(outcome.output.find("device-side assert triggered"), std::string::npos) << outcome.output;
  }
}

TEST(FakeGpuCommandsTest, LearningRatesAndExportsAreThoseOfTheCpu) {
  const testing::TemporaryFolder folder;
  testing::RowData data(folder);
  const auto output = [&](const std::string& command, const std::string& device) {
    const std::string words = data.filled_in(command, folder.path(device)) + " --run.device=" + device;
    const ProgramResult outcome = device == "cuda" ? testing::run_on_fake_gpu(1, words, testing::kKernelsOfTheFake)
                                                   : testing::run_ranks(1, words, 120, testing::kKernelsOfTheFake);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  };
  const std::string find = " lr-find --steps=12 " + testing::kFakeRun.substr(testing::kFakeRun.find("--")) +
                           "--optim.name=sgd --curve={out}.svg";
  output(find, "cpu");
  output(find, "cuda");
  EXPECT_EQ(testing::read_file(folder / "cuda.svg"), testing::read_file(folder / "cpu.svg"));
  EXPECT_NE(testing::read_file(folder / "cuda.svg"), "");
  const std::string script = testing::golden("models/torchscript/scripted.pt").string();
  const ProgramResult trained = testing::run_ranks(
      1, " train " + testing::kFakeOptions + "--train.max_steps=2 --data.name=synthetic --data.shape=3,32,32 " +
             "--data.size=96 --data.classes=4 --model.name=torchscript --model.file=" + script +
             " --run.dir=" + folder.path("script"));
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  const std::string command = " export " + folder.path("script") + " --to={out}.pt";
  output(command, "cpu");
  output(command, "cuda");
  EXPECT_EQ(testing::read_file(folder / "cuda.pt"), testing::read_file(folder / "cpu.pt"));
  EXPECT_NE(testing::read_file(folder / "cuda.pt"), "");
}

}  // namespace runs_test
}  // namespace lockstep
