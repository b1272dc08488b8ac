// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "folder.hpp"
#include "report/files/metrics.hpp"

namespace lockstep::report {
namespace metrics_reader_test {

using Series = std::vector<std::pair<std::int64_t, double>>;

TEST(MetricsReaderTest, ReadsWhatTheWriterWrote) {
  const Folder folder;
  const double inf = std::numeric_limits<double>::infinity();
  {
    MetricsWriter writer(folder.path("m.jsonl"));
    writer.write({.values = {{"step", std::int64_t{1}}, {"loss", 1.0 / 3}}});
    writer.write({.values = {{"step", std::int64_t{2}}, {"val/loss", 7.0}}});
    writer.write({.values = {{"step", std::int64_t{2}}, {"loss", -inf}}});
    writer.write({.values = {{"step", std::int64_t{3}}, {"loss", std::int64_t{4}}}});
    writer.write({.values = {{"step", std::int64_t{4}}, {"loss", std::nan("")}}});
  }
  const Series losses = read_series(folder.path("m.jsonl"), "loss");
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_EQ(Series(losses.begin(), losses.end() - 1), (Series{{1, 1.0 / 3}, {2, -inf}, {3, 4.0}}));
  EXPECT_EQ(losses.back().first, 4);
  EXPECT_TRUE(std::isnan(losses.back().second));
  EXPECT_EQ(read_series(folder.path("m.jsonl"), "val/loss"), (Series{{2, 7.0}}));
  EXPECT_TRUE(read_series(folder.path("m.jsonl"), "lr").empty());
}

TEST(MetricsReaderTest, SkipsWhatIsTornOrOdd) {
  const Folder folder;
  folder.write("m.jsonl",
               "[1]\nno json\n{\"loss\":1}\n{\"step\":1.5,\"loss\":1}\n{\"step\":1,\"loss\":[]}\n"
               "{\"step\":2,\"loss\":5}\n{\"step\":3,\"lo");
  EXPECT_EQ(read_series(folder.path("m.jsonl"), "loss"), (Series{{2, 5.0}}));
}

TEST(MetricsReaderTest, AMissingFileIsSaid) {
  const Folder folder;
  EXPECT_EQ(sentence_of([&] { read_series(folder.path("m.jsonl"), "loss"); }),
            folder.path("m.jsonl") + " cannot be read: No such file or directory");
}

}  // namespace metrics_reader_test
}  // namespace lockstep::report
