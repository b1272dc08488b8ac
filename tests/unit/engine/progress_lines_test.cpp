// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/progress_lines.hpp"

#include <lockstep/log/log.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace progress_lines_test {

class TransferLinesTest : public ::testing::Test {
 protected:
  void SetUp() override { log::configure({.file = folder_ / "log", .to_console = false}); }
  void TearDown() override { log::configure({}); }
  std::string written() const {
    log::flush();
    std::ostringstream text;
    text << std::ifstream(folder_ / "log").rdbuf();
    return text.str();
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(TransferLinesTest, ShowBytesAndRemainingTime) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  std::atomic<std::uint64_t> bytes = 7;  // bytes of earlier transfers
  {
    const TransferLines lines(
        "reading x", 4 * kGiB, [&] { return bytes.load(); }, std::chrono::milliseconds(5));
    bytes = 7 + kGiB;
    while (written().find("reading x: 1.00 of 4.00 GiB, eta 0:00:0") == std::string::npos) std::this_thread::yield();
    bytes = 7 + 5 * kGiB;  // more than expected
    while (written().find("reading x: 5.00 of 5.00 GiB, eta 0:00:00") == std::string::npos) std::this_thread::yield();
  }
  const std::string all = written();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(written(), all);  // nothing after its end
}

TEST_F(TransferLinesTest, ShortWorkLogsNothing) {
  {
    const TransferLines lines("reading x", 1, [] { return std::uint64_t{0}; });
  }
  EXPECT_EQ(written(), "");
}

}  // namespace progress_lines_test
}  // namespace lockstep::engine
