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

TEST_F(TokensTest, ATokenBeyondTheVocabularyIsNamedBeforeTheTraining) {
  EXPECT_EQ(sentence_of<DataError>([&] { open_tokens("300"); }),
            folder.path("train.bin") +
                ": token 300 at position 1 must be less than data.vocab_size = 300 (the tokens are uint16)");
}

// Parts of a large file are checked at the start, and every token when it is read.
TEST_F(TokensTest, ATokenBeyondTheVocabularyIsNamedWhenItIsRead) {
  Tokens tokens(100000, 1);
  tokens[1000] = 300;
  folder.write("train.bin", stored(tokens));
  const Splits splits = open_tokens("300");
  EXPECT_EQ(sentence_of<DataError>([&] { get(*splits.train, {1000}); }),
            folder.path("train.bin") +
                ": token 300 at position 1000 must be less than data.vocab_size = 300 (the tokens are uint16)");
}

std::string little_endian(const Tokens& numbers, int width) {
  std::string bytes;
  for (const std::int64_t number : numbers) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i));
  }
  return bytes;
}

/// 50 numbers up to 49007.
Tokens some_tokens() {
  Tokens tokens;
  for (std::int64_t i = 0; i < 50; ++i) tokens.push_back(7 + 1000 * i);
  return tokens;
}

std::string llm_c_header(std::int64_t magic, std::int64_t version, std::int64_t count) {
  Tokens header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return little_endian(header, 4);
}

std::string npy(const std::string& type, const std::string& shape, const std::string& content) {
  const std::string line = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  return std::string("\x93NUMPY\x01\0", 8) + little_endian({std::ssize(line)}, 2) + line + content;
}

TEST_F(TokensTest, HeadersAreRecognized) {
  const Tokens tokens = some_tokens();
  const std::vector<std::pair<std::string, std::string>> files = {
      {llm_c_header(20240520, 1, 50) + little_endian(tokens, 2), "uint16 after the header of llm.c"},
      {llm_c_header(20240801, 7, 50) + little_endian(tokens, 4), "uint32 after the header of llm.c"},
      {npy("<u2", "50,", little_endian(tokens, 2)), "uint16 in a .npy file"},
      {npy("<i4", "50,", little_endian(tokens, 4)), "int32 in a .npy file"},
      {npy("<i8", "50,", little_endian(tokens, 8)), "int64 in a .npy file"}};
  for (const auto& [bytes, text] : files) {
    for (const char* file : {"train.bin", "val.bin"}) folder.write(file, bytes);
    const Splits splits = open_tokens("65536");
    EXPECT_EQ(splits.notes.front(), folder.path("train.bin") + ": 50 tokens, " + text);
    EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {47}).input()), (Tokens{47007, 48007})) << text;
    const auto open_as = [&](const std::string& type) {
      return open_with(
          {{"name", "tokens"}, {"path", folder.path()}, {"vocab_size", "65536"}, {"block", "2"}, {"token_type", type}});
    };
    EXPECT_EQ(open_as(text.substr(0, text.find(' '))).notes.front(), splits.notes.front());
    EXPECT_EQ(sentence_of<DataError>([&] { open_as("uint64"); }),
              folder.path("train.bin") + ": contains " + text + ", but data.token_type = uint64; use auto");
  }
}

TEST_F(TokensTest, AVocabularyCanExceed16Bits) {
  folder.write("train.bin", npy("<u4", "4,", little_endian({1, 2, 128255, 3}, 4)));
  EXPECT_EQ(values_of<std::int64_t>(get(*open_tokens("128256").train, {1}).input()), (Tokens{2, 128255}));
}

TEST_F(TokensTest, WiderIntegersWithoutAHeaderNeedTheirType) {
  Tokens small;
  for (std::int64_t i = 0; i < 50; ++i) small.push_back(i);
  Tokens large = some_tokens();
  large.back() = 128255;
  for (const auto& [tokens, width, type] : std::vector<std::tuple<Tokens, int, std::string>>{
           {some_tokens(), 4, "uint32"}, {small, 4, "uint32"}, {large, 4, "uint32"}, {some_tokens(), 8, "int64"}}) {
    folder.write("train.bin", little_endian(tokens, width));
    EXPECT_EQ(sentence_of<DataError>([&] { open_tokens(); }),
              folder.path("train.bin") +
                  ": contains small numbers at every second position, as integers of 32 or 64 bits do; set "
                  "data.token_type = " +
                  type + ", or uint16 if these are tokens of 16 bits");
    folder.write("val.bin", little_endian({9, 8, 7, 6}, width));
    const Splits splits = open_with(
        {{"name", "tokens"}, {"path", folder.path()}, {"vocab_size", "200000"}, {"block", "2"}, {"token_type", type}});
    EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {48 - 1}).input()), (Tokens{tokens[47], tokens[48]}));
  }
}

