// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>

#include "files.hpp"
#include "support/folders.hpp"

namespace lockstep::data {
namespace text_test {

using Tokens = std::vector<std::int64_t>;

Splits open_text(const std::string& path, const std::string& block, const std::string& fraction = "0.9") {
  return open_with({{"name", "text"}, {"path", path}, {"block", block}, {"train_fraction", fraction}});
}

class TextTest : public ::testing::Test {
 protected:
  std::string file(const std::string& text) const {
    folder.write("input.txt", text);
    return folder.path("input.txt");
  }
  TemporaryFolder folder;
};

TEST_F(TextTest, CharactersAreNumberedInOrder) {
  const Splits text = open_text(file("dbca\nabcdabcdabcdabcd"), "4", "0.5");  // \n 0, a 1, b 2, c 3, d 4
  const Task task = text.train->task();
  EXPECT_EQ(task.classes, 5);
  EXPECT_EQ(task.sample_shape, (Tokens{4}));
  EXPECT_EQ(task.predictions_per_sample, 4);
  EXPECT_TRUE(task.is_text);
  EXPECT_EQ(text.train->size(), 6);  // starts 0 to 5 of 10 characters, since each needs 5
  const batch::Batch batch = get(*text.train, {5, 0});
  EXPECT_EQ(batch.input().scalar_type(), at::kLong);
  EXPECT_EQ(values_of<std::int64_t>(batch.input()), (Tokens{1, 2, 3, 4, 4, 2, 3, 1}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (Tokens{2, 3, 4, 1, 2, 3, 1, 0}));
}

TEST_F(TextTest, AByteOrderMarkIsNoCharacter) {
  const Splits text = open_text(file("\xEF\xBB\xBF"
                                     "dbca\nabcdabcdabcdabcd"),
                                "4", "0.5");
  EXPECT_EQ(text.train->task().classes, 5);
  EXPECT_EQ(values_of<std::int64_t>(get(*text.train, {0}).input()), (Tokens{4, 2, 3, 1}));
}

TEST_F(TextTest, BytesAbove127AreCharactersLikeOthers) {
  const Splits text = open_text(file("\xff\x80z\xff\x80z\xff\x80z\xff"), "1", "0.5");
  EXPECT_EQ(text.train->task().classes, 3);
  EXPECT_EQ(values_of<std::int64_t>(get(*text.train, {0}).input()), (Tokens{2}));
}

// Every distinct character is one place of the text, so that a target says where it stands.
TEST_F(TextTest, TheTestPartAsksForEveryCharacterOnce) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::int64_t block : {1, 5, 7, 63, 127}) {
    const Splits text = open_text(file(all), std::to_string(block), "0.5");
    std::map<std::int64_t, int> asked;
    for (std::int64_t index = 0; index < text.val->size(); ++index) {
      const batch::Batch batch = get(*text.val, {index});
      const Tokens input = values_of<std::int64_t>(batch.input());
      const Tokens target = values_of<std::int64_t>(batch.target());
      for (std::size_t i = 0; i < target.size(); ++i) {
        if (target[i] == kIgnored) continue;
        EXPECT_EQ(target[i], input[i] + 1);
        ++asked[target[i]];
      }
    }
    EXPECT_EQ(asked.size(), 127U) << block;
    EXPECT_EQ(asked.begin()->first, 129);  // the part's first character, 128, follows nothing
    for (const auto& [target, times] : asked) EXPECT_EQ(times, 1) << target;
  }
}

TEST_F(TextTest, TheDigestFollowsContentAndCut) {
  const std::uint64_t before = open_text(file("abcdefghijabcdefghij"), "2", "0.5").train->digest();
  EXPECT_EQ(open_text(file("abcdefghijabcdefghij"), "2", "0.5").train->digest(), before);
  EXPECT_NE(open_text(file("abcdefghijabcdefghij"), "3", "0.5").train->digest(), before);
  EXPECT_NE(open_text(file("abcdefghijabcdefghij"), "2", "0.6").train->digest(), before);
  EXPECT_NE(open_text(file("abcdefghijabcdefghij"), "2", "0.5").val->digest(), before);
  EXPECT_NE(open_text(file("abcdefghijabcdefghii"), "2", "0.5").train->digest(), before);
}

TEST_F(TextTest, RefusesATextThatIsTooShort) {
  EXPECT_EQ(sentence_of<DataError>([this] { open_text(file(std::string(100, 'a')), "64"); }),
            folder.path("input.txt") +
                ": the validation part has 10 tokens, but data.block = 64 needs at least 65; use a longer text or "
                "lower data.block");
  EXPECT_EQ(sentence_of<DataError>([this] { open_text(file(""), "64"); }),
            folder.path("input.txt") +
                ": the training part has 0 tokens, but data.block = 64 needs at least 65; use a longer text or lower "
                "data.block");
  open_text(file(std::string(19, 'a') + "b"), "9", "0.5");
}

TEST_F(TextTest, AMissingFileIsNamedWithItsKey) {
  EXPECT_EQ(sentence_of<DataError>([this] { open_text(folder.path("none.txt"), "64"); }),
            folder.path("none.txt") + ": cannot be opened (No such file or directory); check data.path");
  EXPECT_EQ(sentence_of<DataError>([this] { open_text(folder.path(), "64"); }),
            folder.path() + ": is not a file; check data.path");
}

TEST(SampleDataTest, TinyShakespeareIsRead) {
  const std::string file = testing::sample_data("tinyshakespeare/input.txt");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "there is no " << file;
  const Splits text = open_text(file, "64");
  EXPECT_EQ(text.train->task().classes, 65);
  EXPECT_EQ(text.train->size(), 1003854 - 64);
  EXPECT_EQ(text.val->size(), (111540 - 1 + 63) / 64);
  const batch::Batch first = get(*text.train, {0});
  EXPECT_EQ(first.input().const_data_ptr<std::int64_t>()[0], 18);  // 'F' of "First Citizen"
  EXPECT_EQ(first.target().const_data_ptr<std::int64_t>()[4], 1);  // the blank after "First"
}

}  // namespace text_test
}  // namespace lockstep::data
