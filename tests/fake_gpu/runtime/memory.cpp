// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/memory.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <sys/mman.h>

#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/order.hpp"
#include "fake_gpu/runtime/report.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAddresses = std::size_t{1} << 40;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

char* reserve(std::size_t bytes) {
  void* const addresses = mmap(nullptr, bytes, PROT_NONE, kAnonymous, -1, 0);
  if (addresses == MAP_FAILED) end_process("no address space is left");
  return static_cast<char*>(addresses);
}

/// Addresses that are handed out one after the other.
struct Addresses {
  char* const begin;
  std::size_t used = 0;
  [[nodiscard]] bool contains(const void* memory) const { return memory >= begin && memory < begin + kAddresses; }
};

struct Memory {
  /// Nothing is ever mapped here: these addresses are what the program has, and `kAddresses` further are the bytes.
  Addresses device{.begin = reserve(2 * kAddresses)};
  Addresses host{.begin = reserve(kAddresses)};
  std::map<std::uintptr_t, MemoryBlock> blocks;  ///< blocks by their first byte
  std::map<int, std::size_t> used_bytes;         ///< used bytes by device
};

Memory& memory() {
  static Memory& only = *new Memory;
  return only;
}

Addresses& addresses_of(cudaMemoryType type) { return type == cudaMemoryTypeDevice ? memory().device : memory().host; }

auto find(const void* inside) {
  auto& blocks = memory().blocks;
  const auto place = reinterpret_cast<std::uintptr_t>(inside);
  auto block = blocks.upper_bound(place);
  if (block == blocks.begin()) return blocks.end();
  --block;
  return place < block->first + block->second.bytes ? block : blocks.end();
}

/// Blocks have an inaccessible page between them.
std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* take(Addresses& addresses, std::size_t bytes) {
  const std::size_t needed = pages(bytes) + kPage;
  if (kAddresses - addresses.used < needed) end_process("the process has allocated more than all addresses");
  char* const taken = addresses.begin + addresses.used;
  addresses.used += needed;
  return taken;
}

}  // namespace

void* address(const void* program_address) {
  auto* const found = static_cast<char*>(const_cast<void*>(program_address));
  return memory().device.contains(program_address) ? found + kAddresses : found;
}

MemoryState state_of(const Range& range) {
  if (range.bytes == 0) return MemoryState::not_ours;
  const auto block = find(range.begin);
  const bool is_known = block != memory().blocks.end();
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  if (is_known && begin + range.bytes <= block->first + block->second.bytes) return MemoryState::live;
  const bool is_ours = memory().device.contains(range.begin) || memory().host.contains(range.begin);
  return is_ours || is_known ? MemoryState::freed : MemoryState::not_ours;
}

const MemoryBlock* block_of(const void* inside) {
  const auto block = find(inside);
  return block != memory().blocks.end() ? &block->second : nullptr;
}

cudaError_t allocate(cudaMemoryType type, std::size_t bytes, void** allocated) {
  *allocated = nullptr;
  if (bytes == 0) return cudaSuccess;
  const bool is_of_device = type == cudaMemoryTypeDevice;
  if (bytes > kAddresses || (is_of_device && bytes > free_bytes())) return cudaErrorMemoryAllocation;
  void* const block = take(addresses_of(type), bytes);
  void* const content = address(block);
  if (mprotect(content, pages(bytes), PROT_READ | PROT_WRITE) != 0) return cudaErrorMemoryAllocation;
  std::memset(content, 0xFF, bytes);
  memory().blocks[reinterpret_cast<std::uintptr_t>(block)] = {
      .bytes = bytes, .type = type, .device = current_device(), .is_registered = false};
  if (is_of_device) memory().used_bytes[current_device()] += bytes;
  *allocated = block;
  return cudaSuccess;
}

cudaError_t release(cudaMemoryType type, void* released) {
  const auto block = memory().blocks.find(reinterpret_cast<std::uintptr_t>(released));
  if (block == memory().blocks.end()) return cudaErrorInvalidValue;
  const MemoryBlock known = block->second;
  if (known.type != type || known.is_registered) return cudaErrorInvalidValue;
  if (type == cudaMemoryTypeDevice) memory().used_bytes[known.device] -= known.bytes;
  forget_accesses(released, known.bytes);
  memory().blocks.erase(block);
  const void* const gone = mmap(address(released), pages(known.bytes), PROT_NONE, kAnonymous | MAP_FIXED, -1, 0);
  if (gone == MAP_FAILED) end_process("memory cannot be returned to the system");
  return cudaSuccess;
}

cudaError_t register_memory(void* registered, std::size_t bytes) {
  if (registered == nullptr || bytes == 0) return cudaErrorInvalidValue;
  auto& blocks = memory().blocks;
  const auto begin = reinterpret_cast<std::uintptr_t>(registered);
  const auto next = blocks.lower_bound(begin);
  const bool is_in_use = find(registered) != blocks.end() || (next != blocks.end() && next->first < begin + bytes);
  if (is_in_use) return cudaErrorHostMemoryAlreadyRegistered;
  blocks[begin] = {.bytes = bytes, .type = cudaMemoryTypeHost, .device = current_device(), .is_registered = true};
  return cudaSuccess;
}

cudaError_t unregister_memory(void* registered) {
  const auto block = memory().blocks.find(reinterpret_cast<std::uintptr_t>(registered));
  if (block == memory().blocks.end() || !block->second.is_registered) return cudaErrorHostMemoryNotRegistered;
  forget_accesses(registered, block->second.bytes);
  memory().blocks.erase(block);
  return cudaSuccess;
}

std::size_t free_bytes() { return settings().memory_bytes - memory().used_bytes[current_device()]; }

}  // namespace lockstep::fake_gpu
