// SPDX-License-Identifier: BSD-3-Clause
#include "files.hpp"

namespace lockstep::data {
namespace tokens_test {

using Tokens = std::vector<std::int64_t>;

std::string stored(const Tokens& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) bytes += {static_cast<char>(token & 255), static_cast<char>(token >> 8)};
  return bytes;
}

class TokensTest : public ::testing::Test {
 protected:
  TokensTest() {
    folder.write("train.bin", stored({7, 300, 65534, 0, 1, 2}));
    folder.write("val.bin", stored({9, 8, 7, 6}));
  }
  Splits open_tokens(const std::string& vocab_size = "65535", const std::string& block = "2") const {
    return open_with({{"name", "tokens"}, {"path", folder.path()}, {"vocab_size", vocab_size}, {"block", block}});
  }
  TemporaryFolder folder;
};

TEST_F(TokensTest, ReadsTwoBytesEach) {
  const Splits tokens = open_tokens();
  EXPECT_EQ(tokens.train->size(), 4);
  EXPECT_EQ(tokens.train->task().classes, 65535);
  EXPECT_EQ(tokens.train->task().sample_shape, (Tokens{2}));
  const batch::Batch batch = get(*tokens.train, {3, 1});
  EXPECT_EQ(values_of<std::int64_t>(batch.input()), (Tokens{0, 1, 300, 65534}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (Tokens{1, 2, 65534, 0}));
}

TEST_F(TokensTest, TheLastTestSampleAsksForWhatIsLeft) {
  const Splits tokens = open_tokens();
  EXPECT_EQ(tokens.val->size(), 2);
  const batch::Batch batch = get(*tokens.val, {0, 1});
  EXPECT_EQ(values_of<std::int64_t>(batch.input()), (Tokens{9, 8, 8, 7}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (Tokens{8, 7, kIgnored, 6}));
}

TEST_F(TokensTest, ATokenBeyondTheVocabularyIsNamedWhenItIsRead) {
  const Splits tokens = open_tokens("300");
  EXPECT_EQ(values_of<std::int64_t>(get(*tokens.train, {3}).input()), (Tokens{0, 1}));
  EXPECT_EQ(sentence_of<DataError>([&] { get(*tokens.train, {0}); }),
            folder.path("train.bin") + ": token 300 at position 1 must be less than data.vocab_size = 300");
}

TEST_F(TokensTest, TheVocabularyMustBeSet) {
  EXPECT_EQ(sentence_of<ConfigError>([this] { open_tokens("0"); }),
            "data.vocab_size is not set; data.name=tokens requires the size of the vocabulary");
}

TEST_F(TokensTest, RefusesAFileThatIsMissingOrCutShort) {
  folder.write("val.bin", "odd");
  EXPECT_EQ(sentence_of<DataError>([this] { open_tokens(); }),
            folder.path("val.bin") +
                ": has 3 bytes, an odd number; a token has two bytes, so the file is truncated or not a token file");
  std::filesystem::remove(folder.path("val.bin"));
  EXPECT_EQ(sentence_of<DataError>([this] { open_tokens(); }),
            folder.path("val.bin") + ": cannot be opened (No such file or directory); check data.path");
  EXPECT_EQ(sentence_of<DataError>([this] { open_tokens("65535", "6"); }),
            folder.path("train.bin") +
                ": the training part has 6 tokens, but data.block = 6 needs at least 7; use a longer text or lower "
                "data.block");
}

// Beyond 256 KiB only samples of the file enter: its length, head and tail always do.
TEST_F(TokensTest, TheDigestOfALargeFileSeesHeadTailAndLength) {
  const Tokens zeros(400000, 0);
  const auto digest_of = [this](const Tokens& tokens) {
    folder.write("train.bin", stored(tokens));
    return open_tokens().train->digest();
  };
  const std::uint64_t before = digest_of(zeros);
  EXPECT_EQ(digest_of(zeros), before);
  Tokens changed = zeros;
  changed.front() = 1;
  EXPECT_NE(digest_of(changed), before);
  changed = zeros;
  changed.back() = 1;
  EXPECT_NE(digest_of(changed), before);
  changed = zeros;
  changed.push_back(0);
  EXPECT_NE(digest_of(changed), before);
}

}  // namespace tokens_test
}  // namespace lockstep::data
