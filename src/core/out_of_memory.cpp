// SPDX-License-Identifier: BSD-3-Clause
#include "core/out_of_memory.hpp"

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>

#include "core/available_memory.hpp"
#include "core/process.hpp"
#include "core/text_stream.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kTorchWords = "tried to allocate ";  // followed by the number of bytes
constexpr double kMegabyte = 1 << 20;

thread_local std::size_t refused_bytes = 0;

std::string megabytes(double bytes) { return std::to_string(static_cast<std::int64_t>(bytes / kMegabyte)) + " MiB"; }

double requested_bytes(const std::exception& failure) {
  const std::string_view text = failure.what();
  const std::size_t at = text.find(kTorchWords);
  if (at == std::string_view::npos) return static_cast<double>(refused_bytes);
  double bytes = 0;
  TextReader(std::string(text.substr(at + kTorchWords.size()))) >> bytes;
  return bytes;
}

/// "; its address space is limited to 900 MiB (ulimit -v)", or "".
std::string limit_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return " of an address space of at most " + megabytes(static_cast<double>(limit.rlim_cur)) + " (ulimit -v)";
}

}  // namespace

void note_refused_memory(std::size_t bytes) noexcept { refused_bytes = bytes; }

bool is_out_of_memory(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) return true;
  const auto* const system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && system->code() == std::errc::not_enough_memory) return true;
  return std::string_view(failure.what()).find(kTorchWords) != std::string_view::npos;
}

Error out_of_memory_error(const std::exception& failure) {
  const double bytes = requested_bytes(failure);
  const auto available = available_memory();
  std::string text = "out of memory: ";
  text += bytes > 0 ? std::to_string(static_cast<std::int64_t>(bytes)) + " bytes were requested" : "a request failed";
  text += "; this process uses " + megabytes(resident_memory_mb() * kMegabyte) + limit_text();
  if (available) text += ", and " + megabytes(static_cast<double>(*available)) + " are available on this host";
  return Error(kOutOfMemory, text +
                                 "; reduce train.micro_batch, data.prefetch or the model, use more hosts, or raise "
                                 "the limit");
}

}  // namespace lockstep
