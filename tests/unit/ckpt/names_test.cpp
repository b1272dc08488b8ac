// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/selection.hpp"
#include "ckpt/reading/source.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {
namespace names_test {

TEST(EscapeTest, LeavesWhatIsHarmless) {
  EXPECT_EQ(escaped("layer1.0.conv-weight /é 中 😀"), "layer1.0.conv-weight /é 中 😀");
}

TEST(EscapeTest, NothingReachesTheTerminalAsACommand) {
  EXPECT_EQ(escaped("\x1B[2J"), "\\x1B[2J");
  EXPECT_EQ(escaped(std::string_view("a\0b\x7F", 4)), "a\\x00b\\x7F");
  EXPECT_EQ(escaped("a\nb\r"), "a\\nb\\x0D");
  EXPECT_EQ(escaped("\xC2\x9B"), "\\u009B");      // a control character beyond ASCII
  EXPECT_EQ(escaped("\xE2\x80\xAE"), "\\u202E");  // turns the direction of writing
  EXPECT_EQ(escaped("a\\nb"), "a\\\\nb");         // so that it is not taken for a line end
}

TEST(EscapeTest, InvalidUtf8) {
  EXPECT_EQ(escaped("\xFFz"), "\\xFFz");
  EXPECT_EQ(escaped("\xC3"), "\\xC3");                    // cut off
  EXPECT_EQ(escaped("\xC0\xAF"), "\\xC0\\xAF");           // '/' in two bytes
  EXPECT_EQ(escaped("\xED\xA0\x80"), "\\xED\\xA0\\x80");  // half of a pair
}

TEST(SizesTest, AreHumanAndExact) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(exact_bytes(1572864), "1.50 MiB (1572864 bytes)");
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text({64, 10}), "[64, 10]");
}

TEST(TableTest, AlignsByCharactersNotBytes) {
  TextTable table({Align::left, Align::right});
  table.add({"é", "1"});
  table.add({"abc", "22"});
  EXPECT_EQ(table.text(), "é     1\nabc  22\n");
}

TEST(FilterTest, Globs) {
  const Filter filter({"layers.*.weight"});
  EXPECT_TRUE(filter.matches("layers.0.weight"));
  EXPECT_TRUE(filter.matches("layers.0.attention.weight"));
  EXPECT_FALSE(filter.matches("layers.0.bias"));
  EXPECT_FALSE(filter.matches("a.layers.0.weight"));
  EXPECT_TRUE(Filter({"conv[01].bias"}).matches("conv1.bias"));
  EXPECT_FALSE(Filter({"conv?"}).matches("conv12"));
}

TEST(FilterTest, ExpressionsAndSeveral) {
  EXPECT_TRUE(Filter({"/[0-9]+/"}).matches("conv12"));
  EXPECT_FALSE(Filter({"/^[0-9]+$/"}).matches("conv12"));
  EXPECT_TRUE(Filter({"x", "/b$/"}).matches("ab"));
  EXPECT_TRUE(Filter({}).matches("anything"));
  EXPECT_THROW(Filter({"/(/"}), Failure);
}

TEST(LabelTest, IsTheSameInEveryFormat) {
  EXPECT_EQ(label_of("/model/params/conv1.weight"), "conv1.weight");
  EXPECT_EQ(label_of("/model/buffers/bn.mean"), "bn.mean");
  EXPECT_EQ(label_of("/conv1.weight"), "conv1.weight");
  EXPECT_EQ(label_of("/optim/0/step"), "/optim/0/step");
}

}  // namespace names_test
}  // namespace lockstep::ckpt
