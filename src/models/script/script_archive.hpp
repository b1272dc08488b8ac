// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <string>
#include <vector>

/// TorchScript archives: modules that torch.jit.script or torch.jit.trace made in Python. They contain code, so they
/// are only loaded on request.
namespace lockstep::models {

/// Loads an archive to the CPU. Every record is checked against its CRC-32 before LibTorch parses it. Not collective.
/// @throws CheckpointError  the file cannot be read or is damaged
/// @throws ConfigError      it is not a TorchScript archive, or its module cannot be trained; the message states why
torch::jit::Module load_script(const std::string& path);

/// The parameters or buffers of one module without its submodules, in the order of registration. None is left out.
struct ScriptTensor {
  std::string name;
  at::Tensor tensor;
};
std::vector<ScriptTensor> own_parameters(const torch::jit::Module& module);
std::vector<ScriptTensor> own_buffers(const torch::jit::Module& module);

/// Whether the mode of training is fixed in the code: it calls batch norm or dropout, but does not read `training`.
bool has_fixed_mode(const torch::jit::Module& module);

/// Whether the code calls batch norm.
bool calls_batch_norm(const torch::jit::Module& module);

/// The devices that the code names, such as "cuda:0", without duplicates.
std::vector<std::string> devices_in(const torch::jit::Module& module);

/// Writes a copy of the archive `from` with other values. The file is complete or does not appear; a file of that name
/// is replaced. Not collective.
/// @param value_of  the value of each parameter and buffer, by dotted name; it is converted to the type in the archive
/// @throws CheckpointError  like load_script; a shape differs, or the file cannot be written
void write_script(const std::string& from, const std::string& target,
                  const std::function<at::Tensor(const std::string& name)>& value_of);

}  // namespace lockstep::models
