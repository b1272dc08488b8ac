// SPDX-License-Identifier: BSD-3-Clause
// The same numbers in files of several formats train the same bits; killed runs resume in the middle of an epoch; files
// that are changed while a run reads them end it.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "field_files.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace field_readers_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;
using testing::SeededField;

constexpr int kData = 3;
constexpr int kLanes = 6;

/// A small network on two steps, on data that are one trajectory.
std::string arguments_for(const std::string& run, const std::string& more) {
  return "--data.name=fields --data.steps_in=2 --data.cache=off --model.name=unet --model.width=4 --model.depth=1"
         " --model.norm=none --train.lanes=" +
         std::to_string(kLanes) + " --train.global_batch_size=6 --optim.lr=0.003 --log.every=1 --run.dir=" + run + " " +
         more;
}

std::string checkpoint(const std::string& run, std::int64_t step) {
  return run + "/ckpt/" + checkpoints::folder_name(step);
}

/// Paths of what differs between the checkpoints of two runs; "" if nothing does.
std::string differences(const std::string& run, const std::string& other, std::int64_t step) {
  return testing::differences(checkpoints::read(checkpoint(run, step)), checkpoints::read(checkpoint(other, step)));
}

// --- formats ---

/// A form in which the field is stored.
struct Form {
  std::string name;
  std::string file;
  std::string keys;
  std::function<void(const std::string& path, const SeededField& field)> write;
};

std::vector<Form> forms() {
  const std::string keys = " --data.variables=u --data.layout=tyx";
  const auto hdf5 = [](testing::SetOptions options) {
    return [options](const std::string& path, const SeededField& field) { write_hdf5(path, field, options); };
  };
  const auto netcdf = [](bool is_packed) {
    return [is_packed](const std::string& path, const SeededField& field) { write_netcdf(path, field, is_packed); };
  };
  return {
      {"contiguous", "u.h5", keys, hdf5({})},
      {"compressed chunks", "u.h5", keys, hdf5({.chunk = {7, 3, 4}, .is_compressed = true})},
      {"chunks of float64", "u.h5", keys, hdf5({.chunk = {1, 4, 6}, .type = H5T_IEEE_F64BE})},
      {"netCDF-4", "u.nc", "", netcdf(false)},
      {"packed netCDF-4", "u.nc", "", netcdf(true)},
      {"npy", "u.npy", " --data.layout=tyx",
       [](const std::string& path, const SeededField& field) {
         testing::write_npy(path, field.shape, field.numbers());
       }},
  };
}

TEST(FieldFormsTest, TheSameNumbersTrainTheSameBitsFromAnyFormOnAnyNumberOfRanks) {
  constexpr int kSteps = 9;  // more than an epoch
  const testing::TemporaryFolder folder;
  const std::vector<Form> all = forms();
  int runs = 0;
  const auto train = [&](const Form& form, int ranks, std::uint64_t seed) {
    const std::string data = folder.path("data" + std::to_string(++runs));
    fs::create_directories(data);
    form.write(data + "/" + form.file, SeededField(seed));
    const std::string run = folder.path("run" + std::to_string(runs));
    const ProgramResult result = run_ranks(
        ranks, arguments_for(run, "--data.path=" + data + "/" + form.file + form.keys +
                                      " --data.val_fraction=0.25 --train.max_steps=" + std::to_string(kSteps)));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return run;
  };
  const std::string expected = train(all.front(), 1, testing::test_seed());
  const auto losses = report::read_series(expected + "/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_NE(differences(train(all.front(), 1, testing::test_seed() + 1), expected, kSteps), "")
      << "the comparison can fail";
  std::uint64_t number = 0;
  for (const int ranks : {1, 2, 3}) {
    for (const Form& form : all) {
      if (!testing::is_sampled(number++, 4)) continue;
      SCOPED_TRACE(form.name + " on " + std::to_string(ranks) + " ranks");
      const std::string run = train(form, ranks, testing::test_seed());
      EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "loss"), losses);
      EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "val/loss"),
                report::read_series(expected + "/metrics.jsonl", "val/loss"));
      EXPECT_EQ(differences(run, expected, kSteps), "");
    }
  }
}

// --- resuming ---

