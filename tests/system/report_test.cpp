// SPDX-License-Identifier: BSD-3-Clause
// The page of a run, at its end and on demand, and TensorBoard's event files.
#include <gtest/gtest.h>

#include <algorithm>

#include "report/tensorboard/wire.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace report_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

const std::string kSmall =
    "--data.train_size=96 --data.val_size=48 --model.name=mlp --model.hidden=4 --log.every=1 --ckpt.keep_best=0 ";

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t position = text.find(words); position != std::string::npos;
       position = text.find(words, position + 1))
    ++count;
  return count;
}

std::vector<fs::path> event_files(const fs::path& run) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run)) {
    if (has(entry.path().filename(), "tfevents")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The payloads of a file's records; each record has to be whole and its checksums right.
std::vector<std::string> records_of(const fs::path& file) {
  std::vector<std::string> records;
  std::string rest = testing::read_file(file);
  while (!rest.empty()) {
    const auto length = static_cast<unsigned char>(rest[0]) + 256U * static_cast<unsigned char>(rest.at(1));
    records.push_back(rest.substr(12, length));
    const std::string frame = report::event_frame(records.back());
    EXPECT_TRUE(rest.starts_with(frame)) << file << ", record " << records.size();
    if (!rest.starts_with(frame)) break;
    rest.erase(0, frame.size());
  }
  return records;
}

TEST(ReportTest, ARunLeavesAPageAndAnEventFileForEachStart) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder / "run";
  const std::string arguments = kSmall + "--ddp.report=true --run.dir=" + run.string();
  const ProgramResult first = run_ranks(2, arguments + " --train.max_epochs=2");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_FALSE(has(first.output, "warning")) << first.output;
  const std::string page = testing::read_file(run / "report.html");
  for (const char* words :
       {"<th>state</th><td>done</td>", ">Loss</title>", ">val/accuracy</title>", ">Learning rate</title>",
        ">Throughput</title>", "A median step of each rank", ">rank 1<", ">Confusion matrix</title>", "<th>recall</th>",
        "Samples with predictions", "<th>data.train_size</th><td>96</td>", "Open MPI", "</html>\n"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
  ASSERT_EQ(event_files(run).size(), 1U);
  const std::vector<std::string> records = records_of(event_files(run)[0]);
  EXPECT_EQ(count_of(page, "<img "), 16U);
  EXPECT_EQ(count_of(page, "src="), count_of(page, "src=\"data:image/png;base64,"));
  // Version and start; of each step a line and what ranks differ in; of each evaluation a line, images and captions.
  EXPECT_EQ(records.size(), 2U + 4U * 2U + 2U * (1U + 16U + 1U));
  EXPECT_TRUE(has(records.at(2), "loss"));

  const ProgramResult resumed = run_ranks(2, arguments + " --train.max_epochs=3 --resume=must");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  ASSERT_EQ(event_files(run).size(), 2U);
  const std::vector<std::string> later = records_of(event_files(run)[1]);
  EXPECT_EQ(later.size(), 2U + 2U * 2U + 1U + 16U + 1U);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(later[i].substr(9, 2), "\x10\x05") << "step 5, record " << i;

  fs::remove(run / "report.html");
  const ProgramResult on_demand = run_ranks(2, "report " + run.string());
  EXPECT_EQ(on_demand.exit_code, 0) << on_demand.output;
  EXPECT_TRUE(has(on_demand.output, (run / "report.html").string())) << on_demand.output;
  EXPECT_TRUE(has(testing::read_file(run / "report.html"), "<th>step</th><td>6</td>"));

  const std::string out = folder.path("both.html");
  const ProgramResult compared = run_ranks(1, "compare " + run.string() + " " + run.string() + " --out " + out);
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  EXPECT_TRUE(has(testing::read_file(out), ">run (B), training<"));
}

TEST(ReportTest, TablesAndPicturesOfAResumedRunAreThoseOfOneWithoutAStop) {
  const testing::TemporaryFolder folder;
  const std::string arguments = kSmall + "--log.pictures=5 --eval.metrics=overlap --ckpt.every=3 ";
  const auto train = [&](const std::string& run, const std::string& more) {
    const ProgramResult outcome = run_ranks(2, arguments + "--run.dir=" + folder.path(run) + more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  train("whole", " --train.max_epochs=3");
  train("parts", " --train.max_epochs=2");
  const fs::path last = folder / "parts/ckpt/step-000000000004";
  ASSERT_TRUE(fs::remove_all(last) > 0) << "so that it goes on from step 3, before the last evaluation";
  train("parts", " --train.max_epochs=3 --resume=must");
  for (const char* const name : {"tables.json", "pictures.json"}) {
    const std::string text = testing::read_file(folder.path("parts/") + name);
    EXPECT_EQ(text, testing::read_file(folder.path("whole/") + name)) << name;
    EXPECT_TRUE(has(text, "\"step\":6")) << name;
  }
  EXPECT_EQ(count_of(testing::read_file(folder / "parts/pictures.json"), "val/sample_"), 5U);
  EXPECT_EQ(count_of(testing::read_file(folder / "parts/tables.json"), "\"name\""), 4U);

  train("without", " --train.max_epochs=1 --log.pictures=0");
  EXPECT_FALSE(fs::exists(folder / "without/pictures.json"));
  EXPECT_FALSE(has(testing::read_file(folder / "without/report.html"), "<img"));
}

TEST(ReportTest, APageThatCannotBeWrittenIsAWarning) {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "run/report.html/in-the-way");
  const ProgramResult outcome =
      run_ranks(2, kSmall + "--train.max_epochs=1 --log.tensorboard=false --run.dir=" + folder.path("run"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "warning r0/2 report.html could not be written: ")) << outcome.output;
  EXPECT_TRUE(event_files(folder / "run").empty());
}

TEST(ReportTest, BadInputGetsOneSentenceAndItsCode) {
  const testing::TemporaryFolder folder;
  folder.write("file", "");
  fs::create_directories(folder / "empty");
  fs::create_directories(folder / "torn");
  folder.write("torn/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\n{\"step\":3,\"loss\":2}\n");
  struct Row {
    std::string arguments;
    int code;
    std::string sentence;
  };
  const std::vector<Row> rows = {
      {"report", 2, "report needs RUN, the folder of a run"},
      {"report " + folder.path("none"), 2, folder.path("none") + " is not a folder"},
      {"report " + folder.path("file"), 2, folder.path("file") + " is not a folder"},
      {"report " + folder.path("empty"), 2, "metrics.jsonl is missing"},
      {"report " + folder.path("torn"), 3, "metrics.jsonl: line 2 is damaged"},
      {"compare " + folder.path("torn"), 2, "compare needs another RUN, the folder of a run"},
      {"compare " + folder.path("none") + " " + folder.path("torn"), 2, folder.path("none") + " is not a folder"},
  };
  for (const Row& row : rows) {
    const ProgramResult outcome = run_ranks(2, row.arguments);
    EXPECT_EQ(outcome.rank_codes, std::vector<int>(2, row.code)) << row.arguments;
    const std::size_t first = outcome.output.find(" error ");
    EXPECT_EQ(outcome.output.find(" error ", first + 1), std::string::npos) << "one sentence: " << outcome.output;
    EXPECT_TRUE(has(outcome.output, row.sentence)) << outcome.output;
  }
}

}  // namespace report_test
}  // namespace lockstep
