// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/memory_file.hpp"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // HDF5 1.14 keeps there what a driver needs
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>

namespace lockstep::checkpoints {

namespace {

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

}  // namespace

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

}  // namespace lockstep::checkpoints
