// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

FamilyRow fno_family() {
  const auto ratio = [](const std::string& name, const std::string& help) {
    return keys::real_above("model." + name, 0, 1024, "2", help);
  };
  const auto skip = [](const std::string& name, const std::string& default_value, const std::string& help) {
    return keys::choice("model." + name, default_value, help, {"linear", "soft-gating", "identity"});
  };
  return {.name = "fno",
          .help = "Fourier neural operator for fields over 1 to 3 axes of space, named as in neuraloperator",
          .keys = {width_key(), depth_key(), norm_key(), head_key(), mlp_ratio_key("0.5"),
                   keys::integers("model.modes", "16",
                                  "Frequencies of each axis of space, both signs together: a list by axis, or one "
                                  "number for all (fno). The last axis keeps modes / 2 + 1 of them",
                                  1, kMaxSize),
                   ratio("lifting_ratio", "Hidden channels of the first layers for each channel of a block (fno)"),
                   ratio("projection_ratio", "Hidden channels of the last layers for each channel of a block (fno)"),
                   keys::boolean("model.channel_mlp", "true", "Use a channel MLP in each block (fno)"),
                   skip("skip", "linear",
                        "Path around the spectral convolution: a matrix for each point (linear), a factor for each "
                        "channel (soft-gating), or the unchanged field (identity) (fno)"),
                   skip("mlp_skip", "soft-gating", "Path around the channel MLP, with the values of model.skip (fno)"),
                   keys::reals("model.domain_padding", "",
                               "Zeros at both ends of each axis inside the model, as a part of its size: a list by "
                               "axis, or one number for all (fno). If empty, there are none",
                               0, 16),
                   keys::boolean("model.preactivation", "false", "Begin each block with the activation (fno)"),
                   keys::boolean("model.grid", "true",
                                 "Append the relative coordinates of the points to the channels (fno)")},
          .sizes = {{"depth", "4"}, {"norm", "none"}},
          .head = {"projection.fcs.1"},
          .layers = {{"lifting."},
                     {"fno_blocks.convs.{a}.", "fno_blocks.fno_skips.{a}.", "fno_blocks.channel_mlp.{a}.",
                      "fno_blocks.channel_mlp_skips.{a}.", "fno_blocks.norm.{2a}.", "fno_blocks.norm.{2a+1}."},
                     {"projection."}}};
}

}  // namespace lockstep::families
