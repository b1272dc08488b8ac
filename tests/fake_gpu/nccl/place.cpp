// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/place.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_gpu/nccl/errors.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

std::mutex made_mutex;
std::map<std::uint64_t, int> made;  // inode -> descriptor, of the places of this process that ranks may still open

Place place_of(int descriptor) {
  struct stat status {};
  fstat(descriptor, &status);
  return {.pid = getpid(), .descriptor = descriptor, .device = status.st_dev, .inode = status.st_ino};
}

[[noreturn]] void refuse(const std::string& what) {
  throw Refusal(ncclSystemError, what + ": " + std::strerror(errno));
}

}  // namespace

Place make_place(std::size_t bytes) {
  const int descriptor = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (descriptor < 0) refuse("shared memory cannot be made");
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) refuse("shared memory cannot be extended");
  const Place place = place_of(descriptor);
  const std::lock_guard<std::mutex> hold(made_mutex);
  made[place.inode] = descriptor;
  return place;
}

void* open_place(const Place& place, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(place.pid) + "/fd/" + std::to_string(place.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const Place opened = place_of(descriptor);
  if (descriptor < 0 || opened.device != place.device || opened.inode != place.inode) {
    if (descriptor >= 0) close(descriptor);
    throw Refusal(ncclSystemError,
                  "The ranks cannot meet: the process that made the communicator's id has ended, is on another host, "
                  "or the id was used before.");
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) refuse("shared memory cannot be mapped");
  return memory;
}

void release_place(const Place& place) {
  const std::lock_guard<std::mutex> hold(made_mutex);
  const auto found = made.find(place.inode);
  if (found == made.end()) return;
  close(found->second);
  made.erase(found);
}

}  // namespace lockstep::fake_gpu::nccl
