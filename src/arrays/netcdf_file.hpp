// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "arrays/netcdf_layout.hpp"

namespace lockstep::arrays {

/// A netCDF file that several processes write together, each a part of the elements. One process, the owner, creates
/// it; then the others open it. HDF5 cannot open it before `finish`, so that it never looks complete. The errors are
/// ConfigErrors.
class NewNetcdfFile {
 public:
  struct Destination {
    std::string path;        ///< path of the file while it is written
    std::string final_path;  ///< path in messages
    bool is_owner = true;
  };

  /// Creates the file with its full size, so that a full disk is noticed now, or opens it.
  /// @param contents  equal in all processes
  /// @throws ConfigError  it exists already; for others than the owner, it does not exist
  NewNetcdfFile(const NetcdfContents& contents, Destination destination);
  /// Deletes the file of the owner, unless it is published.
  ~NewNetcdfFile();
  NewNetcdfFile(const NewNetcdfFile&) = delete;
  NewNetcdfFile& operator=(const NewNetcdfFile&) = delete;

  /// Writes elements of a variable without values.
  /// @param first     index of the first element, row-major
  /// @param elements  little-endian
  void write(const NetcdfVariable& variable, std::int64_t first, std::span<const std::byte> elements);
  /// Makes the elements durable and closes the file. Each process but the owner calls it after its last `write`.
  void close();
  /// Writes the rest of the file and closes it, after all other processes have closed it. By the owner.
  void finish();
  /// Renames the finished file. By the owner.
  void publish();

 private:
  void write_bytes(std::uint64_t offset, std::span<const std::byte> bytes);

  Destination destination_;
  NetcdfLayout layout_;
  int file_ = -1;
  bool is_created_ = false;
};

}  // namespace lockstep::arrays
