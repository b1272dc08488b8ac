// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <map>
#include <set>
#include <string>

namespace lockstep::engine {

/// The groups of a file of another program that contain averaged weights:
///
/// - keys with the word ema, swa or average (timm, DeiT, MAE, torchvision, RT-DETR, BasicSR);
/// - weights beside the counter of torch.optim.swa_utils.AveragedModel, under any key;
/// - `state_dict` of mmengine with EMAHook, which stores the trained weights under `ema_state_dict`, and of Lightning
///   with WeightAveraging, which stores them under `current_model_state`;
/// - one group of mmcv's EMAHook with both: the other weights of `a.b` are the buffer `ema_a_b`. The hook exchanges
/// them
///   before a checkpoint at the end of an epoch, so that the buffers are the trained weights; not so where the stored
///   configuration states an IterBasedRunner.
class WeightLayout {
 public:
  explicit WeightLayout(const checkpoints::Archive& archive);

  /// @param group  path of a group, such as "/state_dict"; "" for the root
  bool is_average(const std::string& group) const { return averages_.contains(group); }
  /// Whether an array counts the updates of averaged weights, so that it does not belong to the model.
  bool is_counter(const std::string& group, const std::string& name) const;
  /// The parameters that have other weights in buffers of their group: names by buffer. Empty = there are none.
  const std::map<std::string, std::string>& buffers_in(const std::string& group) const;
  /// The name of the group that these buffers form with what else is in their group.
  static std::string group_of_buffers(const std::string& group) { return group + "/ema_*"; }

 private:
  std::map<std::string, std::string> counters_;                        // names, by group
  std::map<std::string, std::map<std::string, std::string>> buffers_;  // parameters by buffer, by group
  std::set<std::string> averages_;
};

}  // namespace lockstep::engine
