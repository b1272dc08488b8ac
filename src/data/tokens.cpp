// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>

#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/source/sources.hpp"
#include "data/token_format.hpp"
#include "data/windows.hpp"

namespace lockstep::data {

namespace {

// Tokens are checked as they are read: a file may be larger than memory.
class StoredRun : public TokenRun {
 public:
  StoredRun(const std::string& path, const std::string& type, std::int64_t vocabulary)
      : file_(path), format_(token_format(file_.bytes(), type, path)), vocabulary_(vocabulary) {
    check_some();
  }

  std::int64_t size() const override {
    return static_cast<std::int64_t>((file_.bytes().size() - format_.begin) / format_.width);
  }

  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    auto index = static_cast<std::size_t>(begin);
    for (std::int64_t& token : out) token = token_at(file_.bytes(), format_, index++);
    const std::size_t first = format_.begin + static_cast<std::size_t>(begin) * format_.width;
    file_.check(first, first + out.size() * format_.width);
    const auto bad =
        std::find_if(out.begin(), out.end(), [this](std::int64_t token) { return token < 0 || token >= vocabulary_; });
    if (bad == out.end()) return;
    const std::string place = " at position " + std::to_string(begin + (bad - out.begin()));
    if (*bad < 0) throw DataError(path(), "the number" + place + " is negative or too large for a token");
    throw DataError(path(), "token " + std::to_string(*bad) + place + " must be less than data.vocab_size = " +
                                std::to_string(vocabulary_) + " (the tokens are " + format_.text + ")");
  }

  /// Remark for the log.
  std::string text() const { return path() + ": " + std::to_string(size()) + " tokens, " + format_.text; }

  // Files of uint16 tokens have the digests of earlier versions.
  std::uint64_t digest() const override {
    const std::uint64_t content = sampled_hash_of(file_.bytes());
    return format_.begin == 0 && format_.width == 2 ? content : hash_of({content, format_.begin, format_.width});
  }

  const std::string& path() const override { return file_.path(); }

 private:
  /// Reads tokens of many parts, so that a wrong type or vocabulary is noticed before the training.
  void check_some() const {
    constexpr std::int64_t kParts = 64;
    constexpr std::int64_t kPart = 256;
    std::array<std::int64_t, kPart> tokens;
    for (std::int64_t part = 0; part < kParts; ++part) {
      const std::int64_t begin = size() / kParts * part;
      read(begin, std::span(tokens).first(static_cast<std::size_t>(std::min(kPart, size() - begin))));
    }
  }

  MappedFile file_;
  TokenFormat format_;
  std::int64_t vocabulary_;
};

Splits open_tokens(const Section& data, const UsedSplits& used) {
  const std::string& folder = required_path(data, "a folder with train.bin and val.bin");
  const std::int64_t vocabulary = data.integer("vocab_size");
  if (vocabulary == 0)
    throw ConfigError("data.vocab_size is not set; data.name=tokens requires the size of the vocabulary");
  Splits splits;
  const auto windows = [&](const std::string& name, Cut cut) {
    const auto run = std::make_shared<StoredRun>(folder + "/" + name, data.text("token_type"), vocabulary);
    splits.notes.push_back(run->text());
    return make_windows(run, cut, data.integer("block"), vocabulary);
  };
  splits.train = windows("train.bin", Cut::every_start);
  if (used.val) splits.val = windows("val.bin", Cut::end_to_end);
  return splits;
}

}  // namespace

Source tokens_source() {
  return {
      .name = "tokens",
      .help =
          "Token ids from train.bin and val.bin in the folder data.path: integers without a header, with the header of "
          "llm.c, or .npy files",
      .keys = {block_key(),
               keys::integer("data.vocab_size", "0", "tokens: size of the vocabulary; required", 0, 1 << 24),
               keys::choice("data.token_type", "auto",
                            "tokens: type of the integers in a file without a header. auto = the type in the header "
                            "of llm.c or .npy, else uint16; files that look like text or other integers are refused",
                            {"auto", "uint8", "uint16", "uint32", "int32", "int64", "uint64"})},
      .open = open_tokens};
}

}  // namespace lockstep::data
