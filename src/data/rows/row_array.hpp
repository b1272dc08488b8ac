// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "arrays/packing.hpp"

namespace lockstep::data {

/// A file, and the name of an array in it, which is "" in an npy file.
struct ArrayPlace {
  std::string file;
  std::string array;

  bool operator==(const ArrayPlace&) const = default;
};

/// Samples in arrays: the rows along the first axis, in the arrays of several files one after the other. Thread-safe.
class RowArray {
 public:
  /// @param files   open files, which several arrays share
  /// @param places  one or more arrays that agree in their type and in their shape after the first axis
  /// @throws DataError  an array is missing, has no numbers or no samples, or differs from the first one
  RowArray(std::shared_ptr<arrays::OpenFiles> files, const std::vector<ArrayPlace>& places);

  std::int64_t size() const noexcept { return parts_.back().end; }
  /// The shape of a sample; empty for numbers.
  const std::vector<std::int64_t>& row_shape() const noexcept { return row_shape_; }
  /// The numbers of a sample.
  std::int64_t row_numbers() const noexcept { return row_numbers_; }
  const arrays::NumberType& type() const noexcept { return parts_.front().info.type; }
  std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(row_numbers_) * type().bytes; }
  /// The number of samples of each file.
  std::vector<std::int64_t> sizes() const;

  /// Reads the stored numbers of samples, in the byte order of the machine.
  /// @param out  count * row_bytes() bytes
  /// @throws DataError  a file is damaged there, or was changed
  void read(std::int64_t begin, std::int64_t count, std::span<std::byte> out) const;
  /// The same with the attributes of packed numbers applied, of which gaps are NaN.
  /// @param out  count * row_numbers() numbers
  void read(std::int64_t begin, std::int64_t count, std::span<float> out) const;
  void read(std::int64_t begin, std::int64_t count, std::span<double> out) const;

  /// The position of a sample in messages: "FILE: variable 'x', sample 3".
  std::string place(std::int64_t index) const;
  /// The name of a sample: "FILE:3" without folders.
  std::string name(std::int64_t index) const;
  /// The first array in messages: "FILE: variable 'x'".
  std::string first_place() const;
  const ArrayPlace& first() const noexcept { return parts_.front().place; }
  const arrays::ArrayInfo& first_info() const noexcept { return parts_.front().info; }

  /// @throws DataError  a file is too small for the numbers that it states, so that they were never written
  void require_written() const;
  /// Remark for the log about chunks of several samples, of which a random order reads most bytes in vain; empty =
  /// none.
  std::string chunk_note() const;
  /// The number of the chunk of a sample; a sample without others in its chunk is one.
  std::int64_t chunk_of(std::int64_t index) const;
  /// Bytes of other samples that a sample unpacks with its chunk, at most.
  std::int64_t chunk_cost() const;
  /// A digest of the shape, and of samples spread over the arrays.
  std::uint64_t digest() const;

 private:
  struct Part {
    ArrayPlace place;
    arrays::ArrayInfo info;
    arrays::Packing packing;
    std::int64_t begin = 0;  ///< index of its first sample
    std::int64_t end = 0;
    std::int64_t first_chunk = 0;

    std::int64_t samples_per_chunk() const { return info.storage.chunk.empty() ? 1 : info.storage.chunk.front(); }
    std::int64_t chunk_of(std::int64_t index) const { return first_chunk + (index - begin) / samples_per_chunk(); }
  };

  void add(const ArrayPlace& place);
  void require_like_first(const Part& part) const;
  const Part& part_of(std::int64_t index) const;
  void read_part(const Part& part, std::int64_t begin, std::int64_t count, std::span<std::byte> out) const;
  /// Calls `call(part, begin, count)` for the samples of each file.
  template <class Call>
  void visit(std::int64_t begin, std::int64_t count, const Call& call) const;
  template <class Value>
  void read_values(std::int64_t begin, std::int64_t count, std::span<Value> out) const;

  std::shared_ptr<arrays::OpenFiles> files_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> row_shape_;
  std::int64_t row_numbers_ = 1;
};

}  // namespace lockstep::data
