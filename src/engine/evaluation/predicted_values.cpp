// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/predicted_values.hpp"

#include <torch/types.h>

namespace lockstep::engine {

PredictedValues::PredictedValues(std::int64_t samples) : distance_((samples + kMaxSamples - 1) / kMaxSamples) {}

void PredictedValues::add(const LastBatch& last) {
  const auto& draws = last.given->draws();
  if (distance_ == 0 || !last.batch->has_target() || !last.batch->at(last.batch->target_key()).is<at::Tensor>()) return;
  const at::Tensor& output = last.outputs.main();
  const at::Tensor& target = last.batch->target();
  const auto samples = static_cast<std::int64_t>(draws.size());
  const bool is_of_samples = output.dim() > 0 && target.dim() > 0 && output.size(0) == samples &&
                             target.size(0) == samples && output.numel() == target.numel();
  if (!is_of_samples || output.numel() > samples * static_cast<std::int64_t>(kMaxOutputs)) return;
  for (std::int64_t i = 0; i < samples; ++i) {
    if (draws[static_cast<std::size_t>(i)].index % distance_ != 0) continue;
    metrics::append(kept_, metrics::samples_of(output[i].reshape({1, -1}), target[i].reshape({1, -1}),
                                               draws[static_cast<std::size_t>(i)].index));
  }
}

void PredictedValues::gather(mpi::Collectives& collectives) {
  if (distance_ > 0) kept_ = metrics::unpack(collectives.all_gather_any(metrics::pack(kept_)));
}

std::optional<Table> PredictedValues::table() const {
  if (kept_.size() == 0) return std::nullopt;
  Table table{.name = "predicted", .columns = 2 * kept_.output_columns};
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    for (std::size_t j = 0; j < kept_.output_columns; ++j) {
      table.values.push_back(kept_.target(i)[j]);
      table.values.push_back(kept_.output(i)[j]);
    }
  }
  return table;
}

}  // namespace lockstep::engine
