// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "arrays/array_file.hpp"
#include "arrays/packing.hpp"
#include "arrays/time_axis.hpp"
#include "checkpoints/format/hdf5.hpp"

/// Reads files of arrays as the sources of data do: an error of the data, or numbers.
namespace lockstep::fuzz {

/// A file in memory, with a path.
class MemoryInput {
 public:
  MemoryInput() : file_(::mkstemp(path_.data())) {}
  MemoryInput(const MemoryInput&) = delete;
  MemoryInput& operator=(const MemoryInput&) = delete;
  ~MemoryInput() {
    ::unlink(path_.c_str());
    ::close(file_);
  }

  const std::string& path() const noexcept { return path_; }
  void set(std::span<const std::byte> bytes) const {
    const bool is_written = ::ftruncate(file_, 0) == 0 &&
                            ::pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    if (!is_written) std::abort();
  }

 private:
  std::string path_ = "/dev/shm/fuzzed_arrays_XXXXXX";
  int file_;
};

/// Decodes the first elements of an array, and interprets its unit as one of time.
inline void read_array(const arrays::ArrayFile& file, const arrays::ArrayInfo& array) {
  constexpr std::int64_t kMaxBytes = 1 << 20;
  arrays::Slab slab = arrays::whole(array);
  auto bytes = static_cast<std::int64_t>(array.type.bytes);
  for (std::size_t axis = array.shape.size(); axis-- > 0;) {
    slab.count[axis] = std::min<std::int64_t>(slab.count[axis], std::max<std::int64_t>(kMaxBytes / bytes, 1));
    bytes *= std::max<std::int64_t>(slab.count[axis], 1);
  }
  const arrays::Packing packing = arrays::packing_of(file.path(), array);
  const auto count = static_cast<std::size_t>(arrays::size_of(slab));
  std::vector<std::byte> stored(count * array.type.bytes);
  file.read(array, slab, stored);
  std::vector<float> values(count);
  arrays::decode(packing, stored, std::span(values));
  std::vector<double> times(count);
  arrays::decode(packing, stored, std::span(times));
  const std::vector<std::string> unit = arrays::texts_of(array.attributes, "units");
  if (unit.empty()) return;
  const std::vector<std::string> calendar = arrays::texts_of(array.attributes, "calendar");
  try {
    const arrays::TimeUnit known = arrays::parse_time_unit(unit.front(), calendar.empty() ? "" : calendar.front());
    for (const double time : times) {
      if (std::isfinite(time)) arrays::seconds_of(known, time);
    }
  } catch (const ConfigError&) {
  }
}

/// Reads everything in a file.
/// @return  the arrays that could be read
inline int read_file_of_arrays(const std::string& path) {
  int count = 0;
  try {
    const auto file = arrays::open_arrays(path);
    for (const std::string& name : file->names()) {
      try {
        file->texts(name);
        read_array(*file, file->find(name));
        ++count;
      } catch (const DataError&) {
      }
    }
    file->attributes_of("");
  } catch (const DataError&) {
  }
  return count;
}

/// Writes an HDF5 file with an array "u", the attributes of which are as bytes say: their names are those that have a
/// meaning, and their types, shapes and values are arbitrary.
class AttributeWriter {
 public:
  explicit AttributeWriter(std::span<const std::byte> input) : input_(input) {}

  void write(const std::string& path) {
    using checkpoints::Handle;
    const checkpoints::HdfSession session;
    const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "H5Fcreate");
    const std::array<hsize_t, 2> shape = {next() % 4, next() % 4};
    const Handle space(H5Screate_simple(static_cast<int>(next() % 3), shape.data(), nullptr), H5Sclose, "space");
    const Handle type = number_type();
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    if (next() % 2 == 0) {
      const std::vector<std::byte> fill = bytes(H5Tget_size(type.id()));
      checkpoints::checked(H5Pset_fill_value(list.id(), type.id(), fill.data()), "H5Pset_fill_value");
    }
    const Handle set(H5Dcreate2(file.id(), "u", type.id(), space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
                     "H5Dcreate2");
    const std::vector<std::byte> elements = bytes(H5Tget_size(type.id()) * 16);
    checkpoints::checked(H5Dwrite(set.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()), "H5Dwrite");
    for (const char* const name : kNames) {
      if (next() % 3 == 0) add(set.id(), name);
    }
    add(file.id(), "title");
  }

