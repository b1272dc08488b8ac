// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"

/// New netCDF-4 files, by HDF5 alone. Such a file is an HDF5 file in which the axes of arrays are dimension scales
/// (CLASS, NAME, REFERENCE_LIST and DIMENSION_LIST), with the attributes _NCProperties and _Netcdf4Dimid.
namespace lockstep::arrays {

/// An axis. A variable of the same name with this axis alone has its coordinates.
struct NetcdfDimension {
  std::string name;
  std::int64_t size = 0;
};

struct NetcdfVariable {
  std::string name;
  std::vector<std::string> dimensions;  ///< empty = one number
  NumberType type = {};                 ///< little-endian
  Attributes attributes = {};           ///< those but _FillValue
  bool has_gaps = false;                ///< the attribute _FillValue is NaN; real numbers only
  /// The elements, row-major. Empty = they are written later, see NetcdfLayout::offset_of.
  std::vector<double> values = {};
};

/// Everything in a file but the elements that are written later.
struct NetcdfContents {
  std::vector<NetcdfDimension> dimensions;
  std::vector<NetcdfVariable> variables;
  Attributes attributes = {};  ///< those of the file, without _NCProperties
};

/// The bytes of a file whose elements are written later, in any order. Each array lies in the file in one piece,
/// row-major, without filters, so that several processes can write parts of it without HDF5. Equal contents give equal
/// bytes. Not thread-safe.
class NetcdfLayout {
 public:
  /// @throws DataError  without a path: a name is not allowed in netCDF or occurs twice, a dimension does not exist, or
  ///                    the number of values does not fit
  explicit NetcdfLayout(const NetcdfContents& contents);
  ~NetcdfLayout();
  NetcdfLayout(const NetcdfLayout&) = delete;
  NetcdfLayout& operator=(const NetcdfLayout&) = delete;

  /// The size of the file in bytes.
  std::uint64_t size() const;
  /// The position of the first element of a variable whose elements are written later.
  std::uint64_t offset_of(const std::string& variable) const;
  /// Calls write(offset, bytes) for all bytes but those of the elements that are written later.
  void for_each_piece(const std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>& write) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A name for netCDF that is like `wanted`: letters that are not allowed become underscores.
std::string netcdf_name(const std::string& wanted);

}  // namespace lockstep::arrays
