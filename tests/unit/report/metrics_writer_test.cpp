// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <sys/resource.h>

#include "folder.hpp"
#include "report/files/metrics.hpp"

namespace lockstep::report {
namespace metrics_writer_test {

const std::string kSchema = "{\"schema\":\"lockstep-metrics\",\"version\":1}\n";

Record line(std::int64_t step, double loss) { return {.values = {{"step", step}, {"loss", loss}}}; }

TEST(MetricsTest, KeepsTheOrderAndTheTypes) {
  EXPECT_EQ(to_json({{"step", std::int64_t{12}}, {"epoch", std::int64_t{0}}, {"loss", 0.25}, {"a", "x\"\n"}}),
            R"({"step":12,"epoch":0,"loss":0.25,"a":"x\"\n"})");
  EXPECT_EQ(to_json({{"loss", 1.0}}), R"({"loss":1.0})");
  EXPECT_EQ(to_json({{"loss", 1.5}}, 2), "{\n  \"loss\": 1.5\n}");
  EXPECT_EQ(to_json({}), "{}");
  EXPECT_EQ(to_json({{"host", "\xff"}, {"a\xE8", 1.0}, {"a\xE9", 2.0}}),
            R"({"host":"\\xFF","a\\xE8":1.0,"a\\xE9":2.0})");
}

TEST(MetricsTest, WhatJsonCannotSayBecomesText) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_json({{"a", std::nan("")}, {"b", inf}, {"c", -inf}}), R"({"a":"NaN","b":"Infinity","c":"-Infinity"})");
}

TEST(MetricsTest, NumbersReadBackToTheSameBits) {
  const std::vector<double> values = {0.1,
                                      1.0 / 3,
                                      -2e-308,
                                      std::numeric_limits<double>::denorm_min(),
                                      std::numeric_limits<double>::max(),
                                      std::nextafter(1.0, 2.0),
                                      static_cast<double>(0.1F),
                                      9007199254740993.0,
                                      -0.0};
  for (const double value : values) {
    const double back = nlohmann::json::parse(to_json({{"x", value}}))["x"].get<double>();
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value;
  }
}

TEST(MetricsWriterTest, WritesTheSchemaOnceAndEveryLineAtOnce) {
  const Folder folder;
  {
    MetricsWriter writer(folder.path("m.jsonl"));
    EXPECT_EQ(folder.read("m.jsonl"), kSchema);
    writer.write(line(1, 0.5));
    EXPECT_EQ(folder.read("m.jsonl"), kSchema + "{\"step\":1,\"loss\":0.5}\n");
  }
  MetricsWriter(folder.path("m.jsonl")).write(line(2, 0.25));
  EXPECT_EQ(folder.read("m.jsonl"), kSchema + "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
}

TEST(MetricsWriterTest, ATornLastLineIsCutOff) {
  const Folder folder;
  folder.write("m.jsonl", kSchema + "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"lo");
  MetricsWriter(folder.path("m.jsonl")).write(line(2, 0.25));
  EXPECT_EQ(folder.read("m.jsonl"), kSchema + "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
  folder.write("torn.jsonl", kSchema.substr(0, 10));
  MetricsWriter torn(folder.path("torn.jsonl"));
  EXPECT_EQ(folder.read("torn.jsonl"), kSchema);
}

TEST(MetricsWriterTest, TruncateDropsLaterStepsAndKeepsTheRestByteForByte) {
  const Folder folder;
  const std::string odd = "{ \"step\" : 1,   \"loss\":0.50 }\nnot json\n{\"note\":\"no step\"}\n";
  const std::string nan = "{\"step\":20,\"loss\":\"NaN\"}\n";
  folder.write("m.jsonl",
               kSchema + odd + nan + "{\"step\":21,\"loss\":1}\n" + nan + "{\"step\":30,\"val/loss\":1}\n{\"st");
  MetricsWriter writer(folder.path("m.jsonl"));
  writer.truncate_after_step(20);
  EXPECT_EQ(folder.read("m.jsonl"), kSchema + odd + nan + nan);
  writer.write(line(21, 2.0));
  EXPECT_EQ(folder.read("m.jsonl"), kSchema + odd + nan + nan + "{\"step\":21,\"loss\":2.0}\n");
  EXPECT_EQ(folder.count(), 1u);
}

// A full disk is like this limit.
TEST(MetricsWriterTest, AFileBecomesShorterWhereNoOtherCanBeWritten) {
  const Folder folder;
  const std::string first = kSchema + "{\"step\":1,\"loss\":0.5}\n";
  folder.write("m.jsonl", first + "{\"step\":2,\"loss\":0.25}\n{\"step\":12,\"loss\":0.25}\n{\"st");
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  const std::string sentence = sentence_of([&] { MetricsWriter(folder.path("m.jsonl")).truncate_after_step(1); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(sentence, "");
  EXPECT_EQ(folder.read("m.jsonl"), first);
}

TEST(MetricsWriterTest, RefusesWhatItCannotContinueWith) {
  const Folder folder;
  folder.write("m.jsonl", "{\"schema\":\"lockstep-metrics\",\"version\":2}\n");
  EXPECT_EQ(sentence_of([&] { MetricsWriter(folder.path("m.jsonl")); }),
            folder.path("m.jsonl") + " is not a metrics file that this version can continue; choose another run.dir");
  folder.write("plain", "x");
  EXPECT_EQ(sentence_of([&] { MetricsWriter(folder.path("plain/m.jsonl")); }),
            folder.path("plain/m.jsonl") + " cannot be read: Not a directory");
  EXPECT_EQ(sentence_of([&] { MetricsWriter(folder.path("none/m.jsonl")); }),
            folder.path("none/m.jsonl") + " cannot be written: No such file or directory");
}

TEST(MetricsWriterTest, ALineThatCannotBeWrittenIsSaid) {
  const Folder folder;
  MetricsWriter writer(folder.path("m.jsonl"));
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{kSchema.size() + 5, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string sentence = sentence_of([&] { writer.write(line(1, 1)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(sentence, folder.path("m.jsonl") + " cannot be written: File too large");
}

}  // namespace metrics_writer_test
}  // namespace lockstep::report
