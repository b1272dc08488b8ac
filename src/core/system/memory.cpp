// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <mutex>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <system_error>
#include <utility>

#include "core/system/block_memory.hpp"
#include "core/system/resources.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

constexpr std::string_view kTorchWords = "tried to allocate ";  // followed by the number of bytes
constexpr std::string_view kGpuWords = "out of memory";         // words of LibTorch, CUDA and NCCL
constexpr std::string_view kCuda = "CUDA";
constexpr double kMegabyte = 1 << 20;
constexpr const char* kGpuAdvice =
    "; reduce train.micro_batch (the global batch stays as it is), set model.recompute, divide the state among GPUs "
    "with strategy.name=sharded and strategy.offload, or use a smaller model or GPUs with more memory";

constexpr std::size_t kNamedBlocks = 3;

thread_local std::size_t refused_bytes = 0;

std::mutex gpu_memory_mutex;
std::string gpu_memory;  // the text that was noted

std::string megabytes(double bytes) { return std::to_string(static_cast<std::int64_t>(bytes / kMegabyte)) + " MiB"; }

double requested_bytes(const std::exception& failure) {
  const std::string_view text = failure.what();
  const std::size_t position = text.find(kTorchWords);
  if (position == std::string_view::npos) return static_cast<double>(refused_bytes);
  double bytes = 0;
  TextReader(std::string(text.substr(position + kTorchWords.size()))) >> bytes;
  return bytes;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_of_gpu(std::string_view text) { return contains(text, kGpuWords) && contains(text, kCuda); }

/// The characters of `text` between two parts of it; empty if one of them is missing.
std::string between(std::string_view text, std::string_view before, std::string_view behind) {
  const std::size_t position = text.find(before);
  if (position == std::string_view::npos) return "";
  const std::size_t begin = position + before.size();
  const std::size_t end = text.find(behind, begin);
  return end == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin));
}

/// Reads the sentences of LibTorch's allocator, as far as they are there.
std::string gpu_sentence(std::string_view text) {
  const std::string gpu = between(text, ". GPU ", " has a total capacity");
  const std::string requested = between(text, "Tried to allocate ", ". ");
  const std::string total = between(text, "has a total capacity of ", " of which");
  const std::string free = between(text, " of which ", " is free");
  const std::string allocated = between(text, "Of the allocated memory ", " is allocated by PyTorch");
  const std::string reserved = between(text, ", and ", " is reserved by PyTorch");
  std::string sentence = "out of memory on GPU" + (gpu.empty() ? "" : " " + gpu) + ": ";
  sentence += requested.empty() ? "a request failed" : requested + " were requested";
  if (!free.empty() && !total.empty()) sentence += "; " + free + " of " + total + " are free";
  if (!allocated.empty()) sentence += ", the tensors of this process use " + allocated;
  if (!reserved.empty()) sentence += ", and " + reserved + " more are kept for reuse, in pieces that are too small";
  return sentence;
}

/// "; the largest blocks of the model are conv1 (parameters 2 MiB), conv2 (parameters 1 MiB)", or "".
std::string blocks_text() {
  std::string text;
  for (const BlockMemory& memory : largest_blocks(kNamedBlocks)) text += (text.empty() ? "" : ", ") + text_of(memory);
  return text.empty() ? "" : "; the largest blocks of the model are " + text;
}

/// "; its address space is limited to 900 MiB (ulimit -v)", or "".
std::string limit_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return " of an address space of at most " + megabytes(static_cast<double>(limit.rlim_cur)) + " (ulimit -v)";
}

}  // namespace

void keep_freed_memory() noexcept {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
}

std::shared_ptr<std::byte> aligned_memory(std::size_t bytes, std::size_t alignment) {
  const bool is_possible = bytes < PTRDIFF_MAX - alignment;
  void* const memory =
      is_possible ? std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment) : nullptr;
  if (memory == nullptr) return nullptr;
  return {static_cast<std::byte*>(memory), [](std::byte* begin) { std::free(begin); }};
}

std::shared_ptr<std::byte> zeroed_memory(std::size_t bytes) {
  const std::size_t alignment = bytes < 2 * kHugePageBytes ? kLineBytes : kHugePageBytes;
  const std::shared_ptr<std::byte> memory = aligned_memory(bytes, alignment);
  if (memory == nullptr) {
    note_refused_memory(bytes);
    throw std::bad_alloc();
  }
  // Whole pages only: the last part of one would cost as much memory as all of it.
  if (alignment == kHugePageBytes) madvise(memory.get(), bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

void note_refused_memory(std::size_t bytes) noexcept { refused_bytes = bytes; }

bool is_out_of_memory(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) return true;
  const auto* const system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && system->code() == std::errc::not_enough_memory) return true;
  return contains(failure.what(), kTorchWords) || is_of_gpu(failure.what());
}

Error gpu_out_of_memory_error(std::size_t requested_bytes) {
  return {kOutOfMemory,
          "out of memory on the GPU: " + std::to_string(requested_bytes) + " bytes were requested" + kGpuAdvice};
}

void note_gpu_memory(std::string description) {
  const std::lock_guard hold(gpu_memory_mutex);
  gpu_memory = std::move(description);
}

std::string noted_gpu_memory() {
  const std::lock_guard hold(gpu_memory_mutex);
  return gpu_memory;
}

Error out_of_memory_error(const std::exception& failure) {
  if (is_of_gpu(failure.what())) return {kOutOfMemory, gpu_sentence(failure.what()) + kGpuAdvice};
  const double bytes = requested_bytes(failure);
  const auto available = available_memory();
  std::string text = "out of memory: ";
  text += bytes > 0 ? std::to_string(static_cast<std::int64_t>(bytes)) + " bytes were requested" : "a request failed";
  text += "; this process uses " + megabytes(resident_memory_mb() * kMegabyte) + limit_text();
  if (available) text += ", and " + megabytes(static_cast<double>(*available)) + " are available on this host";
  text += blocks_text();
  return Error(kOutOfMemory, text +
                                 "; reduce train.micro_batch, data.prefetch or the model, use more hosts, or raise "
                                 "the limit");
}

}  // namespace lockstep
