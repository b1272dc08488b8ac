// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints for the tests of `ckpt`, and how they run it.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "support/program.hpp"

namespace lockstep::testing {

inline checkpoints::Array floats(std::vector<std::int64_t> shape, std::vector<float> values) {
  const auto kept = std::make_shared<std::vector<float>>(std::move(values));
  return {.dtype = DType::float32, .shape = std::move(shape), .bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

/// The differences that are allowed between two checkpoints of equal runs, and what may not.
struct Variant {
  std::int64_t step = 10;
  std::int64_t world_size = 1;
  std::string config = "[train]\n";
  float weight = 1.0F;
  std::int64_t position = 320;
  bool is_reversed = false;     ///< the arrays in the opposite order
  std::int64_t best_step = -1;  ///< step of the best evaluation; -1 = none
};

/// A state as engine writes it, small.
inline checkpoints::Archive state_of(const Variant& variant) {
  checkpoints::Archive archive;
  archive.set("/", "step", variant.step);
  archive.set("/", "epoch", std::int64_t{1});
  archive.set("/", "samples_seen", 32 * variant.step);
  archive.set("/", "world_size", variant.world_size);
  archive.set("/sampler", "samples_in_epoch", variant.position);
  archive.set("/optim/0", "type", std::string("adamw"));
  archive.set("/optim/0/groups/0", "base_lr", 0.001);
  archive.set("/sched/0", "factor", 0.5);
  std::vector<std::pair<std::string, checkpoints::Array>> arrays = {
      {"/model/params/conv.weight", floats({2, 3}, {variant.weight, 2, 3, 4, 5, 6})},
      {"/model/params/conv.bias", floats({2}, {0, 0})},
      {"/model/buffers/norm.mean", floats({2}, {0.5F, -0.5F})},
      {"/optim/0/state/exp_avg/conv.weight", floats({2, 3}, {0, 1, 0, 1, 0, 1})},
      {"/rng/cpu", checkpoints::text_array(std::string(8 * static_cast<std::size_t>(variant.world_size), 'r'))},
      {"/meta/config_ini", checkpoints::text_array(variant.config)},
  };
  if (variant.world_size > 1) arrays.emplace_back("/comm/buckets/param_names", checkpoints::text_array("conv.bias\n"));
  if (variant.best_step >= 0) {
    archive.set("/hooks/best", "metric", std::string("val/loss"));
    archive.set("/hooks/best/0", "value", 0.5);
    archive.set("/hooks/best/0", "step", variant.best_step);
  }
  if (variant.is_reversed) std::reverse(arrays.begin(), arrays.end());
  for (auto& [path, array] : arrays) archive.put(path, std::move(array));
  return archive;
}

inline ProgramResult ckpt(const std::string& arguments) { return run_shell(ckpt_program() + " " + arguments, 60); }

/// The document that `ckpt ... --json` printed, which must be one document.
inline nlohmann::json json_of(const std::string& arguments) {
  return nlohmann::json::parse(ckpt(arguments + " --json").output);
}

}  // namespace lockstep::testing