/// A file in chunks of four steps, and the sampler of a run.
class ResumedFieldsTest : public ::testing::TestWithParam<std::string> {
 protected:
  ResumedFieldsTest() {
    write_hdf5(folder_.path("u.h5"), SeededField(testing::test_seed()), {.chunk = {4, 4, 6}, .is_compressed = true});
  }
  std::string arguments(const std::string& run, const std::string& more) const {
    return arguments_for(folder_.path(run), "--data.path=" + folder_.path("u.h5") +
                                                " --data.variables=u --data.layout=tyx --data.val_fraction=0"
                                                " --eval.every=never --ckpt.every=7 " +
                                                GetParam() + " " + more);
  }

  testing::TemporaryFolder folder_;
};

// 38 windows in batches of 6: an epoch has 6 steps, and most checkpoints lie inside of one.
TEST_P(ResumedFieldsTest, AKilledRunContinuesBitForBitOnAnotherNumberOfRanks) {
  constexpr int kSteps = 300;
  constexpr int kKilledAfter = 14;
  const std::string end = "--train.max_steps=" + std::to_string(kSteps);
  ASSERT_EQ(run_ranks(1, arguments("straight", end)).exit_code, 0);
  const std::string killed = folder_.path("killed");
  const ProgramResult first = testing::run_shell(
      testing::mpirun_command(2) + " " + testing::trainer_program() + " " + arguments("killed", end) +
      " & job=$!; until [ -e " + checkpoint(killed, kKilledAfter) +
      " ] || ! kill -0 $job; do sleep 0.02; done; for p in $(pgrep -x trainer); do if grep -qa -e '--run.dir=" +
      killed + "' /proc/$p/cmdline; then kill -9 $p; fi; done; wait $job");
  EXPECT_NE(first.exit_code, 0) << "it ended before it was killed";
  EXPECT_FALSE(fs::exists(checkpoint(killed, kSteps)));
  const ProgramResult resumed = run_ranks(3, arguments("killed", end + " --resume=must"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("reproducibility: bitwise"), std::string::npos) << resumed.output;
  EXPECT_EQ(differences(killed, folder_.path("straight"), kSteps), "");
  EXPECT_EQ(report::read_series(killed + "/metrics.jsonl", "loss"),
            report::read_series(folder_.path("straight") + "/metrics.jsonl", "loss"));
}

TEST_P(ResumedFieldsTest, AnotherOrderIsRefused) {
  ASSERT_EQ(run_ranks(1, arguments("run", "--train.max_steps=4")).exit_code, 0);
  const bool has_chunks = GetParam().find("=chunks") != std::string::npos;
  const std::string chunks = "chunks, 2 of 10 shuffled together", other = "chunks, 3 of 10 shuffled together";
  const std::string change = has_chunks ? "--data.shuffle_chunks=3" : "--data.sampler=chunks --data.shuffle_chunks=3";
  const ProgramResult refused = run_ranks(2, arguments("run", "--train.max_steps=8 --resume=must " + change));
  EXPECT_NE(refused.exit_code, 0) << refused.output;
  const std::vector<std::string> errors = testing::error_lines(refused.output);
  ASSERT_EQ(errors.size(), 1U) << refused.output;
  EXPECT_NE(errors[0].find("its samples were selected by " + (has_chunks ? chunks : "keyed permutation") +
                           ", those of the run by " + other),
            std::string::npos)
      << errors[0];
  const ProgramResult accepted =
      run_ranks(2, arguments("run", "--train.max_steps=8 --resume=must --resume.reset=sampler " + change));
  EXPECT_EQ(accepted.exit_code, 0) << accepted.output;
}

INSTANTIATE_TEST_SUITE_P(Samplers, ResumedFieldsTest,
                         ::testing::Values("--data.sampler=chunks --data.shuffle_chunks=2", "--data.sampler=default"),
                         [](const auto& test) { return test.index == 0 ? "chunks" : "default"; });

// --- files that change ---

/// A change of the file a.* that a run reads.
struct Change {
  std::string name;
  std::string ending;  ///< ending of the files
  testing::SetOptions storage;
  std::string keys;
  std::function<void(const fs::path& file)> make;
  std::string words;  ///< words of the sentence
};

/// Gives a file other bytes. It stays the same file of the system.
void overwrite(const fs::path& file, const fs::path& other) { testing::write_file(file, testing::read_file(other)); }

std::vector<Change> changes() {
  const testing::SetOptions chunks{.chunk = {4, 4, 6}, .is_compressed = true};
  const auto truncate = [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1000); };
  const auto written = [](std::vector<std::int64_t> shape) {
    return [shape](const fs::path& file) {
      SeededField field(99);
      field.shape = shape;
      field.units.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
      const std::string other = file.string() + ".new";
      write_hdf5(other, field, {});
      fs::rename(other, file);
    };
  };
  const auto in_place = [](const fs::path& file) {
    const std::string other = file.string() + ".new";
    write_hdf5(other, SeededField(99), {});
    overwrite(file, other);
    fs::remove(other);
  };
  const std::string changed = "it was changed while it was in use; restore the file, or start again";
  const std::string reopening = " --data.open_files=1";
  return {
      {"Truncated", ".h5", {}, "", truncate, changed},
      {"TruncatedChunks", ".h5", chunks, " --data.chunk_cache_mb=0.001", truncate, changed},
      {"TruncatedNpy", ".npy", {}, "", truncate, changed},
      {"OverwrittenInPlace", ".h5", {}, "", in_place, changed},
      {"ReplacedByAnotherShape", ".h5", {}, reopening, written({40, 4, 8}), changed},
      {"ReplacedByTheSameShape", ".h5", {}, reopening, written({40, 4, 6}), changed},
      {"Removed", ".h5", chunks, reopening, [](const fs::path& file) { fs::remove(file); }, "it cannot be opened"},
  };
}

