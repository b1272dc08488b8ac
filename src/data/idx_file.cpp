// SPDX-License-Identifier: BSD-3-Clause
#include "data/idx_file.hpp"

#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>

namespace lockstep::data {

namespace {

constexpr std::uint8_t kUnsignedByte = 8;
constexpr std::uint8_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxExpansion = 1032;  // deflate expands n bytes to at most 1032 n

// The bytes of a file, decompressed where it is compressed (zlib finds out by itself).
class ByteReader {
 public:
  explicit ByteReader(const std::string& path) : path_(path), file_(opened(path)) {
    if (file_ == nullptr) fail("cannot be opened (" + std::generic_category().message(errno) + ")");
    ::gzbuffer(file_, 1U << 17);
  }
  ~ByteReader() { ::gzclose_r(file_); }
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Fills `out` as far as the file reaches.
  /// @return  the number of bytes read
  std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t wanted = std::min<std::size_t>(out.size() - done, std::numeric_limits<int>::max());
      const int got = ::gzread(file_, out.data() + done, static_cast<unsigned>(wanted));
      if (got < 0) fail("cannot be read (" + reason() + ")");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  bool ends_inside_compression() const {
    int code = 0;
    ::gzerror(file_, &code);
    return code == Z_BUF_ERROR;
  }

  bool is_compressed() { return ::gzdirect(file_) == 0; }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_, what); }

 private:
  /// Opening a pipe would wait for its writer.
  static gzFile opened(const std::string& path) {
    std::error_code unknown;
    const auto type = std::filesystem::status(path, unknown).type();
    const bool is_other = type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found;
    if (!unknown && is_other) throw DataError(path, "is not a regular file; check data.path");
    return ::gzopen(path.c_str(), "rbe");
  }

  std::string reason() const {
    int code = 0;
    const std::string text = ::gzerror(file_, &code);
    if (code == Z_ERRNO) return std::generic_category().message(errno);
    const std::string prefix = path_ + ": ";  // zlib puts the name in front
    return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
  }

  std::string path_;
  gzFile file_;
};

std::vector<std::int64_t> read_shape(ByteReader& file) {
  std::array<std::uint8_t, 4> magic{};
  if (file.read(magic) < magic.size()) file.fail("is shorter than the header of an IDX file");
  if (magic[0] != 0 || magic[1] != 0) file.fail("is not an IDX file: it does not start with two zero bytes");
  if (magic[2] != kUnsignedByte) {
    file.fail("contains elements of IDX type " + std::to_string(magic[2]) +
              "; only type 8, unsigned byte, is supported");
  }
  if (magic[3] < 1 || magic[3] > kMaxDimensions) {
    file.fail("has " + std::to_string(magic[3]) + " dimensions; 1 to 4 are supported");
  }
  std::vector<std::int64_t> shape(magic[3]);
  for (std::int64_t& size : shape) {
    std::array<std::uint8_t, 4> big_endian{};
    if (file.read(big_endian) < big_endian.size()) file.fail("is shorter than the header of an IDX file");
    for (const std::uint8_t byte : big_endian) size = size << 8 | byte;
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) file.fail("is empty: its shape is " + words_of(shape));
  return shape;
}

// The length that a shape promises, refused before memory is requested when a file of this length cannot hold it.
std::size_t promised_bytes(ByteReader& file, const std::vector<std::int64_t>& shape, std::uint64_t file_size) {
  const std::uint64_t limit = file.is_compressed() ? file_size * kMaxExpansion : file_size;
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) {
    if (static_cast<std::uint64_t>(size) > limit / count) {
      file.fail("is truncated: its header states " + words_of(shape) + " bytes, more than a compressed file of " +
                std::to_string(file_size) + " bytes can hold");
    }
    count *= static_cast<std::uint64_t>(size);
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

std::string words_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

IdxArray read_idx(const std::string& path) {
  ByteReader file(path);
  std::error_code unknown;
  const std::uint64_t file_size = std::filesystem::file_size(path, unknown);
  if (unknown) file.fail("cannot be examined (" + unknown.message() + ")");
  IdxArray array{.shape = read_shape(file), .bytes = {}};
  array.bytes.resize(promised_bytes(file, array.shape, file_size));
  const std::size_t present = file.read(array.bytes);
  if (present < array.bytes.size()) {
    file.fail("is truncated: its header states " + words_of(array.shape) + " bytes, but only " +
              std::to_string(present) + " follow");
  }
  // Asking for one byte more also makes zlib compare its checksum.
  std::array<std::uint8_t, 1> more{};
  if (file.read(more) != 0)
    file.fail("is longer than its header states: there are data after the " + words_of(array.shape));
  if (file.ends_inside_compression()) file.fail("is truncated: its compressed stream has no end");
  return array;
}

}  // namespace lockstep::data
