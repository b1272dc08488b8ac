// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "core/text/text.hpp"

namespace lockstep {
namespace message_test {

// The formula as LibTorch has it.
const std::string kWhole =
    "Target 10 is out of bounds.\nException raised from nll_loss at LossNLL.cpp:1\nframe #0: ...";

TEST(MessageTest, LeavesTheStackOfLibTorchOut) {
  unsetenv("TORCH_SHOW_CPP_STACKTRACES");
  EXPECT_EQ(message_of(std::runtime_error(kWhole)), "Target 10 is out of bounds.");
  EXPECT_EQ(message_of(std::runtime_error("one\ntwo")), "one\ntwo");
}

TEST(MessageTest, ShowsItWhereAskedTo) {
  setenv("TORCH_SHOW_CPP_STACKTRACES", "1", 1);
  EXPECT_EQ(message_of(std::runtime_error(kWhole)), kWhole);
  unsetenv("TORCH_SHOW_CPP_STACKTRACES");
}

}  // namespace message_test
}  // namespace lockstep
