// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

/// The few helpers around HDF5's C interface. They throw CheckpointError without a path; callers add it.
namespace lockstep::checkpoints {

/// Starts HDF5 once, without its exit handler, and keeps it from printing its error stack while in scope. Meanwhile no
/// other thread of this process has a session, because HDF5 may have been built for one thread. A thread may have
/// several, one inside the other. A child process that is forked inside of a session inherits it.
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

/// A file in memory that HDF5 writes its metadata to, or reads from: an HDF5 file driver.
///
/// HDF5 itself never touches the disk, so no full disk and no failing one can reach it: after a failed write it leaves
/// its file open and crashes when the process ends. We move the bytes ourselves. Of a file being laid out only the
/// pages that HDF5 writes exist, so that space for arrays, which it merely allocates, costs no memory (HDF5's own core
/// driver would allocate it).
class MemoryFile {
 public:
  /// Empty and writable.
  MemoryFile() = default;
  /// Read-only; `content` must outlive this.
  explicit MemoryFile(std::span<const std::byte> content)
      : content_(content), end_(content.size()), is_writable_(false) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// The file access list that makes H5Fcreate and H5Fopen use this memory, whatever name they are given.
  Handle access_list();

  /// Bytes of the file, allocated space included.
  std::uint64_t end() const noexcept { return end_; }
  void set_end(std::uint64_t end) noexcept { end_ = end; }
  /// Copies bytes from `offset` on; what was never written is zero.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// @return  false when the file is read-only
  bool write(std::uint64_t offset, std::span<const std::byte> bytes);

 private:
  using Page = std::array<std::byte, 4096>;

  std::span<const std::byte> content_;
  std::map<std::uint64_t, Page> pages_;  ///< pages by number
  std::uint64_t end_ = 0;
  bool is_writable_ = true;
};

// --- requirements that both readers ask of a data set before they believe it ---

/// The dimensions of a data set; none of a scalar.
/// @throws CheckpointError  it has no shape
std::vector<std::int64_t> shape_of(hid_t set);

/// That the bytes lie in this file, and not where a link leads.
/// @param list  the data set's creation list
/// @throws CheckpointError  refused: they lie in another file, or are those of other arrays; with their names
void require_own_storage(hid_t list);

}  // namespace lockstep::checkpoints
