// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>

#include <torch/types.h>

#include <numeric>

#include "core/text/text_stream.hpp"
#include "metrics/meters.hpp"

namespace lockstep::metrics {

namespace {

[[noreturn]] void refuse(const at::Tensor& output, const at::Tensor& target) {
  TextWriter text;
  text << "outputs of shape " << output.sizes() << " do not match targets of shape " << target.sizes();
  throw DataError(text.str());
}

std::vector<double> doubles_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* const begin = values.const_data_ptr<double>();
  return {begin, begin + values.numel()};
}

/// Whether `output` without its dimension `dim` has the shape of `target`.
bool fits_without(const at::Tensor& output, const at::Tensor& target, std::int64_t dim) {
  std::vector<std::int64_t> shape = output.sizes().vec();
  shape.erase(shape.begin() + dim);
  return target.sizes() == at::IntArrayRef(shape);
}

}  // namespace

Samples samples_of(const Tensor& output, const Tensor& target, std::int64_t first) {
  if (output.dim() == 0 || target.dim() == 0) refuse(output, target);
  const bool has_classes = output.dim() == target.dim() + 1;
  const bool has_same_dim = output.dim() == target.dim() && output.size(0) == target.size(0);
  at::Tensor rows = output;
  if (has_classes && !fits_without(output, target, output.dim() - 1)) {
    if (!fits_without(output, target, 1)) refuse(output, target);
    rows = output.movedim(1, -1);
  } else if (!has_classes && !has_same_dim) {
    refuse(output, target);
  }
  const std::int64_t samples = target.size(0);
  const std::int64_t predictions = has_classes ? target.numel() : samples;
  Samples result{.indices = std::vector<std::int64_t>(static_cast<std::size_t>(predictions)),
                 .outputs = doubles_of(rows),
                 .targets = doubles_of(target)};
  if (!has_classes && target.dim() > 1) result.shape = target.sizes().slice(1).vec();
  if (predictions == 0) return result;
  std::iota(result.indices.begin(), result.indices.end(), first * (predictions / samples));
  result.output_columns = result.outputs.size() / result.indices.size();
  result.target_columns = result.targets.size() / result.indices.size();
  return result;
}

std::vector<double> field_of(const std::string& name, const Tensor& value, const Tensor& target) {
  bool fits = value.dim() == target.dim() && target.dim() > 0 && value.size(0) == target.size(0);
  for (std::int64_t i = 1; fits && i < value.dim(); ++i) fits = value.size(i) == 1 || value.size(i) == target.size(i);
  if (fits) return doubles_of(value.expand_as(target));
  TextWriter text;
  text << "the value " << name << " of the batch has the shape " << value.sizes() << ", the targets " << target.sizes()
       << "; it needs the sizes of the targets, or 1 in place of others than the first";
  throw DataError(text.str());
}

std::optional<Answers> count_answers(const Tensor& scores, const Tensor& target) {
  const bool has_classes = at::isIntegralType(target.scalar_type(), false) && scores.dim() == target.dim() + 1 &&
                           target.sizes() == scores.sizes().slice(0, static_cast<std::size_t>(target.dim()));
  if (!has_classes) return std::nullopt;
  Answers counts{.correct = 0, .count = target.ne(kIgnored).sum().item<std::int64_t>()};
  if (counts.count > 0) counts.correct = scores.argmax(-1).eq(target).sum().item<std::int64_t>();  // no class is -100
  return counts;
}

}  // namespace lockstep::metrics
