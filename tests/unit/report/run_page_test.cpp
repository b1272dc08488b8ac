// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/run_page.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>

#include "folder.hpp"
#include "report/files/artifacts.hpp"

namespace lockstep::report {
namespace run_page_test {

const std::string kSchema = "{\"schema\":\"lockstep-metrics\",\"version\":1}\n";
const std::string kMetrics =
    kSchema +
    "{\"step\":10,\"epoch\":0,\"samples\":480,\"loss\":2.5,\"lr\":0.001,\"grad_norm\":1.5}\n"
    "{\"step\":20,\"epoch\":0,\"samples\":960,\"loss\":1.25,\"lr\":0.0005,\"grad_norm\":\"NaN\"}\n"
    "{\"step\":20,\"val/loss\":1.5,\"val/accuracy\":0.75,\"val/count\":48}\n";

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t position = text.find(words); position != std::string::npos;
       position = text.find(words, position + 1))
    ++count;
  return count;
}

bool has(const std::string& text, const std::string& words) { return count_of(text, words) > 0; }

/// The exit code and the sentence of what is thrown.
std::pair<int, std::string> failure_in(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  }
  return {0, ""};
}

/// A folder with a run of that many metrics.
void write_run(const Folder& folder, const std::string& name, const std::string& metrics) {
  std::filesystem::create_directories(folder.path(name));
  folder.write(name + "/metrics.jsonl", metrics);
}

TEST(RunPageTest, ShowsEachCurveOnce) {
  const Folder folder;
  write_run(folder, "a", kMetrics);
  const std::string page = run_page(folder.path("a"));
  EXPECT_EQ(count_of(page, "<svg"), 4U);  // losses, accuracy, lr, norm; what only counts is not drawn
  for (const char* title : {"Loss", "val/accuracy", "Learning rate", "Norm of the gradients"}) {
    EXPECT_EQ(count_of(page, "<title>" + std::string(title) + "</title>"), 1U) << title;
  }
  EXPECT_TRUE(has(page, "<tr><th>loss</th><td>1.25</td><td>1.25</td><td>2.5</td></tr>")) << page;
  EXPECT_TRUE(has(page, "<tr><th>grad_norm</th><td>nan</td><td>1.5</td><td>1.5</td></tr>")) << page;
}

TEST(RunPageTest, NeedsNothingFromElsewhere) {
  const Folder folder;
  write_run(folder, "a", kMetrics);
  const std::string page = run_page(folder.path("a"));
  for (const char* word : {"<script", "<link", "<img", "src=", "href=", "url(", "@import"}) {
    EXPECT_FALSE(has(page, word)) << word;
  }
  EXPECT_EQ(count_of(page, "://"), count_of(page, "http://www.w3.org/2000/svg"));  // a name, not an address
  EXPECT_TRUE(has(page, "prefers-color-scheme:dark"));
  EXPECT_TRUE(has(page, "name=\"viewport\""));
}

TEST(RunPageTest, ShowsOutcomeConfigurationAndEnvironmentAsPlainText) {
  const Folder folder;
  write_run(folder, "<b>", kMetrics);
  folder.write("<b>/STATUS.json", R"({"state": "failed", "step": 20, "exit_code": 6})");
  folder.write("<b>/failure.json", R"({"class": "NumericError", "message": "x", "rank": 1})");
  folder.write("<b>/env.json", R"({"world_size": 2, "mpi": "Open <MPI>"})");
  folder.write("<b>/argv.txt", "trainer '--run.name=<b>'\n");
  folder.write("<b>/config.resolved.json", R"({"optim.lr": {"value": 0.5, "origin": "command line"},
    "optim.eps": {"value": 1e-8, "origin": "default"}})");
  const std::string page = run_page(folder.path("<b>/"));
  EXPECT_TRUE(has(page, "<h1>Run &lt;b&gt;</h1>"));
  EXPECT_FALSE(has(page, "<b>"));
  for (const char* row : {"<th>state</th><td>failed</td>", "<th>exit_code</th><td>6</td>",
                          "<th>class</th><td>NumericErr", "<th>rank</th><td>1</td>",
                          "<th>mpi</th><td>Open &lt;MPI&gt;</td>", "<th>optim.lr</th><td>0.5</td><td>command line</td>",
                          "<th>optim.eps</th><td>1e-08</td></tr>", "<code>trainer '--run.name=&lt;b&gt;'</code>"}) {
    EXPECT_TRUE(has(page, row)) << row;
  }
}

