// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/requirements.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "batch/libtorch_versions.hpp"
#include "core/text/text_stream.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

bool has_dense_gradient_of_own_type(const NamedParameter& parameter) {
  const at::ScalarType type = parameter.tensor.scalar_type();
  return gradient_type(parameter.tensor) == type && !parameter.is_sparse;
}

void describe(std::ostream& out, const char* kind, const std::string& name, const at::Tensor& tensor) {
  out << kind << " '" << name << "' " << name_of(dtype_of(tensor, name)) << ' ' << tensor.sizes() << " strides "
      << tensor.strides() << (tensor.requires_grad() ? "" : " frozen") << '\n';
}

/// One line for each parameter and buffer: what must be the same on all ranks.
std::string signature(const models::Model& model, const std::vector<std::string>& ignored) {
  const auto is_ignored = [&](const std::string& name) {
    return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
  };
  TextWriter out;
  for (const auto& item : model.named_parameters()) {
    if (!is_ignored(item.key())) describe(out, "parameter", item.key(), item.value());
  }
  for (const auto& item : model.named_buffers()) {
    if (!is_ignored(item.key())) describe(out, "buffer", item.key(), item.value());
  }
  return out.str();
}

/// Says how many lines there are, if the numbers differ.
std::string counts_of(const std::string& a, const std::string& b) {
  const auto in_a = std::count(a.begin(), a.end(), '\n');
  const auto in_b = std::count(b.begin(), b.end(), '\n');
  if (in_a == in_b) return "";
  return " (" + std::to_string(in_a) + " and " + std::to_string(in_b) + " parameters and buffers)";
}

std::string line_at(const std::string& text, std::size_t position) {
  if (position >= text.size()) return "nothing more";
  const std::size_t before = position == 0 ? std::string::npos : text.rfind('\n', position - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

void require_one_device(const std::vector<NamedParameter>& parameters) {
  const at::Device device = parameters.front().tensor.device();
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.device() == device) continue;
    throw ConfigError("ddp: parameter '" + parameters.front().name + "' is on " + device.str() + ", '" +
                      parameter.name + "' on " + parameter.tensor.device().str() +
                      "; move the model to one device before wrapping it");
  }
}

void require_supported_on(at::Device device, const DdpOptions& options) {
  if (device.is_cpu()) return;
  if (options.shares_parameters) {
    throw ConfigError("ddp.shared_parameters=true requires the CPU: GPUs do not share memory; use auto");
  }
  if (options.checks_writes) {
    throw ConfigError("ddp.check_writes=true requires the CPU: GPU memory cannot be made read-only; use false");
  }
}

void require_lanes(const std::vector<NamedParameter>& parameters, const DdpOptions& options, int world_size) {
  if (options.lanes < world_size) {
    throw ConfigError("ddp: " + std::to_string(options.lanes) + " lanes are not enough for " +
                      std::to_string(world_size) + " ranks");
  }
  if (!parameters.front().tensor.is_cpu()) throw ConfigError("ddp: lanes require the CPU");
  if (options.synchronizes_batch_norm) {
    throw ConfigError(
        "ddp: with lanes, each lane is normalized by its own statistics, so that results do not depend on "
        "the number of ranks; set ddp.sync_batch_norm=false");
  }
  if (options.comm_hook) {
    throw ConfigError("ddp: with lanes, gradients cannot be compressed; set ddp.comm_hook=none");
  }
  for (const NamedParameter& parameter : parameters) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    if (has_dense_gradient_of_own_type(parameter) && (type == at::kFloat || type == at::kDouble)) continue;
    throw ConfigError("ddp: with lanes, gradients must be dense float32 or float64 like their parameters; '" +
                      parameter.name + "' has different ones");
  }
}

void require_shardable(const std::vector<NamedParameter>& parameters, const DdpOptions& options) {
  const std::string stage = "strategy.stage=" + std::to_string(options.sharding.stage);
  if (options.lanes > 0 && options.sharding.stage > 1) {
    throw ConfigError(stage + ": lanes require whole gradients; set train.lanes=0 or strategy.stage=1");
  }
  for (const NamedParameter& parameter : parameters) {
    if (has_dense_gradient_of_own_type(parameter)) continue;
    throw ConfigError(stage + ": the gradient of '" + parameter.name +
                      "' must be dense and of the parameter's type; use strategy.name=ddp");
  }
}

void require_equal_hosts(const mpi::Topology& topology) {
  const std::vector<int>& hosts = topology.host_of_rank;
  const auto ranks_of = [&hosts](int host) { return std::to_string(std::count(hosts.begin(), hosts.end(), host)); };
  for (int host = 1; host < topology.host_count; ++host) {
    if (ranks_of(host) == ranks_of(0)) continue;
    const auto first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
    throw ConfigError("strategy.shard_within=host requires the same number of ranks on every host, but there are " +
                      ranks_of(0) + " on the host of rank 0 and " + ranks_of(host) + " on the host of rank " +
                      std::to_string(first) +
                      "; start equal numbers (mpirun --map-by ppr:N:node), or set strategy.shard_within=all");
  }
}

void require_shardable(const ChosenHook& hook, const Sharding& sharding) {
  if (hook.rounding) return;
  throw ConfigError("strategy.stage=" + std::to_string(sharding.stage) +
                    ": a rank receives its slices only, but this ddp.comm_hook needs whole buckets; use "
                    "ddp.comm_hook=bf16 or fp16, or strategy.stage=1");
}

void verify_same_model(const models::Model& model, const mpi::Communicator& world,
                       const std::vector<std::string>& ignored) {
  const std::vector<std::string> signatures = world.all_gather(signature(model, ignored));
  for (std::size_t rank = 1; rank < signatures.size(); ++rank) {
    const std::string& a = signatures[0];
    const std::string& b = signatures[rank];
    if (a == b) continue;
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto position = static_cast<std::size_t>(in_a - a.begin());
    throw_agreed(ExitCode::configuration, "ddp: the models of the ranks differ: rank 0 has " + line_at(a, position) +
                                              ", rank " + std::to_string(rank) + " has " + line_at(b, position) +
                                              counts_of(a, b) + "; build the same model on every rank");
  }
}

}  // namespace lockstep::parallel
