// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "arrays/netcdf_layout.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "support/npy.hpp"

namespace lockstep::testing {

/// A field [time, lat, lon]. The numbers are multiples of 1/256, which int16 numbers with this scale hold exactly.
struct SeededField {
  std::vector<std::int64_t> shape = {40, 4, 6};
  std::vector<std::int16_t> units = {};  ///< the numbers times 256

  explicit SeededField(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    units.resize(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    for (std::int16_t& unit : units) unit = static_cast<std::int16_t>(static_cast<int>(random() % 2001) - 1000);
  }
  std::vector<float> numbers() const {
    std::vector<float> numbers;
    for (const std::int16_t unit : units) numbers.push_back(static_cast<float>(unit) / 256);
    return numbers;
  }
};

/// The storage of the array `u` in an HDF5 file.
struct SetOptions {
  std::vector<hsize_t> chunk = {};  ///< empty = in one piece
  bool is_compressed = false;       ///< shuffle and gzip
  hid_t type = H5T_IEEE_F32LE;
};

inline void write_hdf5(const std::string& path, const SeededField& field, const SetOptions& options) {
  using checkpoints::Handle;
  const checkpoints::HdfSession session;
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "H5Fcreate");
  const std::vector<hsize_t> shape(field.shape.begin(), field.shape.end());
  const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "space");
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
  if (!options.chunk.empty()) {
    checkpoints::checked(H5Pset_chunk(list.id(), static_cast<int>(options.chunk.size()), options.chunk.data()),
                         "chunk");
  }
  if (options.is_compressed) {
    checkpoints::checked(H5Pset_shuffle(list.id()), "H5Pset_shuffle");
    checkpoints::checked(H5Pset_deflate(list.id(), 4), "H5Pset_deflate");
  }
  const Handle set(H5Dcreate2(file.id(), "u", options.type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
                   "H5Dcreate2");
  const std::vector<float> numbers = field.numbers();
  checkpoints::checked(H5Dwrite(set.id(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), "H5Dwrite");
}

inline void write_netcdf(const std::string& path, const arrays::NetcdfContents& contents) {
  const arrays::NetcdfLayout layout(contents);
  {
    std::ofstream file(path, std::ios::binary);
    layout.for_each_piece([&file](std::uint64_t offset, std::span<const std::byte> bytes) {
      file.seekp(static_cast<std::streamoff>(offset));
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    });
  }
  std::filesystem::resize_file(path, layout.size());
}

/// A netCDF-4 file with dimension scales.
/// @param is_packed  the numbers are int16 with a scale
inline void write_netcdf(const std::string& path, const SeededField& field, bool is_packed) {
  const std::array<const char*, 3> names = {"time", "lat", "lon"};
  arrays::NetcdfContents contents;
  for (std::size_t i = 0; i < names.size(); ++i) contents.dimensions.push_back({names[i], field.shape[i]});
  arrays::NetcdfVariable u{.name = "u", .dimensions = {names.begin(), names.end()}};
  if (is_packed) {
    u.type = {.kind = arrays::NumberKind::signed_integer, .bytes = 2};
    u.attributes["scale_factor"] = std::vector<double>{1.0 / 256};
    u.attributes["add_offset"] = std::vector<double>{0};
    u.values.assign(field.units.begin(), field.units.end());
  } else {
    const std::vector<float> numbers = field.numbers();
    u.values.assign(numbers.begin(), numbers.end());
  }
  contents.variables.push_back(std::move(u));
  write_netcdf(path, contents);
}

}  // namespace lockstep::testing