TEST(RunPageTest, ShowsWhereTheTimeOfAStepGoes) {
  const Folder folder;
  write_run(folder, "a", kMetrics);
  const StepTimes times = {.sentence = "compute-bound",
                           .ranks = {{{"compute", 3}, {"wait", 0.25}}, {{"compute", 2}, {"wait", 1.25}}},
                           .timeline = {.title = "A step of rank 0",
                                        .x_label = "ms",
                                        .end = 3.25,
                                        .kinds = {{"compute"}, {"wait", true}},
                                        .rows = {{"bucket 0", {{0, 1.5, 0}, {1.5, 2, 1}}}}}};
  write_step_times(folder.path("a"), times);
  const StepTimes read = read_step_times(folder.path("a")).value();
  EXPECT_EQ(plot::timeline_chart(read.timeline), plot::timeline_chart(times.timeline));
  const std::string page = run_page(folder.path("a"));
  for (const char* words : {"compute-bound", "A step of rank 0", "bucket 0", "A median step of each rank", ">rank 1<",
                            "<th>rank 1</th><td>2.000</td><td>1.250</td>"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
}

TEST(RunPageTest, WhatTrainingAndEvaluationBothMeasureSharesAChart) {
  const Folder folder;
  write_run(folder, "a",
            kSchema +
                "{\"step\":10,\"train/recall\":0.5,\"train/own\":1}\n"
                "{\"step\":10,\"val/recall\":0.25,\"val/accuracy\":0.5}\n");
  const std::string page = run_page(folder.path("a"));
  EXPECT_EQ(count_of(page, "<svg"), 3U);
  for (const char* title : {"recall", "train/own", "val/accuracy"}) {
    EXPECT_EQ(count_of(page, "<title>" + std::string(title) + "</title>"), 1U) << title;
  }
  EXPECT_TRUE(has(page, ">training<"));
  EXPECT_TRUE(has(page, ">evaluation<"));
}

TEST(RunPageTest, ShowsSectionsOfAStepAndWhatRanksDifferIn) {
  const Folder folder;
  write_run(folder, "a",
            kSchema +
                "{\"step\":10,\"loss\":2,\"time/forward\":3,\"time/backward\":5,\"time/train_step_total\":9}\n"
                "{\"step\":20,\"loss\":1,\"time/forward\":4,\"time/backward\":7,\"time/train_step_total\":12}\n"
                "{\"step\":20,\"data_seconds/mean\":0.5,\"data_seconds/max\":0.75,\"data_seconds/min\":0.25}\n");
  const std::string page = run_page(folder.path("a"));
  for (const char* title :
       {"Loss", "Sections of a step", "Sections of a step, mean over the run", "Waiting for data, by ranks"}) {
    EXPECT_EQ(count_of(page, "<title>" + std::string(title) + "</title>"), 1U) << title;
  }
  EXPECT_EQ(count_of(page, "<svg"), 4U);
  EXPECT_TRUE(has(page, "<th></th><th>forward, ms</th><th>backward, ms</th><th>other, ms</th>")) << page;
  EXPECT_TRUE(has(page, "<th>mean</th><td>3.500</td><td>6.000</td><td>1.000</td>"));
  for (const char* name : {">largest<", ">mean<", ">least<"}) EXPECT_TRUE(has(page, name)) << name;
}

TEST(RunPageTest, NamesReplacedSamples) {
  const Folder folder;
  write_run(folder, "a", kMetrics);
  EXPECT_FALSE(has(run_page(folder.path("a")), "Replaced samples"));
  folder.write("a/bad_samples.txt", "cats/1.jpg\ndogs/<2>.jpg\n");
  const std::string page = run_page(folder.path("a"));
  EXPECT_TRUE(has(page, "2 samples could not be read and were replaced")) << page;
  EXPECT_TRUE(has(page, "cats/1.jpg")) << page;
  EXPECT_TRUE(has(page, "dogs/&lt;2&gt;.jpg")) << page;
}

TEST(RunPageTest, ListsRecoveries) {
  const Folder folder;
  write_run(folder, "a",
            kMetrics +
                "{\"step\":12,\"heal/rung\":1,\"heal/seconds\":0.25,\"heal/steps_lost\":7,\"heal/cause\":\"rank 1 has "
                "died\"}\n");
  const std::string page = run_page(folder.path("a"));
  EXPECT_TRUE(has(page, "<h2>Recoveries</h2>"));
  for (const char* cell : {"rank 1 has died", "the other ranks continued in place", "0.250", "<td>7</td>"}) {
    EXPECT_EQ(count_of(page, cell), 1U) << cell;
  }
  EXPECT_FALSE(has(page, "heal/"));
  write_run(folder, "b", kMetrics);
  EXPECT_FALSE(has(run_page(folder.path("b")), "Recoveries"));
}

TEST(RunPageTest, BadInputGetsOneSentence) {
  const Folder folder;
  const std::string run = folder.path("a");
  const auto failure = [&](const std::string& metrics) {
    write_run(folder, "a", metrics);
    return failure_in([&] { run_page(run); });
  };
  using RunFailure = std::pair<int, std::string>;
  EXPECT_EQ(failure_in([&] { run_page(run); }), RunFailure(2, run + " is not a folder; give the folder of a run"));
  std::filesystem::create_directories(run);
  EXPECT_EQ(failure_in([&] { run_page(run); }),
            RunFailure(2, run + "/metrics.jsonl is missing: a report needs the folder of a training run"));
  EXPECT_EQ(
      failure(kSchema),
      RunFailure(3, run + "/metrics.jsonl: contains no metrics: the run has not reached the first line of metrics"));
  EXPECT_EQ(failure(kSchema + "{\"step\":1,\"lo\n{\"step\":2,\"loss\":1}\n"),
            RunFailure(3, run + "/metrics.jsonl: line 2 is damaged: it is not a JSON object"));
  EXPECT_EQ(failure(kMetrics + "{\"step\":30,\"lo").first, 0) << "a run is about to write its last line";
  folder.write("a/ddp.json", "{\"sentence\":1}");
  EXPECT_EQ(failure(kMetrics), RunFailure(3, run + "/ddp.json: damaged; delete it to omit the times of a step"));
}

TEST(RunPageTest, ManyPointsAreThinnedWithTheirHighsAndLows) {
  const Folder folder;
  std::string metrics = kSchema;
  for (int step = 1; step <= 40000; ++step) {
    const double loss = step == 12345 ? 77.5 : 1;
    metrics += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) + "}\n";
  }
  write_run(folder, "a", metrics);
  const std::string page = run_page(folder.path("a"));
  EXPECT_LT(page.size(), 40000U);
  EXPECT_TRUE(has(page, "<td>77.5</td>"));
  EXPECT_TRUE(has(page, ">100</text>")) << "the axis has room for the peak";
}

TEST(ComparisonPageTest, OverlaysCurvesAndStatesWhatDiffers) {
  const Folder folder;
  write_run(folder, "a", kMetrics);
  write_run(folder, "b", kSchema + "{\"step\":10,\"loss\":2.25,\"lr\":0.01}\n{\"step\":20,\"loss\":0.5,\"lr\":0.01}\n");
  folder.write("a/config.resolved.json", R"({"optim.lr": {"value": 0.001, "origin": "default"},
    "run.seed": {"value": 1, "origin": "default"}})");
  folder.write("b/config.resolved.json", R"({"optim.lr": {"value": 0.01, "origin": "command line"},
    "run.seed": {"value": 1, "origin": "default"}, "new.key": {"value": true, "origin": "default"}})");
  const std::string page = comparison_page({folder.path("a"), folder.path("b")});
  EXPECT_EQ(count_of(page, "<svg"), 4U);
  for (const char* words :
       {">a, training<", ">b, training<", ">a, evaluation<", "<th>loss</th><td>1.25</td><td>0.5</td>",
        "<th>val/loss</th><td>1.5</td><td>-</td>", "<th>optim.lr</th><td>0.001</td><td>0.01</td>",
        "<th>new.key</th><td>-</td><td>true</td>"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
  EXPECT_FALSE(has(page, ">b, evaluation<"));
  EXPECT_FALSE(has(page, "run.seed"));
}

TEST(ComparisonPageTest, FoldersOfOneNameAreDistinguished) {
  const Folder folder;
  write_run(folder, "x/run", kMetrics);
  write_run(folder, "y/run", kMetrics);
  const std::string page = comparison_page({folder.path("x/run"), folder.path("y/run")});
  EXPECT_TRUE(has(page, ">run (A), training<"));
  EXPECT_TRUE(has(page, ">run (B), training<"));
}

TEST(ComparisonPageTest, ManyRunsHaveARowEach) {
  const Folder folder;
  std::vector<std::string> runs;
  for (const char* const rate : {"1", "2", "3", "2"}) {
    const std::string name = "lr" + std::to_string(runs.size());
    write_run(folder, name, kSchema + "{\"step\":10,\"loss\":" + rate + ".25,\"lr\":0.5}\n");
    folder.write(name + "/config.resolved.json", std::string(R"({"optim.lr": {"value": 0.)") + rate +
                                                     R"(, "origin": "command line"}, "run.seed": {"value": 1, "origin":
                                                     "default"}})");
    runs.push_back(folder.path(name));
  }
  const std::string page = comparison_page(runs);
  for (const char* words : {"<h1>Runs lr0, lr1, lr2 and lr3</h1>", "<th>lr0</th><td>1.25</td><td>0.5</td>",
                            "<th>lr3</th><td>2.25</td><td>0.5</td>", "<th>lr2</th><td>0.3</td>", ">lr3, training<"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
  EXPECT_FALSE(has(page, "run.seed"));
}

}  // namespace run_page_test
}  // namespace lockstep::report
