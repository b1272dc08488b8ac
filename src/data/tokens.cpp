// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/text/text.hpp"
#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/source/sources.hpp"
#include "data/windows.hpp"

namespace lockstep::data {

namespace {

/// The place and the type of the tokens in a file: little-endian integers, one after the other.
struct TokenFormat {
  std::size_t begin = 0;  ///< bytes before the first token
  std::size_t width = 2;  ///< bytes per token: 2, 4 or 8
  bool is_signed = false;
  std::string text = "";  ///< "uint16 after the header of llm.c", for the log
};

using Bytes = std::span<const std::uint8_t>;

struct TypeRow {
  const char* name;
  std::size_t width;
  bool is_signed;
  std::string_view numpy;  ///< NumPy's name of the type
};

constexpr std::array<TypeRow, 7> kTypes = {{{"uint16", 2, false, "<u2"},
                                            {"uint32", 4, false, "<u4"},
                                            {"int16", 2, true, "<i2"},
                                            {"int32", 4, true, "<i4"},
                                            {"int64", 8, true, "<i8"},
                                            {"uint64", 8, false, "<u8"},
                                            {"uint8", 1, false, "|u1"}}};

/// Beginnings of files that contain something else.
constexpr std::array<std::pair<std::string_view, const char*>, 10> kOthers = {{
    {"\x1F\x8B\x08", "a gzip archive"},
    {"\x28\xB5\x2F\xFD", "a Zstandard archive"},
    {std::string_view("\xFD"
                      "7zXZ\0",
                      6),
     "an xz archive"},
    {"BZh", "a bzip2 archive"},
    {"MMIDIDX", "an index of Megatron, which is not its file of tokens"},
    {"\x80\x02\x8A\x0Al\xFC\x9C\x46", "a file of an old version of torch.save"},
    {std::string_view("PK\x03\x04", 4), "a zip archive, as torch.save and numpy.savez write it"},
    {"\x89HDF\r\n\x1A\n", "an HDF5 file"},
    {"PAR1", "a Parquet file"},
    {"ARROW1", "an Arrow file"},
}};

std::string_view text_of(Bytes file) { return {reinterpret_cast<const char*>(file.data()), file.size()}; }

std::uint64_t little_endian_at(Bytes file, std::size_t position, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | file[position + i];
  return value;
}

/// The format of integers of a type from `begin`. @throws DataError  the rest of the file is no multiple of its width
TokenFormat format_of(const TypeRow& type, Bytes file, std::size_t begin, const std::string& origin,
                      const std::string& path) {
  const std::size_t bytes = file.size() - begin;
  if (bytes % type.width != 0) {
    throw DataError(path, "has " + std::to_string(bytes) + " bytes of tokens, but a token of the type " + type.name +
                              " has " + std::to_string(type.width) +
                              " bytes, so the file is truncated or not a token file");
  }
  return {.begin = begin, .width = type.width, .is_signed = type.is_signed, .text = type.name + origin};
}

void require_count(std::uint64_t count, Bytes file, const TokenFormat& format, const std::string& path) {
  const std::uint64_t found = (file.size() - format.begin) / format.width;
  if (count == found) return;
  throw DataError(path, "has a header for " + std::to_string(count) + " tokens, but contains " + std::to_string(found) +
                            " of the type " + format.text + "; the file is truncated or damaged");
}

/// llm.c: 256 integers of 32 bits, which begin with a magic number, a version and the number of tokens.
std::optional<TokenFormat> llm_c_format(Bytes file, const std::string& path) {
  constexpr std::size_t kHeader = 1024;
  constexpr std::uint64_t kGpt2 = 20240520;   // version 1: uint16
  constexpr std::uint64_t kLlama = 20240801;  // version 7: uint32
  if (file.size() < kHeader) return std::nullopt;
  const std::uint64_t magic = little_endian_at(file, 0, 4);
  const std::uint64_t version = little_endian_at(file, 4, 4);
  if (magic != kGpt2 && magic != kLlama) return std::nullopt;
  if (version != (magic == kGpt2 ? 1U : 7U)) {
    throw DataError(path, "has the header of llm.c with the unknown version " + std::to_string(version) +
                              "; write the file again, or as tokens without a header");
  }
  const TokenFormat format =
      format_of(kTypes[magic == kGpt2 ? 0 : 1], file, kHeader, " after the header of llm.c", path);
  require_count(little_endian_at(file, 8, 4), file, format, path);
  return format;
}

/// The text after a key of a .npy header, up to one of `ends`.
std::string_view value_after(std::string_view header, std::string_view key, std::string_view ends) {
  const std::size_t position = header.find(key);
  if (position == std::string_view::npos) return {};
  const std::string_view rest = header.substr(position + key.size());
  const std::size_t start = std::min(rest.find_first_not_of(" :'("), rest.size());
  return rest.substr(start, std::min(rest.find_first_of(ends, start), rest.size()) - start);
}

std::optional<TokenFormat> npy_format(Bytes file, const std::string& path) {
  constexpr std::string_view kNpyMagic = "\x93NUMPY";
  if (!text_of(file).starts_with(kNpyMagic) || file.size() < 12) return std::nullopt;
  const bool is_long = file[6] > 1;  // the version
  const std::size_t start = is_long ? 12 : 10;
  const std::size_t begin = start + little_endian_at(file, 8, is_long ? 4 : 2);
  if (begin > file.size()) throw DataError(path, "ends within its .npy header; the file is truncated");
  const std::string_view header = text_of(file).substr(start, begin - start);
  const std::string_view name = value_after(header, "'descr'", "'");
  const auto* const type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.numpy == name; });
  if (type == kTypes.end()) {
    throw DataError(path, "is a .npy file of the type '" + std::string(name) +
                              "', but tokens are little-endian integers of 8, 16, 32 or 64 bits; convert them with "
                              "astype('<u2') or astype('<u4')");
  }
  const TokenFormat format = format_of(*type, file, begin, " in a .npy file", path);
  const std::string shape(value_after(header, "'shape'", ")"));
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), count);
  if (error != std::errc() || (end != shape.data() + shape.size() && std::string_view(end) != ",")) {
    throw DataError(path, "is a .npy file with the shape (" + shape + "), but tokens are one row; use reshape(-1)");
  }
  require_count(count, file, format, path);
  return format;
}

