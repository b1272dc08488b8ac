// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/input_file.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

constexpr std::uint64_t kWindowBytes = std::uint64_t{256} << 10;  // most that is read in one call for several pieces
constexpr std::uint64_t kSkippedBytes = 4096;  // a smaller gap costs less to read than a further call does

[[noreturn]] void fail_errno(const std::string& path, const std::string& what) {
  throw DataError(path, what + ": " + std::strerror(errno));
}

FileVersion version_of(const struct stat& status) {
  return {.device = status.st_dev,
          .number = status.st_ino,
          .size = static_cast<std::uint64_t>(status.st_size),
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec};
}

/// Collects pieces in ascending order of their offsets, and reads them.
class PieceReader {
 public:
  PieceReader(const ReadBytes& read, std::span<std::byte> out) : read_(read), out_(out) {}

  void add(std::uint64_t offset, std::size_t bytes) {
    const bool is_near =
        !pieces_.empty() && offset - end_ <= kSkippedBytes && offset + bytes - pieces_.front().offset <= kWindowBytes;
    if (!is_near) flush();
    if (!pieces_.empty() && offset == end_) {
      pieces_.back().bytes += bytes;
    } else {
      pieces_.push_back({offset, bytes});
    }
    end_ = offset + bytes;
  }

  void flush() {
    if (pieces_.empty()) return;
    if (pieces_.size() == 1) {
      read_(pieces_.front().offset, next(pieces_.front().bytes));
    } else {
      const std::uint64_t begin = pieces_.front().offset;
      window_.resize(static_cast<std::size_t>(end_ - begin));
      read_(begin, window_);
      for (const Piece& piece : pieces_) {
        std::memcpy(next(piece.bytes).data(), window_.data() + (piece.offset - begin), piece.bytes);
      }
    }
    pieces_.clear();
  }

 private:
  struct Piece {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  std::span<std::byte> next(std::size_t bytes) {
    const std::span<std::byte> place = out_.first(bytes);
    out_ = out_.subspan(bytes);
    return place;
  }

  const ReadBytes& read_;
  std::span<std::byte> out_;  ///< the place of the rest
  std::vector<Piece> pieces_;
  std::vector<std::byte> window_;
  std::uint64_t end_ = 0;  ///< offset after the last piece
};

/// The axis from which on a slab has all elements, so that [first, rank) is one piece of the file.
std::size_t first_whole_axis(const std::vector<std::int64_t>& shape, const Slab& slab) {
  std::size_t first = shape.size();
  while (first > 0 && slab.count[first - 1] == shape[first - 1] &&
         (slab.step[first - 1] == 1 || shape[first - 1] == 1)) {
    --first;
  }
  return first;
}

/// Calls use(element) for the first element of each piece. The axes [0, axes) of the slab choose the pieces.
template <class Use>
void for_each_piece(const std::vector<std::int64_t>& shape, const Slab& slab, std::size_t axes, const Use& use) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  std::int64_t element = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) element += slab.start[axis] * strides[axis];
  std::vector<std::int64_t> done(axes, 0);
  for (;;) {
    use(element);
    std::size_t axis = axes;
    while (axis > 0) {
      --axis;
      element += slab.step[axis] * strides[axis];
      if (++done[axis] < slab.count[axis]) break;
      element -= done[axis] * slab.step[axis] * strides[axis];
      done[axis] = 0;
      if (axis == 0) return;
    }
    if (axes == 0) return;
  }
}

template <class Word, class Reverse>
void reverse_words(std::span<std::byte> elements, const Reverse& reverse) {
  for (std::size_t i = 0; i + sizeof(Word) <= elements.size(); i += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, elements.data() + i, sizeof word);
    word = reverse(word);
    std::memcpy(elements.data() + i, &word, sizeof word);
  }
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer would wait
  if (file_ < 0) fail_errno(path_, "it cannot be opened");
  struct stat status {};
  const bool is_file = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (is_file) {
    opened_ = version_of(status);
    return;
  }
  ::close(file_);
  throw DataError(path_, S_ISDIR(status.st_mode) ? "it is a folder; name a file" : "it is not a regular file");
}

