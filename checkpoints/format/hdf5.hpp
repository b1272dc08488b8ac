// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <hdf5.h>

#include <string>
#include <utility>
#include <vector>

/// The few helpers around HDF5's C interface. They throw CheckpointError without a path; callers add it.
namespace lockstep::checkpoints {

/// Starts HDF5 once, without its exit handler, and keeps it from printing its error stack while in scope.
class HdfSession {
 public:
  HdfSession();
  ~HdfSession();
  HdfSession(const HdfSession&) = delete;
  HdfSession& operator=(const HdfSession&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

[[noreturn]] void throw_hdf(const char* call);

/// Passes a result on unless it is negative, which is how HDF5 reports failure.
template <class Result>
Result checked(Result result, const char* call) {
  if (result < 0) throw_hdf(call);
  return result;
}

/// Owns one HDF5 identifier.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle(hid_t id, Close closer, const char* call) : id_(checked(id, call)), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  hid_t id() const noexcept { return id_; }
  /// Closes now and reports a failure. HDF5 must not see the identifier again after that, either way.
  void close(const char* call) { checked(close_(std::exchange(id_, -1)), call); }

 private:
  hid_t id_;
  Close close_;
};

/// The types that stand in the file for each dtype: little endian, the same bytes as in memory.
class FileTypes {
 public:
  FileTypes();

  hid_t of(DType dtype) const { return types_.at(static_cast<std::size_t>(dtype)).id(); }
  /// The dtype that `type` stands for.
  /// @throws CheckpointError  none
  DType dtype_of(hid_t type) const;

 private:
  std::vector<Handle> types_;  ///< HDF5 types, indexed by DType
};

}  // namespace lockstep::checkpoints