constexpr std::size_t kMinBytes = 64;  // shorter files show nothing

/// Facts about the 16-bit words at one of four positions.
struct Words {
  std::uint64_t largest = 0;
  std::uint64_t largest_low = 0;  ///< the largest lower byte
  std::int64_t zeros = 0;
  std::int64_t small = 0;  ///< words whose upper byte is 0
  std::int64_t count = 0;
};

/// The words at each position of four, in parts of the file.
std::array<Words, 4> words_in(Bytes file) {
  constexpr std::size_t kParts = 64;
  constexpr std::size_t kPartBytes = 1024;
  std::array<Words, 4> words{};
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t begin = file.size() / kParts * part / 8 * 8;
    for (std::size_t position = begin; position + 8 <= std::min(begin + kPartBytes, file.size()); position += 8) {
      for (std::size_t k = 0; k < 4; ++k) {
        const std::uint64_t word = little_endian_at(file, position + 2 * k, 2);
        words[k].largest = std::max(words[k].largest, word);
        words[k].largest_low = std::max(words[k].largest_low, word & 0xFF);
        words[k].zeros += word == 0 ? 1 : 0;
        words[k].small += word < 256 ? 1 : 0;
        ++words[k].count;
      }
    }
  }
  return words;
}

/// Whether the file begins with text in UTF-8. Tokens of 16 bits have other bytes, or zeros.
bool begins_with_text(Bytes file) {
  constexpr std::size_t kLooked = 4096;
  std::string_view begin = text_of(file.first(std::min(kLooked, file.size())));
  const auto ends_in = [&begin](int mask, int bits) { return !begin.empty() && (begin.back() & mask) == bits; };
  while (ends_in(0xC0, 0x80)) begin.remove_suffix(1);  // the last character, which may be incomplete
  if (ends_in(0xC0, 0xC0)) begin.remove_suffix(1);
  const std::string text(begin);
  return text.size() >= kMinBytes / 2 && text.find('\0') == std::string::npos && utf8_text(text) == text;
}

