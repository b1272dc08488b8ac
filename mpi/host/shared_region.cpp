// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/shared_region.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/text/text_stream.hpp"
#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

namespace {

/// Identifies the file for a peer: the descriptor alone could belong to another process after pids were reused.
struct FileIdentity {
  std::int64_t pid = 0;
  std::int64_t descriptor = -1;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};

FileIdentity identity_of(int descriptor) {
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) return {};
  return {.pid = getpid(), .descriptor = descriptor, .device = status.st_dev, .inode = status.st_ino};
}

bool is_same_file(const FileIdentity& a, const FileIdentity& b) {
  return b.descriptor >= 0 && a.device == b.device && a.inode == b.inode;
}

SharedFile open_of_peer(const FileIdentity& original) {
  const std::string path = "/proc/" + std::to_string(original.pid) + "/fd/" + std::to_string(original.descriptor);
  SharedFile file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return is_same_file(original, identity_of(file.descriptor())) ? std::move(file) : SharedFile();
}

void set_length(const SharedFile& file, std::size_t bytes) {
  if (ftruncate(file.descriptor(), static_cast<off_t>(bytes)) != 0) throw no_memory(bytes, std::strerror(errno));
}

std::string random_name() {
  std::random_device source;
  TextWriter name;
  name << "/lockstep-" << std::hex << getpid() << "-" << source() << source();
  return name.str();
}

/// Bytes that the kernel believes to be free for new memory, or 0 when it does not say.
std::size_t available_memory() {
  std::ifstream lines("/proc/meminfo");
  std::size_t available = 0;
  for (std::string line; std::getline(lines, line);) {
    TextReader words(line);
    std::string key;
    std::size_t kilobytes = 0;
    words >> key >> kilobytes;
    if (key == "MemAvailable:" || key == "SwapFree:") available += kilobytes * 1024;
  }
  return available;
}

constexpr std::size_t kRegionPageBytes = 4096;

std::byte* map(const SharedFile& file, std::size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) throw no_memory(bytes, std::strerror(errno));
  madvise(address, bytes, MADV_HUGEPAGE);  // no effect unless the kernel allows it for shared memory
  return static_cast<std::byte*>(address);
}

/// Reserves bytes [begin, begin + count) of the file, in steps that a frequent signal cannot interrupt forever.
void reserve(const SharedFile& file, std::size_t begin, std::size_t count) {
  constexpr std::size_t kStepBytes = 64 << 20;
  for_each_chunk(count, kStepBytes, [&](std::size_t offset, std::size_t length) {
    int error = EINTR;
    while (error == EINTR) {
      error = posix_fallocate(file.descriptor(), static_cast<off_t>(begin + offset), static_cast<off_t>(length));
    }
    if (error != 0) throw no_memory(length, std::strerror(error));
  });
}

}  // namespace

SharedFile::SharedFile(SharedFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  SharedFile taken(std::move(other));
  std::swap(descriptor_, taken.descriptor_);
  return *this;
}

SharedFile::~SharedFile() {
  if (is_open()) close(descriptor_);
}

CommError no_memory(std::size_t bytes, const std::string& why) {
  return CommError("cannot allocate " + std::to_string(bytes) + " bytes of shared memory: " + why +
                   "; use fewer ranks on this host or a smaller model");
}

void require_memory(std::size_t bytes) {
  const std::size_t available = available_memory();
  if (available > 0 && bytes > available) {
    throw no_memory(bytes, "only " + std::to_string(available) + " bytes are available on this host");
  }
}

SharedFile share_memfd(const Communicator& host, std::size_t bytes) {
  SharedFile file;
  FileIdentity identity;
  host.all_or_throw([&] {
    if (!host.is_root()) return;
    file = SharedFile(memfd_create("lockstep", MFD_CLOEXEC));
    if (file.is_open()) set_length(file, bytes);
    identity = identity_of(file.descriptor());
  });
  host.broadcast(std::as_writable_bytes(std::span(&identity, 1)));
  if (!host.is_root()) file = open_of_peer(identity);
  return host.agree(file.is_open()) ? std::move(file) : SharedFile();
}

SharedFile share_by_name(const Communicator& host, std::size_t bytes) {
  SharedFile file;
  const std::string name = host.broadcast(host.is_root() ? random_name() : "");
  const auto open_file = [&](int flags) {
    file = SharedFile(shm_open(name.c_str(), flags, S_IRUSR | S_IWUSR));
    if (!file.is_open()) throw no_memory(bytes, "/dev/shm" + name + ": " + std::strerror(errno));
  };
  host.all_or_throw([&] {
    if (!host.is_root()) return;
    open_file(O_RDWR | O_CREAT | O_EXCL);
    try {
      set_length(file, bytes);
    } catch (const CommError&) {
      shm_unlink(name.c_str());
      throw;
    }
  });
  try {
    host.all_or_throw([&] {
      if (!host.is_root()) open_file(O_RDWR);
    });
  } catch (const CommError&) {
    if (host.is_root()) shm_unlink(name.c_str());
    throw;
  }
  if (host.is_root()) shm_unlink(name.c_str());
  return file;
}

SharedRegion::SharedRegion(const Communicator& host, std::size_t bytes) {
  if (bytes == 0) return;
  host.all_or_throw([&] {
    if (host.is_root()) require_memory(bytes);
  });
  SharedFile file = share_memfd(host, bytes);
  if (!file.is_open()) file = share_by_name(host, bytes);

  // Each rank reserves its part, near the processor that will use it.
  const std::size_t part = (bytes / host.size() + kRegionPageBytes) / kRegionPageBytes * kRegionPageBytes;
  const std::size_t begin = std::min(bytes, part * host.rank());
  host.all_or_throw([&] {
    memory_ = {map(file, bytes), Unmap{bytes}};
    reserve(file, begin, std::min(bytes, begin + part) - begin);
  });
}

void SharedRegion::Unmap::operator()(std::byte* memory) const noexcept { munmap(memory, bytes); }

}  // namespace lockstep::mpi
