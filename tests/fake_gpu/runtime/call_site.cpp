// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/call_site.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

namespace lockstep::fake_gpu {

struct Frames {
  std::array<void*, 32> calls{};
  std::size_t count = 0;
  bool operator==(const Frames&) const = default;
};

namespace {

struct Hash {
  std::size_t operator()(const Frames& frames) const {
    const auto* const bytes = reinterpret_cast<const char*>(frames.calls.data());
    return std::hash<std::string_view>()({bytes, frames.count * sizeof(void*)});
  }
};

std::string_view file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

/// The libraries of the fake GPU are beside this one. So is the GPU module of the program, which has no such name.
std::string prefix_of_fakes() {
  const std::string_view own = file_of(reinterpret_cast<const void*>(&call_site));
  return std::string(own.substr(0, own.rfind('/') + 1)) + "lib";
}

/// The first backtrace of a process takes the lock of the loader, which must not happen under a lock of ours.
[[maybe_unused]] const int first_backtrace = [] {
  void* frame = nullptr;
  return backtrace(&frame, 1);
}();

}  // namespace

CallFrames call_site() {
  static std::mutex& mutex = *new std::mutex;
  static auto& sites = *new std::unordered_set<Frames, Hash>;
  Frames frames;
  frames.count = static_cast<std::size_t>(backtrace(frames.calls.data(), static_cast<int>(frames.calls.size())));
  const std::lock_guard<std::mutex> hold(mutex);
  return &*sites.insert(frames).first;
}

void print(CallFrames site) {
  const std::string fakes = prefix_of_fakes();
  for (std::size_t i = 0; i < site->count; ++i) {
    const bool is_fake = file_of(site->calls[i]).substr(0, fakes.size()) == fakes;
    if (!is_fake) backtrace_symbols_fd(&site->calls[i], 1, 2);
  }
}

}  // namespace lockstep::fake_gpu
