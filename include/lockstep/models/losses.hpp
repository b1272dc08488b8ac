// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// One entry of a LossMap: a tensor, which counts as its mean, or a list of tensors, which counts as the sum of their
/// means.
struct LossTerm {
  LossTerm(at::Tensor term) : parts{std::move(term)} {}
  LossTerm(std::vector<at::Tensor> terms) : parts(std::move(terms)) {}

  std::vector<at::Tensor> parts;
};

/// Named losses of one micro_batch, and what else is to be logged with them. Those whose name contains "loss" are
/// summed into what is trained.
using LossMap = std::vector<std::pair<std::string, LossTerm>>;

struct ParsedLosses {
  at::Tensor total;  ///< [] with its history: what backward starts from
  /// [] without a history: "loss", the total, then the entries in their order. An entry that is itself called "loss"
  /// is there as "loss_raw", unless it is the total.
  std::vector<std::pair<std::string, at::Tensor>> values;
};

/// Which entries of a LossMap are trained.
enum class LossSum { named, all };

/// @param sum  named: entries whose name contains "loss"; all: every entry
/// @throws ConfigError  no entry is trained, or one has no tensor
ParsedLosses parse_losses(const LossMap& losses, LossSum sum = LossSum::named);

/// Its values as numbers, in their order. One copy, and on a GPU one wait.
std::vector<std::pair<std::string, double>> host_values(const ParsedLosses& losses);

/// The total of parse_losses.
at::Tensor total_loss(const LossMap& losses);

}  // namespace lockstep::models
