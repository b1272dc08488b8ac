// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/array_rows.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include "report/files/image.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kMaxByteClasses = 256;
constexpr std::size_t kAlignment = 64;

std::string type_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "|u1";
    case at::kInt:
      return "<i4";
    case at::kLong:
      return "<i8";
    case at::kDouble:
      return "<f8";
    default:
      return "<f4";
  }
}

}  // namespace

at::Tensor array_rows(const engine::BatchPredictions& predictions, std::int64_t classes) {
  if (predictions.probabilities.defined()) return predictions.probabilities.to(at::kFloat).contiguous();
  if (predictions.masks.defined()) {
    return predictions.masks.to(classes > kMaxByteClasses ? at::kInt : at::kByte).contiguous();
  }
  if (predictions.values.defined()) {
    const bool is_double = predictions.values.scalar_type() == at::kDouble;
    return predictions.values.to(is_double ? at::kDouble : at::kFloat).contiguous();
  }
  throw ConfigError("predict.out: the predictions of this model are not one array; use a file that ends in .jsonl");
}

std::string bytes_of_rows(const at::Tensor& rows) {
  const at::Tensor whole = rows.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

std::string npy_header(const at::Tensor& rows, std::int64_t count) {
  std::string shape = std::to_string(count) + ",";
  for (std::int64_t d = 1; d < rows.dim(); ++d) shape += " " + std::to_string(rows.size(d)) + ",";
  if (rows.dim() > 1) shape.pop_back();
  std::string text =
      "{'descr': '" + type_of(rows.scalar_type()) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::string magic("\x93NUMPY\x01\x00", 8);
  while ((magic.size() + 2 + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  const std::string length = {static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return magic + length + text;
}

std::string mask_png(const at::Tensor& mask) {
  const at::Tensor pixels = mask.to(at::kByte).unsqueeze(-1).expand({mask.size(0), mask.size(1), 3}).contiguous();
  Picture image{.name = "", .height = mask.size(0), .width = mask.size(1)};
  const auto* const begin = pixels.const_data_ptr<std::uint8_t>();
  image.pixels.assign(begin, begin + pixels.numel());
  return report::png_of(image).bytes;
}

}  // namespace lockstep::trainer
