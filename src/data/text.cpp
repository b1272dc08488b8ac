// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <array>
#include <string>
#include <utility>

#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/source/sources.hpp"
#include "data/windows.hpp"

namespace lockstep::data {

namespace {

// The distinct bytes of a text, numbered in ascending order.
class Alphabet {
 public:
  explicit Alphabet(std::span<const std::uint8_t> text) {
    std::array<bool, 256> occurs{};
    for (const std::uint8_t byte : text) occurs[byte] = true;
    for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
      if (occurs[byte]) numbers_[byte] = size_++;
    }
  }

  std::int64_t size() const noexcept { return size_; }
  std::int64_t number_of(std::uint8_t byte) const noexcept { return numbers_[byte]; }

 private:
  std::array<std::int64_t, 256> numbers_{};
  std::int64_t size_ = 0;
};

class CharacterRun : public TokenRun {
 public:
  CharacterRun(std::shared_ptr<const MappedFile> file, std::span<const std::uint8_t> part, const Alphabet& alphabet)
      : file_(std::move(file)), part_(part), alphabet_(alphabet) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(part_.size()); }

  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    const std::uint8_t* byte = part_.data() + begin;
    for (std::int64_t& token : out) token = alphabet_.number_of(*byte++);
    const auto first = static_cast<std::size_t>(part_.data() - file_->bytes().data() + begin);
    file_->check(first, first + out.size());
  }

  // The digest of the whole file, since its alphabet decides the numbers.
  std::uint64_t digest() const override { return hash_of({hash_of(file_->bytes()), part_.size()}); }

  const std::string& path() const override { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::span<const std::uint8_t> part_;
  Alphabet alphabet_;
};

Splits open_text(const Section& data, const UsedSplits& used) {
  const auto file = std::make_shared<const MappedFile>(required_path(data, "the path of a text file"));
  std::span<const std::uint8_t> text = file->bytes();
  if (text.size() >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF) text = text.subspan(3);  // the BOM
  const Alphabet alphabet(text);
  const auto train_size = static_cast<std::size_t>(static_cast<double>(text.size()) * data.real("train_fraction"));
  const std::int64_t block = data.integer("block");
  const auto windows = [&](std::span<const std::uint8_t> part, Cut cut) {
    return make_windows(std::make_shared<CharacterRun>(file, part, alphabet), cut, block, alphabet.size());
  };
  Splits splits{.train = windows(text.first(train_size), Cut::every_start)};
  if (used.val) splits.val = windows(text.subspan(train_size), Cut::end_to_end);
  return splits;
}

}  // namespace

Source text_source() {
  return {.name = "text",
          .help =
              "Characters of the text file data.path; the first part is the training split, the rest is the validation "
              "split",
          .keys = {block_key(), keys::real_above("data.train_fraction", 0, 1, "0.9",
                                                 "text: fraction of the file that is used for training")},
          .open = open_text};
}

}  // namespace lockstep::data