/// Waits until a run has recorded steps.
bool has_begun(const std::string& run) {
  constexpr int kTries = 3000;
  for (int i = 0; i < kTries; ++i) {
    if (fs::exists(run + "/metrics.jsonl") && report::read_series(run + "/metrics.jsonl", "loss").size() > 3)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(ChangedFieldsTest, AChangedFileEndsTheRunOnAllRanks) {
  std::uint64_t number = 0;
  for (const Change& change : changes()) {
    if (!testing::is_sampled(number++, 2)) continue;
    SCOPED_TRACE(change.name);
    const testing::TemporaryFolder folder;
    const fs::path file = folder.path("a" + change.ending);
    for (const std::string name : {"a", "b"}) {
      const std::string path = folder.path(name + change.ending);
      const SeededField field(testing::test_seed());
      if (change.ending == ".npy") {
        testing::write_npy(path, field.shape, field.numbers());
      } else {
        write_hdf5(path, field, change.storage);
      }
    }
    const std::string variables = change.ending == ".npy" ? "" : " --data.variables=u";
    const std::string run = folder.path("run");
    const std::string arguments = arguments_for(
        run, "'--data.path=" + folder.path("*" + change.ending) + "' --data.layout=tyx --data.val_fraction=0" +
                 " --eval.every=never --train.max_steps=100000000" + variables + change.keys);
    auto result = std::async(std::launch::async, [&] { return run_ranks(2, arguments, 90); });
    EXPECT_TRUE(has_begun(run));
    change.make(file);
    const ProgramResult ended = result.get();
    // The first rank that notices the change ends the others, unless they notice it at the same time.
    EXPECT_EQ(ended.exit_code, kData) << ended.output;
    std::vector<std::string> errors = testing::error_lines(ended.output);
    std::erase_if(errors, [](const std::string& line) { return line.starts_with("["); });  // lines of mpirun
    EXPECT_GE(errors.size(), 1U) << ended.output;
    EXPECT_LE(errors.size(), 2U) << ended.output;
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(file.string() + ": " + change.words), std::string::npos) << error;
    }
  }
}

TEST(ChangedFieldsTest, AFileThatAProgramWritesIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("u.h5");
  write_hdf5(path, SeededField(1), {.chunk = {4, 4, 6}});
  const checkpoints::HdfSession session;
  const checkpoints::Handle writer(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "H5Fopen");
  const ProgramResult result =
      run_ranks(2, arguments_for(folder.path("run"), "--data.path=" + path + " --data.variables=u --data.layout=tyx"));
  EXPECT_EQ(result.exit_code, kData) << result.output;
  EXPECT_EQ(result.rank_codes, std::vector<int>(2, kData)) << result.output;
  const std::vector<std::string> errors = testing::error_lines(result.output);
  ASSERT_EQ(errors.size(), 1U) << result.output;
  EXPECT_NE(errors[0].find(path), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("a program is writing it"), std::string::npos) << errors[0];
}

}  // namespace field_readers_test
}  // namespace lockstep
