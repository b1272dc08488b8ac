// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/dataset.hpp"

#include <lockstep/core/error.hpp>

#include <array>

#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kShownBytes = 256;

[[noreturn]] void refuse(const std::string& message) {
  throw CheckpointError(message + "; this is not allowed").as(CheckpointFault::refused);
}

}  // namespace

std::string in_quotes(const std::string& name) { return quoted("", name).substr(1); }

std::vector<std::int64_t> shape_of(hid_t set) {
  const Handle space(H5Dget_space(set), H5Sclose, "H5Dget_space");
  const H5S_class_t kind = H5Sget_simple_extent_type(space.id());
  if (kind != H5S_SCALAR && kind != H5S_SIMPLE) throw CheckpointError("it has no shape");
  std::vector<hsize_t> shape(
      static_cast<std::size_t>(checked(H5Sget_simple_extent_ndims(space.id()), "H5Sget_simple_extent_ndims")));
  if (!shape.empty()) {
    checked(H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr), "H5Sget_simple_extent_dims");
  }
  return {shape.begin(), shape.end()};
}

void require_own_storage(hid_t list) {
  if (checked(H5Pget_external_count(list), "H5Pget_external_count") != 0) {
    std::array<char, kShownBytes> name = {};
    off_t offset = 0;
    hsize_t bytes = 0;
    checked(H5Pget_external(list, 0, name.size() - 1, name.data(), &offset, &bytes), "H5Pget_external");
    refuse("its bytes are in another file, " + in_quotes(name.data()));
  }
  if (H5Pget_layout(list) == H5D_VIRTUAL) {
    std::size_t count = 0;
    std::array<char, kShownBytes> name = {};
    checked(H5Pget_virtual_count(list, &count), "H5Pget_virtual_count");
    if (count > 0) checked(H5Pget_virtual_filename(list, 0, name.data(), name.size() - 1), "H5Pget_virtual_filename");
    refuse("it is a virtual dataset; its data are in other files, such as " + in_quotes(name.data()));
  }
}

}  // namespace lockstep::checkpoints
