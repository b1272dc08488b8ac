// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <string>

#include "data/hash.hpp"
#include "data/mapped_file.hpp"
#include "data/sources.hpp"
#include "data/windows.hpp"

namespace lockstep::data {

namespace {

using Stored = std::uint16_t;  // little-endian, one after the other, no header

// Tokens are checked as they are read: a file may be larger than memory.
class StoredRun : public TokenRun {
 public:
  StoredRun(const std::string& path, std::int64_t vocabulary) : file_(path), vocabulary_(vocabulary) {
    if (file_.bytes().size() % sizeof(Stored) != 0) {
      throw DataError(path,
                      "has " + std::to_string(file_.bytes().size()) +
                          " bytes, an odd number; a token has two bytes, so the file is truncated or not a token file");
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(file_.bytes().size() / sizeof(Stored)); }

  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    const std::uint8_t* bytes = file_.bytes().data() + static_cast<std::size_t>(begin) * sizeof(Stored);
    for (std::int64_t& token : out) {
      token = bytes[0] | bytes[1] << 8;
      bytes += sizeof(Stored);
    }
    const auto first = static_cast<std::size_t>(begin) * sizeof(Stored);
    file_.check(first, first + out.size() * sizeof(Stored));
    const auto bad = std::find_if(out.begin(), out.end(), [this](std::int64_t token) { return token >= vocabulary_; });
    if (bad == out.end()) return;
    throw DataError(path(), "token " + std::to_string(*bad) + " at position " +
                                std::to_string(begin + (bad - out.begin())) +
                                " must be less than data.vocab_size = " + std::to_string(vocabulary_));
  }

  std::uint64_t digest() const override { return sampled_hash_of(file_.bytes()); }

  const std::string& path() const override { return file_.path(); }

 private:
  MappedFile file_;
  std::int64_t vocabulary_;
};

Splits open_tokens(const Section& data) {
  const std::string& folder = required_path(data, "a folder with train.bin and val.bin");
  const std::int64_t vocabulary = data.integer("vocab_size");
  if (vocabulary == 0)
    throw ConfigError("data.vocab_size is not set; data.name=tokens requires the size of the vocabulary");
  const auto windows = [&](const std::string& name, Cut cut) {
    return make_windows(std::make_shared<StoredRun>(folder + "/" + name, vocabulary), cut, data.integer("block"),
                        vocabulary);
  };
  return {.train = windows("train.bin", Cut::every_start), .val = windows("val.bin", Cut::end_to_end)};
}

}  // namespace

Source tokens_source() {
  return {
      .name = "tokens",
      .help = "Token ids from train.bin and val.bin in the folder data.path: unsigned 16-bit integers without a header",
      .keys = {block_key(),
               keys::integer("data.vocab_size", "0", "tokens: size of the vocabulary; required", 0, 65536)},
      .open = open_tokens};
}

}  // namespace lockstep::data
