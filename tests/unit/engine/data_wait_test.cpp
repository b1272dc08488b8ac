// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/measures/run_times.hpp"

namespace lockstep::engine {
namespace data_wait_test {

// 10 s of steps, of which 6 s are computing. Loading a sample takes 20 ms.
constexpr LoadingTimes kSlowLoading = {.seconds = 10, .data_seconds = 4, .loading_seconds = 16, .samples = 800};

TEST(DataWaitTest, CountsThreadsByTheTimeOfTheModelAlone) {
  EXPECT_DOUBLE_EQ(kSlowLoading.wait_share(), 0.4);
  EXPECT_DOUBLE_EQ(kSlowLoading.loaded_per_second(2), 100);
  EXPECT_EQ(kSlowLoading.threads_needed(), 3);  // 16 s / 6 s
  EXPECT_EQ((LoadingTimes{.seconds = 10, .data_seconds = 0, .loading_seconds = 1, .samples = 800}).threads_needed(), 1);
  EXPECT_EQ((LoadingTimes{.seconds = 6, .data_seconds = 0, .loading_seconds = 12, .samples = 800}).threads_needed(), 2);
  EXPECT_EQ(LoadingTimes{}.threads_needed(), 1);
  EXPECT_EQ(LoadingTimes{}.wait_share(), 0);
  EXPECT_EQ(LoadingTimes{}.loaded_per_second(1), 0);
}

TEST(DataWaitTest, SaysWhatIsNeeded) {
  EXPECT_EQ(data_wait_sentence(kSlowLoading, 2, 8, 4),
            "the model waits for data 40.0% of the time: 2 loader threads give 400 samples/s, 3 are needed "
            "(data.workers)");
  EXPECT_EQ(data_wait_sentence(kSlowLoading, 2, 2, 1),
            "the model waits for data 40.0% of the time: 2 loader threads give 100 samples/s, 3 are needed "
            "(data.workers), but a rank can use only 2 processors");
  EXPECT_EQ(data_wait_sentence(kSlowLoading, 4, 8, 1),
            "the model waits for data 40.0% of the time: 4 loader threads give 200 samples/s, 3 are enough "
            "(data.workers)");
  EXPECT_EQ(data_wait_sentence({.seconds = 10, .data_seconds = 5, .loading_seconds = 5, .samples = 500}, 0, 4, 2),
            "the model waits for data 50.0% of the time: the training thread loads its data; 1 loader thread would "
            "load it during the computation (data.workers)");
}

TEST(DataWaitTest, SaysWhatASampleTakes) {
  EXPECT_EQ(load_times_text({}), "");
  const data::LoadTimes times{.samples = 50, .read_seconds = 0.01, .decode_seconds = 0.07, .transform_seconds = 0.02};
  EXPECT_EQ(load_times_text(times), "; a sample takes 2.00 ms: 10% reading, 70% decoding, 20% transforms");
  const data::LoadTimes before{.samples = 49, .read_seconds = 0, .decode_seconds = 0.06, .transform_seconds = 0.02};
  EXPECT_EQ(times.since(before).samples, 1);
  EXPECT_NEAR(times.since(before).seconds(), 0.02, 1e-12);
}

}  // namespace data_wait_test
}  // namespace lockstep::engine
