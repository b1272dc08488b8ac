// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/hdf5.hpp"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // HDF5 1.14 keeps there what a driver needs
#endif

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "checkpoints/format/names.hpp"
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

// --- the driver of files in memory ---

struct OpenFile {
  H5FD_t base;  // first: HDF5 sees only this
  MemoryFile* file;
  haddr_t allocated;
};

OpenFile& self(H5FD_t* file) { return *reinterpret_cast<OpenFile*>(file); }
const OpenFile& self(const H5FD_t* file) { return *reinterpret_cast<const OpenFile*>(file); }

H5FD_t* open_file(const char*, unsigned, hid_t access_list, haddr_t) noexcept {
  const auto* file = static_cast<MemoryFile* const*>(H5Pget_driver_info(access_list));
  if (file == nullptr) return nullptr;
  auto* opened = new (std::nothrow) OpenFile{};
  if (opened == nullptr) return nullptr;
  opened->file = *file;
  return &opened->base;
}

herr_t close_file(H5FD_t* file) noexcept {
  delete &self(file);
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t) noexcept { return self(file).allocated; }

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) noexcept {
  self(file).allocated = end;
  return 0;
}

haddr_t get_end(const H5FD_t* file, H5FD_mem_t) noexcept { return self(file).file->end(); }

herr_t read_file(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, void* out) noexcept {
  self(file).file->read(offset, {static_cast<std::byte*>(out), size});
  return 0;
}

herr_t write_file(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, const void* bytes) noexcept {
  try {
    return self(file).file->write(offset, {static_cast<const std::byte*>(bytes), size}) ? 0 : -1;
  } catch (const std::exception&) {  // out of memory; no exception may pass through C
    return -1;
  }
}

/// HDF5 calls this before it closes a file: the file ends where its allocated space ends.
herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) noexcept {
  self(file).file->set_end(self(file).allocated);
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(511);  // among the values that HDF5 leaves to users
#endif
  driver.name = "lockstep_memory";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<std::int64_t>::max());
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(MemoryFile*);
  driver.open = open_file;
  driver.close = close_file;
  driver.get_eoa = get_allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = get_end;
  driver.read = read_file;
  driver.write = write_file;
  driver.truncate = truncate_file;
  const H5FD_mem_t one_pool[] = H5FD_FLMAP_SINGLE;
  std::copy(std::begin(one_pool), std::end(one_pool), driver.fl_map);
  return driver;
}

constexpr std::size_t kShownBytes = 256;

/// The lock of all sessions. A std::recursive_mutex would not know the thread in a forked child, whose number differs.
class SessionLock {
 public:
  void lock() {
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.load(std::memory_order_relaxed) != self) {
      mutex_.lock();
      owner_.store(self, std::memory_order_relaxed);
    }
    ++depth_;
  }
  void unlock() noexcept {
    if (--depth_ > 0) return;
    owner_.store(std::thread::id(), std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_;
  int depth_ = 0;
};

SessionLock& session_lock() {
  static SessionLock lock;
  return lock;
}

[[noreturn]] void refuse(const std::string& message) {
  throw CheckpointError(message + "; this is not allowed").as(CheckpointFault::refused);
}

}  // namespace

HdfSession::HdfSession() {
  std::unique_lock hold(session_lock());
  static const bool is_started = [] {
    H5dont_atexit();  // the exit handler may crash; we close everything ourselves
    return H5open() >= 0;
  }();
  if (!is_started) throw CheckpointError("HDF5 cannot be initialized");
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  hold.release();
}

HdfSession::~HdfSession() {
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
  session_lock().unlock();
}

void throw_hdf(const char* call) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  throw CheckpointError(std::string("HDF5's ") + call + " failed" + (reason.empty() ? "" : ": " + reason));
}

FileTypes::FileTypes() {
  for (const DType dtype : kAllDTypes) types_.push_back(make_type(dtype));
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
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

Handle MemoryFile::access_list() {
  static const H5FD_class_t driver = driver_class();
  static const hid_t driver_id = checked(H5FDregister(&driver), "H5FDregister");
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  MemoryFile* const info = this;
  checked(H5Pset_driver(list.id(), driver_id, &info), "H5Pset_driver");
  checked(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), "H5Pset_libver_bounds");
  checked(H5Pset_fclose_degree(list.id(), H5F_CLOSE_STRONG), "H5Pset_fclose_degree");
  return list;
}

void MemoryFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (!is_writable_) {
    const std::uint64_t there = offset < content_.size() ? std::min(out.size(), content_.size() - offset) : 0;
    if (there > 0) std::memcpy(out.data(), content_.data() + offset, there);
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(there), out.end(), std::byte{0});
    return;
  }
  while (!out.empty()) {
    const std::uint64_t inside = offset % sizeof(Page);
    const std::size_t count = std::min(out.size(), sizeof(Page) - inside);
    if (const auto page = pages_.find(offset / sizeof(Page)); page != pages_.end()) {
      std::memcpy(out.data(), page->second.data() + inside, count);
    } else {
      std::memset(out.data(), 0, count);
    }
    offset += count;
    out = out.subspan(count);
  }
}

bool MemoryFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!is_writable_) return false;
  end_ = std::max(end_, offset + bytes.size());
  while (!bytes.empty()) {
    const std::uint64_t inside = offset % sizeof(Page);
    const std::size_t count = std::min(bytes.size(), sizeof(Page) - inside);
    Page& page = pages_.try_emplace(offset / sizeof(Page)).first->second;
    std::memcpy(page.data() + inside, bytes.data(), count);
    offset += count;
    bytes = bytes.subspan(count);
  }
  return true;
}

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
