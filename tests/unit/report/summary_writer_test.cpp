// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>

#include "folder.hpp"
#include "report/files/metrics.hpp"

namespace lockstep::report {
namespace summary_writer_test {

Record row(std::int64_t step, double accuracy) { return {.values = {{"step", step}, {"val/accuracy", accuracy}}}; }

TEST(SummaryWriterTest, KeepsOneRowPerEvaluation) {
  const Folder folder;
  SummaryWriter writer(folder.path("s.csv"));
  EXPECT_EQ(folder.count(), 0u);
  writer.write(row(10, 0.5));
  writer.write(row(20, 0.1));
  EXPECT_EQ(folder.read("s.csv"), "step,val/accuracy\n10,0.5\n20,0.1\n");
}

TEST(SummaryWriterTest, ContinuesWithTheTableThatIsThere) {
  const Folder folder;
  SummaryWriter(folder.path("s.csv")).write(row(10, 0.5));
  SummaryWriter(folder.path("s.csv")).write(row(20, 0.75));
  EXPECT_EQ(folder.read("s.csv"), "step,val/accuracy\n10,0.5\n20,0.75\n");
}

TEST(SummaryWriterTest, ANewNameBecomesANewColumn) {
  const Folder folder;
  SummaryWriter(folder.path("s.csv")).write(row(10, 0.5));
  SummaryWriter writer(folder.path("s.csv"));
  writer.write({.values = {{"split", "a,b\"c\nd"}, {"step", std::int64_t{20}}}});
  EXPECT_EQ(folder.read("s.csv"), "step,val/accuracy,split\n10,0.5,\n20,,\"a,b\"\"c\nd\"\n");
  SummaryWriter(folder.path("s.csv")).write(row(30, std::nan("")));
  EXPECT_EQ(folder.read("s.csv"), "step,val/accuracy,split\n10,0.5,\n20,,\"a,b\"\"c\nd\"\n30,nan,\n");
}

TEST(SummaryWriterTest, ANameWithACommaStaysOneColumn) {
  const Folder folder;
  for (const std::int64_t step : {10, 20}) {
    SummaryWriter(folder.path("s.csv"))
        .write({.values = {{"step", step}, {"val/cat, \"tabby\"", 0.5}, {"val/dog", static_cast<double>(step)}}});
  }
  SummaryWriter(folder.path("s.csv")).truncate_after_step(15);
  SummaryWriter(folder.path("s.csv")).write({.values = {{"val/dog", 30.0}, {"step", std::int64_t{30}}}});
  EXPECT_EQ(folder.read("s.csv"), "step,\"val/cat, \"\"tabby\"\"\",val/dog\n10,0.5,10\n30,,30\n");
}

// A spreadsheet has saved the table in the meantime.
TEST(SummaryWriterTest, ContinuesWithATableOfAnotherProgram) {
  const Folder folder;
  const std::string saved = "\xEF\xBB\xBFstep,\"val/cat, tabby\"\r\n10,0.5\r\n20,0.6";
  folder.write("s.csv", saved);
  SummaryWriter writer(folder.path("s.csv"));
  writer.truncate_after_step(20);
  writer.write({.values = {{"step", std::int64_t{30}}, {"val/cat, tabby", 0.7}}});
  EXPECT_EQ(folder.read("s.csv"), "step,\"val/cat, tabby\"\n10,0.5\n20,0.6\n30,0.7\n");
}

TEST(SummaryWriterTest, TruncateDropsRowsBeyondAStep) {
  const Folder folder;
  SummaryWriter writer(folder.path("s.csv"));
  writer.truncate_after_step(0);
  EXPECT_EQ(folder.count(), 0u);
  for (const std::int64_t step : {10, 20, 30}) writer.write(row(step, 1));
  writer.truncate_after_step(20);
  EXPECT_EQ(folder.read("s.csv"), "step,val/accuracy\n10,1\n20,1\n");
}

}  // namespace summary_writer_test
}  // namespace lockstep::report
