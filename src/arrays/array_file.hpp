// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// Arrays of numbers in files of other programs: HDF5, netCDF-4, npy and npz. Errors are DataErrors with the path of
/// the file. All functions are thread-safe and not collective.
namespace lockstep::arrays {

enum class NumberKind { real, signed_integer, unsigned_integer };

/// The type of the numbers of an array. In memory they have the byte order of the machine.
struct NumberType {
  NumberKind kind = NumberKind::real;
  std::size_t bytes = 4;       ///< 2, 4 or 8 of real numbers; 1, 2, 4 or 8 of integers
  bool is_big_endian = false;  ///< order of the bytes in the file

  bool operator==(const NumberType&) const = default;
};

/// "float32", "int16", "uint8", ... for messages.
std::string name_of(const NumberType& type);

/// The value of an attribute: its numbers or texts; a scalar is a list of one.
using AttributeValue =
    std::variant<std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>, std::vector<std::string>>;
using Attributes = std::map<std::string, AttributeValue>;

/// The numbers of an attribute as double; empty if there is no such attribute, or if it has texts.
std::vector<double> numbers_of(const Attributes& attributes, const std::string& name);
/// The texts of an attribute; empty if there is no such attribute, or if it has numbers.
std::vector<std::string> texts_of(const Attributes& attributes, const std::string& name);

/// The storage of an array, for the choice of a way to read it and for reports.
struct ArrayStorage {
  std::string layout = "contiguous";      ///< "contiguous", "compact", "chunked", "virtual" or "external"
  std::vector<std::int64_t> chunk = {};   ///< shape of a chunk; empty = not chunked
  std::vector<std::string> filters = {};  ///< names in the order in which they were applied, such as "shuffle"
};

/// One array of a file.
struct ArrayInfo {
  std::string path;  ///< "t0_fields/density"; "" in an npy file
  std::vector<std::int64_t> shape;
  NumberType type;
  /// The name of each axis, from dimension scales (netCDF) or the attribute DIMENSION_LABELS; "" where there is none.
  std::vector<std::string> axes;
  Attributes attributes;
  ArrayStorage storage;
};

/// A part of an array: `count` elements of each axis from `start` on, every `step`-th.
struct Slab {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> count;
  std::vector<std::int64_t> step;
};

/// The whole array.
Slab whole(const ArrayInfo& array);
/// The number of elements.
std::int64_t size_of(const Slab& slab);

/// An open file.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  virtual const std::string& path() const = 0;
  /// The paths of all arrays, also below groups, in the order of their bytes. Arrays that `find` refuses are among
  /// them.
  virtual std::vector<std::string> names() const = 0;
  /// @throws DataError  there is no such array (the message lists those that exist), its elements are not numbers, or
  ///                    it cannot be read, for example because of an unknown filter
  virtual ArrayInfo find(const std::string& name) const = 0;
  /// The bytes of an array in the file, after compression. none = unknown
  virtual std::optional<std::uint64_t> stored_bytes(const ArrayInfo&) const { return std::nullopt; }
  /// The attributes of a group; "" = those of the file.
  virtual Attributes attributes_of(const std::string& group) const = 0;
  /// The texts of a one-dimensional array of texts, such as the names of channels; empty if there is no such array.
  virtual std::vector<std::string> texts(const std::string& name) const = 0;
  /// Reads a part of an array, row-major, in the byte order of the machine.
  /// @param out  size_of(slab) elements of array.type.bytes
  /// @throws DataError  the file is damaged there, or was changed since it was opened
  virtual void read(const ArrayInfo& array, const Slab& slab, std::span<std::byte> out) const = 0;
};

/// Opens a file; its first bytes decide the format.
/// @throws DataError  it is missing, empty, damaged or of another format
std::shared_ptr<const ArrayFile> open_arrays(const std::string& path);

/// Limits the memory for unpacked chunks, which this process keeps so that a chunk is not unpacked for each of its
/// samples. 64 MiB unless set.
void set_chunk_cache(std::size_t bytes);
/// The processes of this host that divide the memory set with set_chunk_cache. 1 unless set.
void divide_chunk_cache(int processes);

/// Bytes of elements since the start of this process.
struct ChunkUse {
  std::uint64_t unpacked = 0;  ///< bytes of the chunks that were read and unpacked, not those from the cache
  std::uint64_t used = 0;      ///< those that `read` took from chunks
};
ChunkUse chunk_use();

/// The most recently used files of a process, which stay open.
class OpenFiles {
 public:
  /// @param most  number of open files; >= 1
  explicit OpenFiles(std::size_t most);
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  /// The open file; it is opened if necessary, and another one is closed then.
  /// @throws DataError  those of open_arrays; also if the file was replaced or changed since it was opened first
  std::shared_ptr<const ArrayFile> get(const std::string& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::arrays
