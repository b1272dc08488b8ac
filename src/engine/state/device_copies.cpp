// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/device_copies.hpp"

#include <lockstep/log/log.hpp>

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <iterator>
#include <memory>
#include <thread>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kArrayAlignment = 64;                   // alignment of an array, in bytes
constexpr std::size_t kMinBlockBytes = std::size_t{16} << 20;  // locking pages takes long
constexpr std::chrono::milliseconds kArrivalPoll(1);

void warn_once(const std::exception& error) {
  static std::atomic_flag has_warned;
  if (has_warned.test_and_set()) return;
  const std::string text = error.what();
  log::warning("page-locked memory for the copy of a checkpoint cannot be allocated (" +
               text.substr(0, text.find('\n')) + "); ordinary memory is used, and training waits longer for each save");
}

/// [bytes] uint8
at::Tensor copy_memory(std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(at::kCPU);
  try {
    return at::empty({size}, options.pinned_memory(true));
  } catch (const c10::Error& error) {
    warn_once(error);
    return at::empty({size}, options);
  }
}

/// Asks instead of waiting: CUDA's wait would keep a processor busy. A thread that has not chosen a device would bring
/// up the first one of the host.
void await_copies(const c10::Event& copied, at::Device device) {
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  while (!copied.query()) std::this_thread::sleep_for(kArrivalPoll);
}

}  // namespace

void DeviceCopies::begin() {
  for (CopyMemory& block : blocks_) {
    const bool is_borrowed = block.memory.storage().use_count() > 1;
    if (!is_borrowed) block.used = 0;
  }
  device_.reset();
}

checkpoints::Array DeviceCopies::queue(const at::Tensor& tensor, const std::string& what) {
  const c10::NoGradGuard no_grad;
  const at::Tensor values = tensor.detach();
  checkpoints::Array array{.dtype = parallel::dtype_of(values, what),
                           .shape = values.sizes().vec(),
                           .bytes = {},
                           .owner = nullptr,
                           .is_stable = true};
  if (values.numel() == 0) return array;
  const auto copy = std::make_shared<at::Tensor>(take(values.nbytes()).view(values.scalar_type()).view(values.sizes()));
  copy->copy_(values, /*non_blocking=*/true);
  device_ = values.device();
  array.bytes = parallel::bytes_of(*copy);
  array.owner = copy;
  return array;
}

at::Tensor DeviceCopies::take(std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  auto block = std::find_if(blocks_.begin(), blocks_.end(),
                            [size](const CopyMemory& each) { return each.memory.numel() - each.used >= size; });
  if (block == blocks_.end()) {
    // LibTorch rounds to a power of two anyway.
    blocks_.push_back({.memory = copy_memory(std::max(kMinBlockBytes, std::bit_ceil(bytes)))});
    block = std::prev(blocks_.end());
  }
  const at::Tensor taken = block->memory.narrow(0, block->used, size);
  block->used += (size + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  return taken;
}

std::function<void()> DeviceCopies::arrival() const {
  if (!device_) return {};
  const auto copied = std::make_shared<c10::Event>(device_->type());
  copied->record(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
  return [copied, device = *device_] { await_copies(*copied, device); };
}

}  // namespace lockstep::engine
