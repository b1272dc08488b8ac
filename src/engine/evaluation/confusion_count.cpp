// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/confusion_count.hpp"

#include <torch/types.h>

namespace lockstep::engine {

namespace {

constexpr std::int64_t kMaxCountedClasses = 100;
constexpr std::int64_t kMaxRequestedClasses = 4096;  // a matrix of 128 MiB

}  // namespace

std::int64_t ConfusionCount::classes_of(const Task& task, bool is_per_class) {
  const bool is_small = task.classes >= 2 && task.classes <= (is_per_class ? kMaxRequestedClasses : kMaxCountedClasses);
  const bool is_wanted = task.kind == TaskKind::classification && task.predictions_per_sample == 1;
  return is_small && is_wanted ? task.classes : 0;
}

ConfusionCount::ConfusionCount(std::int64_t classes)
    : classes_(classes), words_(classes == 0 ? 0 : static_cast<std::size_t>(classes * classes + 1)) {}

void ConfusionCount::add(const LastBatch& batch) {
  if (words_.empty()) return;
  if (batch.outputs.is_empty() || !batch.batch->has_target()) {
    ++words_.back();
    return;
  }
  const at::Tensor& output = batch.output();
  const at::Tensor& target = batch.batch->target();
  if (output.dim() != 2 || output.size(1) != classes_ || target.dim() != 1 || target.size(0) != output.size(0) ||
      !at::isIntegralType(target.scalar_type(), false)) {
    ++words_.back();
    return;
  }
  const at::Tensor is_counted = target.ge(0).logical_and(target.lt(classes_));
  const at::Tensor places = (target * classes_ + output.argmax(1)).masked_select(is_counted).to(at::kCPU);
  for (std::int64_t i = 0; i < places.size(0); ++i) {
    ++words_[static_cast<std::size_t>(places.const_data_ptr<std::int64_t>()[i])];
  }
}

void ConfusionCount::sum_over_ranks(mpi::Collectives& collectives) {
  if (words_.empty()) return;
  collectives.all_reduce(words_.data(), words_.size(), DType::int64, mpi::ReduceOp::sum);
}

std::optional<Table> ConfusionCount::table() const {
  if (words_.empty() || words_.back() > 0) return std::nullopt;
  return Table{
      .name = "confusion", .columns = static_cast<std::size_t>(classes_), .values = {words_.begin(), words_.end() - 1}};
}

}  // namespace lockstep::engine
