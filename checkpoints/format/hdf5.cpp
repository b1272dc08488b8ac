// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/hdf5.hpp"

#include <lockstep/core/error.hpp>

#include <cstdint>
#include <utility>

#include "checkpoints/format/transfer.hpp"

namespace lockstep::checkpoints {

namespace {

/// A floating-point type of 16 bits, sign on top.
Handle small_float(std::size_t exponent_bits, std::size_t bias) {
  const std::size_t mantissa_bits = 15 - exponent_bits;
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "H5Tcopy");
  // Fields first: the size may only shrink once they fit.
  checked(H5Tset_fields(type.id(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits), "H5Tset_fields");
  checked(H5Tset_precision(type.id(), 16), "H5Tset_precision");
  checked(H5Tset_size(type.id(), 2), "H5Tset_size");
  checked(H5Tset_ebias(type.id(), bias), "H5Tset_ebias");
  return type;
}

Handle boolean() {
  Handle type(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "H5Tenum_create");
  std::int8_t value = 0;
  checked(H5Tenum_insert(type.id(), "FALSE", &value), "H5Tenum_insert");
  value = 1;
  checked(H5Tenum_insert(type.id(), "TRUE", &value), "H5Tenum_insert");
  return type;
}

Handle complex_of(hid_t part) {
  const std::size_t size = H5Tget_size(part);
  Handle type(H5Tcreate(H5T_COMPOUND, 2 * size), H5Tclose, "H5Tcreate");
  checked(H5Tinsert(type.id(), "r", 0, part), "H5Tinsert");
  checked(H5Tinsert(type.id(), "i", size, part), "H5Tinsert");
  return type;
}

Handle make_type(DType dtype) {
  const std::pair<DType, hid_t> plain[] = {{DType::float32, H5T_IEEE_F32LE}, {DType::float64, H5T_IEEE_F64LE},
                                           {DType::int8, H5T_STD_I8LE},      {DType::int16, H5T_STD_I16LE},
                                           {DType::int32, H5T_STD_I32LE},    {DType::int64, H5T_STD_I64LE},
                                           {DType::uint8, H5T_STD_U8LE}};
  for (const auto& [known, type] : plain) {
    if (known == dtype) return {H5Tcopy(type), H5Tclose, "H5Tcopy"};
  }
  if (dtype == DType::float16) return small_float(5, 15);
  if (dtype == DType::bfloat16) return small_float(8, 127);
  if (dtype == DType::boolean) return boolean();
  return complex_of(dtype == DType::complex64 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE);
}

herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* text) noexcept {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && error->desc != nullptr) kept = error->desc;
  return 0;
}

}  // namespace

HdfSession::HdfSession() {
  static const bool is_started = [] {
    H5dont_atexit();  // the exit handler may crash; we close everything ourselves
    return H5open() >= 0;
  }();
  if (!is_started) throw CheckpointError("HDF5 cannot be initialized");
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

HdfSession::~HdfSession() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

void throw_hdf(const char* call) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  throw CheckpointError(std::string("HDF5's ") + call + " failed" + (reason.empty() ? "" : ": " + reason));
}

FileTypes::FileTypes() {
  for (const DType dtype : kAllDTypes) types_.push_back(make_type(dtype));
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  checked(H5get_libversion(&major, &minor, &release), "H5get_libversion");
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

DType FileTypes::dtype_of(hid_t type) const {
  for (const DType dtype : kAllDTypes) {
    if (H5Tequal(type, of(dtype)) > 0) return dtype;
  }
  std::string known;
  for (const DType dtype : kAllDTypes) known += (known.empty() ? "" : ", ") + std::string(name_of(dtype));
  throw CheckpointError("its element type is not supported (" + known + ")").as(CheckpointFault::incompatible);
}

}  // namespace lockstep::checkpoints
