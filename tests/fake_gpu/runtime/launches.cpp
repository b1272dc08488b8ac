// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/launches.hpp"

#include <cxxabi.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake_gpu/runtime/call_site.hpp"
#include "fake_gpu/runtime/report.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> names;
};

Kernels& kernels() {
  static Kernels& only = *new Kernels;
  return only;
}

thread_local std::vector<LaunchConfiguration> configurations;

std::string name_of(const void* function) {
  const std::lock_guard<std::mutex> hold(kernels().mutex);
  const auto found = kernels().names.find(function);
  if (found == kernels().names.end()) return "without a name";
  int status = 0;
  char* const demangled = abi::__cxa_demangle(found->second, nullptr, nullptr, &status);
  return demangled != nullptr ? demangled : found->second;
}

}  // namespace

void register_kernel(const void* function, const char* name) {
  const std::lock_guard<std::mutex> hold(kernels().mutex);
  kernels().names[function] = name;
}

void push_configuration(const LaunchConfiguration& configuration) { configurations.push_back(configuration); }

std::optional<LaunchConfiguration> pop_configuration() {
  if (configurations.empty()) return std::nullopt;
  const LaunchConfiguration last = configurations.back();
  configurations.pop_back();
  return last;
}

void refuse_launch(const void* function) {
  report("the kernel " + name_of(function) + " is launched, which needs a real GPU");
  print(call_site());
  end_process();
}

}  // namespace lockstep::fake_gpu
