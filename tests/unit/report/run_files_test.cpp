// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/run_files.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/system/memory.hpp"
#include "folder.hpp"

namespace lockstep::report {
namespace run_files_test {

TEST(RunFilesTest, AFileIsReplacedAsAWhole) {
  const Folder folder;
  folder.write("a.txt", "old, and longer than the new one");
  std::filesystem::create_hard_link(folder.path("a.txt"), folder.path("same"));
  write_text(folder.path("a.txt"), "new\n");
  EXPECT_EQ(folder.read("a.txt"), "new\n");
  EXPECT_EQ(folder.read("same"), "old, and longer than the new one");  // replaced, not overwritten
  EXPECT_EQ(folder.count(), 2u);
}

TEST(RunFilesTest, AFailedWriteLeavesTheOldFileAndNoOther) {
  const Folder folder;
  std::filesystem::create_directory(folder.path("taken"));
  EXPECT_EQ(sentence_of([&] { write_text(folder.path("taken"), "x"); }),
            folder.path("taken") + " cannot be written: Is a directory");
  EXPECT_EQ(folder.count(), 1u);
  EXPECT_EQ(sentence_of([&] { write_text(folder.path("none/a.txt"), "x"); }),
            folder.path("none/a.txt") + " cannot be written: No such file or directory");
}

TEST(RunFilesTest, ARunFolderIsMadeAndProved) {
  const Folder folder;
  make_run_folder(folder.path("a/b"));
  make_run_folder(folder.path("a/b"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("a/b")));
  folder.write("plain", "x");
  EXPECT_EQ(sentence_of([&] { make_run_folder(folder.path("plain/run")); }),
            "run folder " + folder.path("plain/run") + " cannot be created: Not a directory");
  EXPECT_EQ(sentence_of([] { make_run_folder("/proc/self/fdinfo"); }),
            "run folder /proc/self/fdinfo cannot be written to: No such file or directory");
}

TEST(RunFilesTest, AShellTakesTheLineBack) {
  EXPECT_EQ(shell_line({"trainer", "--optim.lr=3e-4", "--run.dir=my run", "it's", ""}),
            "trainer --optim.lr=3e-4 '--run.dir=my run' 'it'\\''s' ''\n");
}

TEST(RunFilesTest, StatusStatesWhatIsKnown) {
  const Folder folder;
  write_status(folder.path(), {});
  EXPECT_EQ(folder.read("STATUS.json"), "{\n  \"state\": \"running\",\n  \"step\": 0\n}\n");
  write_status(folder.path(), {.state = RunState::failed,
                               .step = 7,
                               .total_steps = 10,
                               .eta_seconds = 1.5,
                               .last_error = "loss is \"NaN\"",
                               .exit_code = 6});
  EXPECT_EQ(folder.read("STATUS.json"),
            "{\n  \"state\": \"failed\",\n  \"step\": 7,\n  \"total_steps\": 10,\n  \"eta_seconds\": 1.5,\n"
            "  \"last_error\": \"loss is \\\"NaN\\\"\",\n  \"exit_code\": 6\n}\n");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(FailureTest, NamesTheClassOfAnError) {
  const auto expect_class = [](const std::exception& error, const std::string& name, int code) {
    const Folder folder;
    write_failure(folder.path(), error, 0, 0);
    EXPECT_EQ(folder.read("failure.json"), "{\n  \"class\": \"" + name + "\",\n  \"message\": \"" + error.what() +
                                               "\",\n  \"exit_code\": " + std::to_string(code) +
                                               ",\n  \"rank\": 0,\n  \"step\": 0\n}\n");
  };
  expect_class(ConfigError(""), "ConfigError", 2);
  expect_class(DataError(""), "DataError", 3);
  expect_class(CheckpointError(""), "CheckpointError", 4);
  expect_class(CommError(""), "CommError", 5);
  expect_class(NumericError(""), "NumericError", 6);
  expect_class(Error(kOutOfMemory, ""), "OutOfMemory", 7);
  expect_class(std::logic_error(""), "InternalError", 70);
}

TEST(FailureTest, IsWrittenBesideTheRun) {
  const Folder folder;
  write_failure(folder.path(), DataError("a.idx", "too short"), 3, 12);
  EXPECT_EQ(folder.read("failure.json"),
            "{\n  \"class\": \"DataError\",\n  \"message\": \"a.idx: too short\",\n  \"exit_code\": 3,\n"
            "  \"rank\": 3,\n  \"step\": 12\n}\n");
}

}  // namespace run_files_test
}  // namespace lockstep::report