/// Whether each byte is at most 127, and upper bytes are rarely 0: tokens of 8 bits.
bool has_small_bytes(const std::array<Words, 4>& words) {
  constexpr std::uint64_t kMaxByte = 127;
  return std::all_of(words.begin(), words.end(), [](const Words& each) {
    return each.largest_low <= kMaxByte && each.largest >> 8 <= kMaxByte && 2 * each.small < each.count;
  });
}

/// The type that tokens seem to have: the upper halves of wide integers are small, and most lower halves are not 0.
/// Empty = there is no such sign.
std::string suspected_type(Bytes file) {
  constexpr std::uint64_t kMaxUpper = 15;  // vocabularies up to a million
  constexpr std::uint64_t kMinLower = 256;
  if (file.size() < kMinBytes) return "";
  const auto words = words_in(file);
  if (2 * words[0].zeros > words[0].count) return "";
  if (has_small_bytes(words)) return "uint8";
  if (words[2].largest == 0 && words[3].largest == 0 && words[1].largest <= kMaxUpper) return "int64";
  const std::uint64_t lower = std::max(words[0].largest, words[2].largest);
  const std::uint64_t upper = std::max(words[1].largest, words[3].largest);
  const bool is_wide = upper == 0 || (upper <= kMaxUpper && lower >= kMinLower);
  return is_wide ? "uint32" : "";
}

/// Recognizes the headers of llm.c and of NumPy's .npy files. Other files contain tokens only.
/// @param type  data.token_type: "auto", or the type of a file that contains tokens only. "auto" is uint16 there
/// @throws DataError  the header contradicts the size of the file or the type, the content is no integers of a
///                    supported type, or tokens of the type auto look like integers of 32 or 64 bits; the message names
///                    the path
TokenFormat token_format(Bytes file, const std::string& type, const std::string& path) {
  auto stated = llm_c_format(file, path);
  if (!stated) stated = npy_format(file, path);
  if (stated) {
    if (type == "auto" || stated->text.starts_with(type + " ")) return *stated;
    throw DataError(path, "contains " + stated->text + ", but data.token_type = " + type + "; use auto");
  }
  if (type != "auto") {
    const auto* const row =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& each) { return each.name == type; });
    return format_of(*row, file, 0, "", path);
  }
  for (const auto& [magic, name] : kOthers) {
    if (text_of(file).starts_with(magic)) {
      throw DataError(path, std::string("is ") + name + ", but a token file contains integers, one after the other");
    }
  }
  if (file.size() >= kMinBytes && begins_with_text(file)) {
    throw DataError(path,
                    "contains text; use data.name = text, or set data.token_type, for example to uint8, if these are "
                    "tokens");
  }
  const std::string suspected = suspected_type(file);
  if (suspected.empty()) return format_of(kTypes.front(), file, 0, "", path);
  if (suspected == "uint8") {
    throw DataError(path,
                    "contains no byte above 127, as tokens of 8 bits do; set data.token_type = uint8, or uint16 if "
                    "these are tokens of 16 bits");
  }
  throw DataError(path,
                  "contains small numbers at every second position, as integers of 32 or 64 bits do; set "
                  "data.token_type = " +
                      suspected + ", or uint16 if these are tokens of 16 bits");
}

/// The token at an index. @return  -1 = the number is negative or exceeds 63 bits
std::int64_t token_at(Bytes file, const TokenFormat& format, std::size_t index) {
  const std::uint64_t value = little_endian_at(file, format.begin + index * format.width, format.width);
  const std::uint64_t negative = std::uint64_t{1} << (8 * format.width - 1);
  if (value >= negative && (format.is_signed || format.width == 8)) return -1;
  return static_cast<std::int64_t>(value);
}

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
