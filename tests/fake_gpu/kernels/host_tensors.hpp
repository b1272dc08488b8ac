// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fake_gpu/kernels/arguments.hpp"

namespace lockstep::fake_gpu {

struct Facts;

/// The tensors of the host that an operator accepts among those of the device.
struct HostTensors {
  bool may_be_numbers = true;                ///< tensors without dimensions
  bool may_be_arrays = false;                ///< lengths
  std::optional<std::size_t> argument = {};  ///< the one that has to be on the host
  std::vector<std::size_t> moved = {};       ///< those that LibTorch copies to the device,
  bool (*unless)(const Stack&) = nullptr;    ///< except for some calls
};

HostTensors host_tensors_of(const std::string& name);

/// Copies arguments to the device as LibTorch does, from pageable memory: the host waits, and a capture refuses it.
void move_host_tensors(const HostTensors& host, Stack& arguments);

/// The device of the tensors, or the current one. Throws LibTorch's error for tensors of several devices.
at::Device device_of(const Facts& facts, const Stack& arguments);

/// Whether index_put fills a number in under a single mask, without indices (canDispatchToMaskedFill).
bool fills_under_mask(const Stack& arguments);

}  // namespace lockstep::fake_gpu
