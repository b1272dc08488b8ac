// SPDX-License-Identifier: BSD-3-Clause
// Whatever stops a run of several ranks, the last line on the console states which rank is to blame and what it does,
// failure.json repeats it, and failure.html shows every rank.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "core/text/text.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace failure_screen_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::ProgramResult;

constexpr int kCommunication = 5;
constexpr double kSecondsToADeath = 10;
constexpr double kTimeout = 3;              // comm.timeout_s of the runs
constexpr double kSecondsAfterTimeout = 2;  // limit of the verdict
constexpr double kSecondsToTheEnd = 3;      // time that the launcher takes

const std::string kEndless =
    " --model.name=mlp --model.hidden=32 --train.max_steps=100000000 --data.train_size=480 --log.every=1 "
    "--ckpt.every=never --log.tensorboard=false --comm.timeout_s=3";
const std::string kNoEvaluation = " --eval.every=never";

/// A shell function: the process of a rank of the job.
const std::string kFindRank =
    "process_of() { for p in $(cat /proc/$job/task/$job/children); do tr '\\0' '\\n' < /proc/$p/environ | "
    "grep -qx OMPI_COMM_WORLD_RANK=$1 && echo $p; done; }; ";

/// Waits in a shell until a condition holds, at most 20 s.
std::string until(const std::string& condition) {
  return "for i in $(seq 400); do " + condition + " && break; sleep 0.05; done; ";
}

struct Scene {
  testing::TemporaryFolder folder;
  std::string run = folder.path("run");

  /// Trains on three ranks and does something once the run makes steps.
  /// @param action  of a shell; `victim` is rank `rank`, $job is mpirun
  ProgramResult act(const std::string& options, int rank, const std::string& action) const {
    return testing::run_shell(
        testing::mpirun_command(3) + " " + testing::trainer_program() + kEndless + options + " --run.dir=" + run +
        " & job=$!; " + kFindRank + until("[ $(cat " + run + "/metrics.jsonl 2>/dev/null | wc -l) -ge 20 ]") +
        "victim=$(process_of " + std::to_string(rank) + "); touch " + folder.path("begin") + "; " + action +
        "; wait $job; code=$?; touch " + folder.path("end") + "; kill -9 $victim 2>/dev/null; exit $code");
  }

  double seconds() const {
    const auto took = fs::last_write_time(folder / "end") - fs::last_write_time(folder / "begin");
    return std::chrono::duration<double>(took).count();
  }

  Json json(const std::string& name) const {
    return Json::parse(testing::read_file(run + "/" + name), nullptr, /*allow_exceptions=*/false);
  }
};