 private:
  static constexpr std::array<const char*, 15> kNames = {
      "scale_factor", "add_offset", "_FillValue",       "missing_value", "valid_range",
      "valid_min",    "valid_max",  "_Unsigned",        "units",         "calendar",
      "CLASS",        "NAME",       "DIMENSION_LABELS", "long_name",     "_Netcdf4Dimid"};

  unsigned next() {
    if (input_.empty()) return 0;
    const auto byte = std::to_integer<unsigned>(input_.front());
    input_ = input_.subspan(1);
    return byte;
  }

  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    const std::size_t here = std::min(count, input_.size());
    std::copy_n(input_.begin(), here, bytes.begin());
    input_ = input_.subspan(here);
    return bytes;
  }

  checkpoints::Handle number_type() {
    const std::array<hid_t, 14> types = {H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_U16BE, H5T_STD_I32BE,
                                         H5T_STD_U32LE,  H5T_STD_I64LE,  H5T_STD_U64LE,  H5T_STD_I64BE, H5T_IEEE_F32LE,
                                         H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, H5T_STD_B8LE};
    return {H5Tcopy(types[next() % types.size()]), H5Tclose, "H5Tcopy"};
  }

  /// A scalar, nothing, or up to two axes of up to four elements.
  checkpoints::Handle space() {
    const unsigned kind = next() % 4;
    if (kind < 2) return {H5Screate(kind == 0 ? H5S_SCALAR : H5S_NULL), H5Sclose, "H5Screate"};
    const std::array<hsize_t, 2> shape = {next() % 5, next() % 5};
    return {H5Screate_simple(static_cast<int>(kind - 1), shape.data(), nullptr), H5Sclose, "H5Screate_simple"};
  }

  void add(hid_t object, const char* name) {
    using checkpoints::Handle;
    constexpr std::size_t kMaxElements = 16;
    const unsigned kind = next() % 4;
    const Handle extent = space();
    if (kind == 0) {
      const Handle type = number_type();
      write_attribute(object, name, type.id(), extent.id(), bytes(kMaxElements * 8).data());
      return;
    }
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
    H5Tset_cset(type.id(), next() % 2 == 0 ? H5T_CSET_ASCII : H5T_CSET_UTF8);
    if (kind == 1) {  // texts of variable length
      H5Tset_size(type.id(), H5T_VARIABLE);
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < kMaxElements; ++i) texts.push_back(text(next() % 40));
      std::vector<const char*> pointers;
      for (const std::string& each : texts) pointers.push_back(next() % 8 == 7 ? nullptr : each.c_str());
      write_attribute(object, name, type.id(), extent.id(), pointers.data());
      return;
    }
    const std::size_t length = 1 + next() % 40;
    H5Tset_size(type.id(), length);
    H5Tset_strpad(type.id(), static_cast<H5T_str_t>(next() % 3));
    write_attribute(object, name, type.id(), extent.id(), text(kMaxElements * length).data());
  }

  /// Words that a unit may have, or arbitrary bytes.
  std::string text(std::size_t length) {
    constexpr std::array<const char*, 8> kWords = {"days since 2000-01-01",
                                                   "hours since 1-1-1 00:00:0.0",
                                                   "noleap",
                                                   "seconds since -99999999-12-31",
                                                   "true",
                                                   "360_day",
                                                   "DIMENSION_SCALE",
                                                   "minutes since 9999999999-13-41 99:99:99"};
    const unsigned first = next();
    std::string text = first % 3 == 0 ? kWords[first / 3 % kWords.size()] : "";
    for (const std::byte byte : bytes(length - std::min(length, text.size()))) text += static_cast<char>(byte);
    text.resize(length);
    return text;
  }

  static void write_attribute(hid_t object, const char* name, hid_t type, hid_t space, const void* elements) {
    const checkpoints::Handle attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                                        "H5Acreate2");
    if (H5Sget_simple_extent_type(space) == H5S_NULL) return;
    checkpoints::checked(H5Awrite(attribute.id(), type, elements), "H5Awrite");
  }

  std::span<const std::byte> input_;
};

}  // namespace lockstep::fuzz
