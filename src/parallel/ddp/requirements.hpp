// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/ddp_options.hpp>

#include <c10/core/Device.h>

#include <vector>

#include "mpi/process/topology.hpp"
#include "parallel/store/named_parameter.hpp"

// The requirements that a model and its options must fulfil before a wrapper is built. Each function throws
// ConfigError. Not collective.

namespace lockstep::parallel {

void require_one_device(const std::vector<NamedParameter>& parameters);
/// @param device  of the parameters
void require_supported_on(at::Device device, const DdpOptions& options);
void require_lanes(const std::vector<NamedParameter>& parameters, const DdpOptions& options, int world_size);
void require_shardable(const std::vector<NamedParameter>& parameters, const DdpOptions& options);
/// Every host divides into as many slices as the others.
void require_equal_hosts(const mpi::Topology& topology);
/// @param sharding  stage 2 or 3
void require_shardable(const ChosenHook& hook, const Sharding& sharding);

}  // namespace lockstep::parallel
