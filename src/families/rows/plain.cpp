// SPDX-License-Identifier: BSD-3-Clause
// The families that no other library has.
#include "families/rows/rows.hpp"

namespace lockstep::families {

FamilyRow mlp_family() {
  return {.name = "mlp",
          .help = "Linear layers with activations between them, for tables and small images",
          .keys = {hidden_key(), dropout_key(),
                   keys::choice("model.activation", "relu", "Activation of the hidden layers (mlp)",
                                {"relu", "gelu", "silu", "tanh"}),
                   norm_key(),
                   keys::boolean("model.residual", "false",
                                 "Add the input of a hidden layer to its output where both have the same width (mlp)"),
                   head_key(),
                   keys::boolean(
                       "model.standardize", "false",
                       "Subtract the mean of each input over the training data and divide by its standard deviation; "
                       "regressions compute their outputs in the unit of the targets. The statistics are part of the "
                       "model and of its checkpoints (mlp)")},
          .sizes = {{"norm", "none"}},
          .head = {"head"},
          .layers = {{"hidden{a}.", "norm{a}."}, {"head."}}};
}

FamilyRow cnn_family() {
  return {.name = "cnn",
          .help = "3x3 convolutions with ReLU and pooling, followed by an mlp",
          .keys = {keys::integers("model.channels", "16,32", "Output channels of the convolutions (cnn)", 1, 1 << 16),
                   hidden_key(), dropout_key()},
          .head = {"classifier.head"},
          .stem = "conv0"};
}

FamilyRow gpt_family() {
  return {.name = "gpt",
          .help = "Decoder-only transformer with learned positions and tied embeddings",
          .keys = {depth_key("4"), num_heads_key("4"), embed_dim_key("128"),
                   keys::boolean("model.bias", "false", "Use biases in linear and norm layers (gpt)"), dropout_key()},
          .sizes = {{"depth", "4"}, {"num_heads", "4"}, {"embed_dim", "128"}}};
}

FamilyRow torchscript_family() {
  return {.name = "torchscript",
          .help = "Module that torch.jit.script saved in Python. The archive contains code, which is executed",
          .keys = {keys::text("model.file", "", "Archive of the module, such as net.pt (torchscript)"),
                   keys::boolean(
                       "model.optimize", "false",
                       "Let LibTorch specialize and fuse the code of the archive (torchscript). The first steps are "
                       "then computed by other code than later ones, so a resumed run can differ in the last bits")}};
}

}  // namespace lockstep::families
