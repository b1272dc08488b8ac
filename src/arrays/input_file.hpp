// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"

namespace lockstep::arrays {

/// The identity of a file and of its content, as far as the system knows them without reading it.
struct FileVersion {
  std::uint64_t device = 0;
  std::uint64_t number = 0;  ///< inode
  std::uint64_t size = 0;
  std::time_t seconds = 0;  ///< time of the last change
  long nanoseconds = 0;

  bool operator==(const FileVersion&) const = default;
};

/// A regular file that is open for reading. Thread-safe.
class InputFile {
 public:
  /// @throws DataError  it cannot be opened, or is no regular file
  explicit InputFile(std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return opened_.size; }
  /// The version that was opened.
  const FileVersion& version() const noexcept { return opened_; }
  /// @throws DataError  the file ends before that, or the system cannot read it
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// @throws DataError  the file was changed since it was opened
  void require_unchanged() const;
  /// The same of the file that has this path now, for libraries that open the file again.
  void require_same_at_path() const;
  /// Calls read(), which reads this file. If the file was changed meanwhile, the error is that of require_unchanged,
  /// also where a library takes the change for damage.
  template <class Read>
  void while_unchanged(const Read& read) const {
    try {
      read();
    } catch (const Error&) {
      require_unchanged();
      throw;
    }
    require_unchanged();
  }

 private:
  std::string path_;
  int file_ = -1;
  FileVersion opened_;
};

/// Opens the arrays of an open file; see open_arrays in array_file.hpp.
std::shared_ptr<const ArrayFile> open_arrays(const std::shared_ptr<const InputFile>& file);

/// Reports that a file is no longer the one that was opened first.
[[noreturn]] void throw_changed(const std::string& path);

/// An array whose elements lie in a file one after the other, row-major.
struct PlainArray {
  std::uint64_t offset = 0;  ///< position of the first element
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  ///< size of an element
};

/// Reads the bytes from an offset on.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;

/// Reads a part of such an array as it is stored. Pieces that are close to one another are read together.
/// @param slab  inside of the array
void read_plain(const ReadBytes& read, const PlainArray& array, const Slab& slab, std::span<std::byte> out);

/// Whether the numbers in the file have another byte order than this machine.
bool is_foreign_order(const NumberType& type);

/// Reverses the bytes of each element.
/// @param bytes  1, 2, 4 or 8 of an element
void reverse_elements(std::span<std::byte> elements, std::size_t bytes);

/// Bytes of all elements; none if their number overflows 63 bits.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, std::size_t element_bytes);

/// @throws DataError  the slab lies outside of the array, or `out` has another size
void require_inside(const std::string& file, const ArrayInfo& array, const Slab& slab, std::size_t out_bytes);

// --- messages ---

/// "variable 'z'"; "the array" if it has no name.
std::string called(const std::string& array);

/// "there is no variable 'z'; there are t, u and 18 more".
std::string no_such_array(const std::string& name, const std::vector<std::string>& names);

/// Calls work(). Its errors that name no file become DataErrors with this one and with `object`, such as "variable 'z':
/// ".
template <class Work>
auto with_place(const std::string& file, const std::string& object, const Work& work) {
  try {
    return work();
  } catch (const DataError& error) {
    if (!error.path().empty()) throw;
    throw DataError(file, object + error.what());
  } catch (const CheckpointError& error) {
    const std::string message = error.what();
    throw DataError(file, object + (message.starts_with(file + ": ") ? message.substr(file.size() + 2) : message));
  }
}

}  // namespace lockstep::arrays
