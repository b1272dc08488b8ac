// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Version.h>
#include <torch/version.h>

#include <fstream>
#include <sys/utsname.h>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "core/numbers/processor_level.hpp"
#include "engine/session.hpp"

namespace lockstep::engine {

namespace {

std::string processor() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string system_name() {
  utsname names{};
  if (uname(&names) != 0) return "unknown";
  return std::string(names.sysname) + " " + names.release + " " + names.machine;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> platform_facts() {
  return {{"libtorch", TORCH_VERSION},
          {"processor_level", std::string(name_of(processor_level()))},
          {"libtorch_kernels", at::get_cpu_capability()},
          {"hdf5", checkpoints::hdf5_version()},
          {"compiler", "g++ " __VERSION__},
          {"system", system_name()},
          {"processor", processor()},
          {"processors", std::to_string(std::thread::hardware_concurrency())}};
}

}  // namespace lockstep::engine