/// The lines on the console that report an error of a rank.
std::vector<std::string> lines_of_ranks(const std::string& output) {
  std::vector<std::string> lines;
  for (const std::string& line : lines_in(output)) {
    if (line.find(" error r") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

/// Expects the verdict in all three places.
/// @param pattern  regular expression of the verdict
void expect_verdict(const Scene& scene, const ProgramResult& outcome, const std::string& pattern) {
  const Json failure = scene.json("failure.json");
  ASSERT_TRUE(failure.is_object()) << outcome.output;
  const std::string verdict = failure.value("verdict", "");
  EXPECT_TRUE(std::regex_search(verdict, std::regex("^" + pattern + "$"))) << verdict << "\n" << outcome.output;
  const std::vector<std::string> lines = lines_of_ranks(outcome.output);
  ASSERT_FALSE(lines.empty()) << outcome.output;
  EXPECT_TRUE(lines.back().ends_with(" " + verdict + "; see " + scene.run + "/failure.html")) << outcome.output;
  EXPECT_EQ(failure["ranks"].size(), 3U);
  const std::string page = testing::read_file(scene.run + "/failure.html");
  EXPECT_NE(page.find(verdict.substr(0, verdict.find(' ', 8))), std::string::npos);
}

const std::string kName = R"( \(process \d+ on [^ ]+\) )";

TEST(FailureScreenTest, NamesTheRankThatWasKilled) {
  for (const int rank : {1, 0}) {
    const Scene scene;
    const ProgramResult outcome = scene.act("", rank, "kill -KILL $victim");
    EXPECT_NE(outcome.exit_code, 0);
    expect_verdict(scene, outcome, "rank " + std::to_string(rank) + kName + R"(was killed by signal 9 \(KILL\) .+)");
    EXPECT_LT(scene.seconds(), kSecondsToADeath);
    const Json others = scene.json("failure.json")["ranks"][static_cast<std::size_t>(2)];
    ASSERT_FALSE(others["threads"].empty());
    EXPECT_NE(others["threads"][0]["stack"].dump().find("lockstep::"), std::string::npos) << others.dump(2);
  }
}

TEST(FailureScreenTest, NamesTheSignalOfACrash) {
  const Scene scene;
  const ProgramResult outcome = scene.act("", 2, "kill -SEGV $victim");
  expect_verdict(scene, outcome, "rank 2" + kName + R"(crashed with signal 11 \(SEGV\) .+)");
}

// Rank 0, which writes the files of a run, continues while the job ends, and leaves them as they are.
TEST(FailureScreenTest, NamesTheRankThatIsStopped) {
  for (const std::string backend : {"shm", "mpi", "hierarchical --comm.hosts=3"}) {
    const Scene scene;
    const int rank = backend == "shm" ? 0 : 1;
    const ProgramResult outcome = scene.act(kNoEvaluation + " --comm.backend=" + backend, rank, "kill -STOP $victim");
    EXPECT_EQ(outcome.exit_code, kCommunication) << outcome.output;
    expect_verdict(scene, outcome,
                   "rank " + std::to_string(rank) + kName + R"(is stopped, .+; kill -CONT \d+ lets it continue)");
    EXPECT_LT(scene.seconds(), kTimeout + kSecondsAfterTimeout + kSecondsToTheEnd) << outcome.output;
    EXPECT_EQ(scene.json("failure.json")["ranks"][static_cast<std::size_t>(rank)]["state"], "is stopped");
    EXPECT_EQ(scene.json("STATUS.json")["state"], "failed");
  }
}

TEST(FailureScreenTest, NamesTheRankThatIsStoppedWhileACommunicationHookIsUsed) {
  const Scene scene;
  const ProgramResult outcome = scene.act(kNoEvaluation + " --ddp.comm_hook=powersgd", 1, "kill -STOP $victim");
  EXPECT_EQ(outcome.exit_code, kCommunication) << outcome.output;
  expect_verdict(scene, outcome, "rank 1" + kName + "is stopped, .+");
}

std::string failing_program() {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/tests/system/failing_program";
}

/// A run of the failing program.
ProgramResult fail(const Scene& scene, const std::string& place, const std::string& options) {
  return testing::run_shell("LOCKSTEP_FAILS=" + place + " LOCKSTEP_STAMP=" + scene.folder.path("stamp") + " " +
                            testing::mpirun_command(3) + " " + failing_program() +
                            " --model.name=failing --data.train_size=480 --ckpt.every=never --comm.timeout_s=3 " +
                            options + " --run.dir=" + scene.run);
}

TEST(FailureScreenTest, NamesTheFileThatHangs) {
  const Scene scene;
  const std::string pipe = scene.folder.path("stamp");
  ASSERT_EQ(testing::run_shell("mkfifo " + pipe).exit_code, 0);
  const ProgramResult outcome =
      fail(scene, "file", "--data.name=samples --train.max_steps=1000 --eval.every=never --data.workers=1");
  EXPECT_EQ(outcome.exit_code, kCommunication) << outcome.output;
  expect_verdict(scene, outcome,
                 "rank 2" + kName +
                     R"(is late: it has been waiting for data of step \d+ for \d\.\d s, and loader thread 0 )" +
                     R"(loads sample \d+ \()" + pipe + R"(\) of the training data)");
  const std::string stacks = scene.json("failure.json")["ranks"][2]["threads"].dump();
  EXPECT_NE(stacks.find("Samples::sample"), std::string::npos) << stacks;
}

// The agreements of an evaluation have no time limit of their own.
TEST(FailureScreenTest, NamesTheRankThatIsStoppedInAnEvaluation) {
  const Scene scene;
  const ProgramResult outcome = fail(scene, "stop", "--train.max_steps=40 --eval.metrics=failing --eval.every=20");
  EXPECT_EQ(outcome.exit_code, kCommunication) << outcome.output;
  expect_verdict(scene, outcome,
                 "rank 2" + kName + "is stopped, in the forward pass in the evaluation after step 20 .+");
  EXPECT_EQ(scene.json("failure.json")["ranks"][0]["phase"], "agreement");
}

TEST(FailureScreenTest, NamesTheRankThatIsStoppedInASave) {
  const Scene scene;
  const ProgramResult outcome =
      fail(scene, "stop_in_save", "--train.hooks=failing --train.max_steps=40 --eval.every=never --ckpt.every=20");
  EXPECT_EQ(outcome.exit_code, kCommunication) << outcome.output;
  expect_verdict(scene, outcome, "rank 2" + kName + R"(is stopped, in the save after step 20 for \d\.\d s; kill .+)");
}

// An error of one rank alone is the verdict, and no second line follows.
TEST(FailureScreenTest, ShowsTheRanksAtAnErrorOfOne) {
  const Scene scene;
  const ProgramResult outcome = fail(scene, "hook", "--train.hooks=failing --train.max_steps=1000");
  EXPECT_EQ(lines_of_ranks(outcome.output).size(), 1U) << outcome.output;
  const Json failure = scene.json("failure.json");
  EXPECT_NE(failure["verdict"].get<std::string>().find("the hook of this test fails"), std::string::npos);
  EXPECT_EQ(failure["ranks"].size(), 3U);
  EXPECT_TRUE(fs::exists(scene.run + "/failure.html"));
}

TEST(FailureScreenTest, TellsThatARankHasAnotherConfiguration) {
  const Scene scene;
  const std::string rank = testing::trainer_program() + kEndless + kNoEvaluation + " --run.dir=" + scene.run;
  const ProgramResult outcome =
      testing::run_shell(testing::mpirun_command(2) + " " + rank + " : -np 1 " + rank + " --train.clip_norm=1");
  EXPECT_NE(outcome.output.find("rank 2 has another configuration than rank 0: train.clip_norm = 1, not 0"),
            std::string::npos)
      << outcome.output;
  expect_verdict(scene, outcome,
                 ".*the ranks call different operations: .+; rank 2 has another configuration than rank 0");
  EXPECT_EQ(scene.json("failure.json")["ranks"][2]["configuration_differs"], true);
}

TEST(FailureScreenTest, ShowsTheMemoryOfAllRanksWhenThereIsNoMore) {
  const Scene scene;
  const ProgramResult outcome =
      testing::run_shell("ulimit -v 5000000; " + testing::mpirun_command(2) + " " + testing::trainer_program() +
                         kEndless + kNoEvaluation + " --model.hidden=60000,60000 --run.dir=" + scene.run);
  EXPECT_EQ(outcome.exit_code, 7) << outcome.output;
  const Json failure = scene.json("failure.json");
  EXPECT_TRUE(failure["verdict"].get<std::string>().starts_with("out of memory: 14400000000 bytes were requested; "))
      << failure["verdict"];
  ASSERT_EQ(failure["ranks"].size(), 2U);
  EXPECT_GT(failure["ranks"][0]["memory_mb"], 0);
  EXPECT_GT(failure["ranks"][1]["memory_mb"], 0);
}

// The first layer has 784 * 2000 + 2000 numbers of 4 bytes, and its output in a step of a rank 600 * 2000.
TEST(DumpTest, NamesTheBlocksThatTakeMostMemory) {
  constexpr double kMegabyte = 1 << 20;
  const Scene scene;
  const ProgramResult outcome = scene.act(
      kNoEvaluation + " --model.hidden=2000,100 --data.train_size=1800 --train.global_batch_size=1800", 1,
      "touch " + scene.run + "/DUMP; " + until("[ ! -e " + scene.run + "/DUMP ]") + "touch " + scene.run + "/STOP");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const Json dump = scene.json("dump.json");
  ASSERT_EQ(dump["ranks"].size(), 3U) << outcome.output;
  for (const Json& rank : dump["ranks"]) {
    const Json& largest = rank["largest_blocks"].at(0);
    EXPECT_EQ(largest["parameters_mb"], (784 * 2000 + 2000) * 4 / kMegabyte) << rank;
    EXPECT_GE(largest["forward_mb"], 600 * 2000 * 4 / kMegabyte) << rank;
    EXPECT_GT(rank["peak_memory_mb"], largest["forward_mb"]) << rank;
  }
  EXPECT_NE(testing::read_file(scene.run + "/dump.html").find("(parameters 6 MiB, first forward pass "),
            std::string::npos);
}

// A control group with little memory, where this test may make one.
TEST(FailureScreenTest, TellsThatTheSystemKilledARankForItsMemory) {
  constexpr int kNotPermitted = 77;
  const Scene scene;
  const ProgramResult outcome = testing::run_shell(
      "group=/sys/fs/cgroup/memory$(sed -n 's/^.*:memory://p' /proc/self/cgroup)/lockstep_$$; mkdir $group && "
      "echo 400M > $group/memory.limit_in_bytes || exit 77; (sh -c 'echo $PPID' > $group/cgroup.procs; exec " +
      testing::mpirun_command(2) + " " + testing::trainer_program() + kEndless + kNoEvaluation +
      " --model.hidden=4000,4000 --run.dir=" + scene.run + "); code=$?; sleep 1; rmdir $group; exit $code");
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  const std::string verdict = scene.json("failure.json").value("verdict", "");
  EXPECT_TRUE(std::regex_search(
      verdict,
      std::regex("^rank [01]" + kName + R"(was killed by signal 9 \(KILL\) because )" + "memory was lacking, ")))
      << verdict << "\n"
      << outcome.output;
}

TEST(DumpTest, DescribesARunThatContinues) {
  const Scene scene;
  const ProgramResult outcome = scene.act(
      kNoEvaluation, 1,
      "touch " + scene.run + "/DUMP; " + until("[ ! -e " + scene.run + "/DUMP ]") + "touch " + scene.run + "/STOP");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const Json dump = scene.json("dump.json");
  ASSERT_TRUE(dump.is_object()) << outcome.output;
  EXPECT_TRUE(dump["verdict"].get<std::string>().starts_with("no rank is late; rank 0 ")) << dump["verdict"];
  EXPECT_EQ(dump["ranks"].size(), 3U);
  for (const Json& rank : dump["ranks"]) EXPECT_FALSE(rank["threads"].empty()) << rank;
  EXPECT_TRUE(fs::exists(scene.run + "/dump.html"));
  EXPECT_FALSE(fs::exists(scene.run + "/failure.json"));
}

TEST(DumpTest, NamesTheRankForWhichOthersWait) {
  const Scene scene;
  const ProgramResult outcome =
      scene.act(kNoEvaluation + " --comm.timeout_s=100", 0,
                "kill -STOP $victim; sleep 1.5; touch " + scene.run + "/DUMP; " +
                    until("[ ! -e " + scene.run + "/DUMP ]") + "kill -CONT $victim; touch " + scene.run + "/STOP");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string verdict = scene.json("dump.json").value("verdict", "");
  EXPECT_TRUE(std::regex_search(verdict, std::regex("^rank 0" + kName + "is stopped, "))) << verdict;
}

// Ranks that work on are not ended, however long the others wait for them to agree.
TEST(DumpTest, IsWrittenWhenRanksWaitLongInAnEvaluation) {
  const Scene scene;
  const ProgramResult outcome = fail(scene, "slow", "--train.max_steps=40 --eval.metrics=failing --eval.every=20");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("ranks have waited longer than comm.timeout_s for the agreement of all"),
            std::string::npos)
      << outcome.output;
  const std::string verdict = scene.json("dump.json").value("verdict", "");
  EXPECT_TRUE(std::regex_search(verdict, std::regex("^rank 2" + kName + "is late: .+ in the evaluation after step ")))
      << verdict;
}

// Each host asks the other one. Hosts are made of namespaces where that is permitted.
TEST(FailureOfHostsTest, TheRanksOfBothHostsAreOnThePage) {
  constexpr int kNotPermitted = 77;
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  for (const std::string way : {"stop", "kill"}) {
    const Scene scene;
    const ProgramResult outcome = testing::run_shell(
        std::string(source != nullptr ? source : ".") + "/tests/system/two_hosts.sh '" + scene.folder.path() +
            "' 2 env LOCKSTEP_FAILS=" + way + " " + failing_program() +
            " --model.name=failing --data.train_size=480 --ckpt.every=never --comm.timeout_s=3 --train.hooks=failing "
            "--train.max_steps=1000 --eval.every=never --run.dir=" +
            scene.run,
        60);
    if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
    const Json failure = scene.json("failure.json");
    ASSERT_TRUE(failure.is_object()) << outcome.output;
    const std::string verdict = failure.value("verdict", "");
    EXPECT_TRUE(verdict.starts_with("rank 3 (process ")) << verdict;
    EXPECT_NE(verdict.find(way == "stop" ? " on nodeb) is stopped" : " on nodeb) was killed by signal 9 (KILL)"),
              std::string::npos)
        << verdict;
    ASSERT_EQ(failure["ranks"].size(), 4U);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(failure["ranks"][rank].value("threads", Json::array()).empty()) << failure["ranks"][rank];
    }
    const std::vector<std::string> lines = lines_of_ranks(outcome.output);
    ASSERT_FALSE(lines.empty()) << outcome.output;
    EXPECT_NE(lines.back().find(verdict), std::string::npos) << outcome.output;
  }
}

}  // namespace failure_screen_test
}  // namespace lockstep