InputFile::~InputFile() { ::close(file_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path_, "it cannot be read at byte " + std::to_string(offset));
    if (got == 0) {
      throw DataError(path_, "it is truncated: it ends at byte " + std::to_string(offset) + ", where " +
                                 std::to_string(out.size()) + " more bytes should be");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void InputFile::require_unchanged() const {
  struct stat status {};
  if (::fstat(file_, &status) != 0 || version_of(status) != opened_) throw_changed(path_);
}

void InputFile::require_same_at_path() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0 || version_of(status) != opened_) throw_changed(path_);
}

void throw_changed(const std::string& path) {
  throw DataError(path, "it was changed while it was in use; restore the file, or start again");
}

void read_plain(const ReadBytes& read, const PlainArray& array, const Slab& slab, std::span<std::byte> out) {
  if (out.empty()) return;
  std::size_t axes = first_whole_axis(array.shape, slab);
  if (axes > 0 && slab.step[axes - 1] == 1) --axes;  // neighbors along this axis are neighbors in the file
  std::size_t bytes = array.bytes;
  for (std::size_t axis = axes; axis < array.shape.size(); ++axis) bytes *= static_cast<std::size_t>(slab.count[axis]);
  PieceReader reader(read, out);
  for_each_piece(array.shape, slab, axes, [&](std::int64_t element) {
    reader.add(array.offset + static_cast<std::uint64_t>(element) * array.bytes, bytes);
  });
  reader.flush();
}

bool is_foreign_order(const NumberType& type) {
  return type.bytes > 1 && type.is_big_endian != (std::endian::native == std::endian::big);
}

void reverse_elements(std::span<std::byte> elements, std::size_t bytes) {
  if (bytes == 2) reverse_words<std::uint16_t>(elements, [](std::uint16_t word) { return __builtin_bswap16(word); });
  if (bytes == 4) reverse_words<std::uint32_t>(elements, [](std::uint32_t word) { return __builtin_bswap32(word); });
  if (bytes == 8) reverse_words<std::uint64_t>(elements, [](std::uint64_t word) { return __builtin_bswap64(word); });
}

std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, std::size_t element_bytes) {
  auto bytes = static_cast<std::int64_t>(element_bytes);
  const bool is_empty = std::ranges::find(shape, 0) != shape.end();
  for (const std::int64_t length : shape) {
    if (length < 0 || (!is_empty && __builtin_mul_overflow(bytes, length, &bytes))) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

void require_inside(const std::string& file, const ArrayInfo& array, const Slab& slab, std::size_t out_bytes) {
  const std::size_t rank = array.shape.size();
  bool is_inside = slab.start.size() == rank && slab.count.size() == rank && slab.step.size() == rank;
  for (std::size_t axis = 0; is_inside && axis < rank; ++axis) {
    const std::int64_t start = slab.start[axis], count = slab.count[axis], step = slab.step[axis];
    is_inside = start >= 0 && count >= 0 && step >= 1 &&
                (count == 0 || (start < array.shape[axis] && count - 1 <= (array.shape[axis] - 1 - start) / step));
  }
  if (!is_inside) {
    throw DataError(file, called(array.path) + ": the part from " + shape_text(slab.start) + " on with " +
                              shape_text(slab.count) + " elements, every " + shape_text(slab.step) +
                              "th, lies outside of its shape " + shape_text(array.shape));
  }
  const auto bytes = bytes_of(slab.count, array.type.bytes);
  if (bytes == out_bytes) return;
  throw DataError(file, called(array.path) + ": there is memory for " + std::to_string(out_bytes) + " bytes, but " +
                            shape_text(slab.count) + " elements of " + name_of(array.type) + " are to be read");
}

std::string called(const std::string& array) {
  return array.empty() ? "the array" : "variable '" + utf8_text(array) + "'";
}

std::string no_such_array(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 20;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) shown.push_back(utf8_text(names[i]));
  std::string message = "there is no " + called(name) + "; " + (shown.empty() ? "it is empty" : "there are ");
  message += joined(shown);
  if (names.size() > kMaxNames) message += " and " + std::to_string(names.size() - kMaxNames) + " more";
  return message;
}

}  // namespace lockstep::arrays