TEST_F(TokensTest, TokensOfEightBitsNeedTheirType) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += static_cast<char>(i * 7 % 60);
  folder.write("train.bin", bytes);
  EXPECT_EQ(sentence_of<DataError>([&] { open_tokens(); }),
            folder.path("train.bin") +
                ": contains no byte above 127, as tokens of 8 bits do; set data.token_type = uint8, or uint16 if these "
                "are tokens of 16 bits");
  folder.write("val.bin", bytes);
  const Splits splits = open_with(
      {{"name", "tokens"}, {"path", folder.path()}, {"vocab_size", "60"}, {"block", "2"}, {"token_type", "uint8"}});
  EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {8}).input()), (Tokens{56, 3}));
  for (const char* name : {"train.bin", "val.bin"}) folder.write(name, npy("|u1", "100,", bytes));
  EXPECT_EQ(open_tokens("60").notes.front(), folder.path("train.bin") + ": 100 tokens, uint8 in a .npy file");
}

TEST_F(TokensTest, TextIsNoTokens) {
  for (const std::string line : {"Text is no file of tokens.\r\n", "\xD0\x9C\xD0\xB8\xD1\x80 \xE4\xB8\x96\n"}) {
    std::string text;
    while (text.size() % 2 != 0 || text.size() < 6000) text += line;
    folder.write("train.bin", text);
    EXPECT_EQ(sentence_of<DataError>([&] { open_tokens(); }),
              folder.path("train.bin") +
                  ": contains text; use data.name = text, or set data.token_type, for example to uint8, if these are "
                  "tokens");
  }
}

TEST_F(TokensTest, OtherFilesAreRefusedByName) {
  const auto refusal = [&](const std::string& bytes) {
    folder.write("train.bin", bytes);
    return sentence_of<DataError>([&] { open_tokens("65536"); }).substr(folder.path("train.bin").size() + 2);
  };
  EXPECT_EQ(refusal(llm_c_header(20240520, 1, 51) + little_endian(some_tokens(), 2)),
            "has a header for 51 tokens, but contains 50 of the type uint16 after the header of llm.c; the file is "
            "truncated or damaged");
  EXPECT_EQ(refusal(llm_c_header(20240520, 3, 50) + little_endian(some_tokens(), 2)),
            "has the header of llm.c with the unknown version 3; write the file again, or as tokens without a header");
  EXPECT_EQ(refusal(npy(">u2", "50,", little_endian(some_tokens(), 2))),
            "is a .npy file of the type '>u2', but tokens are little-endian integers of 8, 16, 32 or 64 bits; convert "
            "them with astype('<u2') or astype('<u4')");
  EXPECT_EQ(refusal(npy("<u2", "5, 10", little_endian(some_tokens(), 2))),
            "is a .npy file with the shape (5, 10), but tokens are one row; use reshape(-1)");
  EXPECT_EQ(refusal(std::string("PK\x03\x04", 4) + "12345678"),
            "is a zip archive, as torch.save and numpy.savez write it, but a token file contains integers, one after "
            "the other");
}

TEST_F(TokensTest, TheVocabularyMustBeSet) {
  EXPECT_EQ(sentence_of<ConfigError>([this] { open_tokens("0"); }),
            "data.vocab_size is not set; data.name=tokens requires the size of the vocabulary");
}

TEST_F(TokensTest, RefusesAFileThatIsMissingOrCutShort) {
  folder.write("val.bin", "odd");
  EXPECT_EQ(
      sentence_of<DataError>([this] { open_tokens(); }),
      folder.path("val.bin") +
          ": has 3 bytes of tokens, but a token of the type uint16 has 2 bytes, so the file is truncated or not a "
          "token file");
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
