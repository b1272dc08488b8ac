// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/settings.hpp"

#include <charconv>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fake_gpu/runtime/report.hpp"

namespace lockstep::fake_gpu {

namespace {

std::string text(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

[[noreturn]] void refuse(const std::string& name, const std::string& value) {
  end_process(name + "=" + value + " cannot be read");
}

template <class Number>
Number number_in(const std::string& name, std::string_view value) {
  Number number{};
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) refuse(name, std::string(value));
  return number;
}

template <class Number>
Number number(const char* name, Number otherwise) {
  const std::string value = text(name);
  return value.empty() ? otherwise : number_in<Number>(name, value);
}

template <class Choice>
Choice choice(const std::string& name, const std::string& value, const std::map<std::string, Choice>& choices) {
  const auto chosen = choices.find(value);
  if (chosen == choices.end()) refuse(name, value);
  return chosen->second;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char letter : list) {
    if (letter == ':') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

bool is_concerned(const std::string& rank) {
  if (rank.empty()) return true;
  for (const char* const variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const std::string mine = text(variable); !mine.empty()) return mine == rank;
  }
  return rank == "0";
}

/// @param value  FAULT:N or FAULT:N:SECONDS
FaultPlan fault(const std::string& value) {
  constexpr const char* kName = "FAKE_GPU_FAULT";
  if (value.empty() || !is_concerned(text("FAKE_GPU_FAULT_RANK"))) return {};
  const std::vector<std::string> parts = split(value);
  if (parts.size() != 2 && parts.size() != 3) refuse(kName, value);
  return {.fault = choice<PlannedFault>(kName, parts[0],
                                        {{"out_of_memory", PlannedFault::out_of_memory},
                                         {"host_memory", PlannedFault::host_memory},
                                         {"sticky", PlannedFault::sticky},
                                         {"nccl_late", PlannedFault::nccl_late},
                                         {"nccl_exit", PlannedFault::nccl_exit},
                                         {"nccl_error", PlannedFault::nccl_error}}),
          .occurrence = number_in<std::int64_t>(kName, parts[1]),
          .seconds = parts.size() == 3 ? number_in<double>(kName, parts[2]) : 0};
}

QueueSchedule schedule(const std::string& value) {
  if (value.empty()) return QueueSchedule::threads;
  return choice<QueueSchedule>(
      "FAKE_GPU_SCHEDULE", value,
      {{"threads", QueueSchedule::threads}, {"lazy", QueueSchedule::lazy}, {"eager", QueueSchedule::eager}});
}

}  // namespace

const RuntimeSettings& settings() {
  static const RuntimeSettings read{.schedule = schedule(text("FAKE_GPU_SCHEDULE")),
                                    .max_delay_us = number("FAKE_GPU_DELAY_US", 0),
                                    .seed = number<std::uint64_t>("FAKE_GPU_SEED", 0),
                                    .devices = number("FAKE_GPU_DEVICES", 1),
                                    .devices_per_card = number("FAKE_GPU_SLICES", 1),
                                    .memory_bytes = number<std::size_t>("FAKE_GPU_MEMORY_MB", 8192) << 20,
                                    .driver_status = number("FAKE_GPU_DRIVER", 0),
                                    .fault = fault(text("FAKE_GPU_FAULT")),
                                    .is_traced = number("FAKE_GPU_TRACE", 0) != 0};
  return read;
}

}  // namespace lockstep::fake_gpu
