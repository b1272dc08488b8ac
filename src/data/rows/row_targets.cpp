// SPDX-License-Identifier: BSD-3-Clause
#include "data/rows/row_targets.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/text.hpp"
#include "data/source/hash.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kBlockNumbers = 1 << 16;
constexpr std::int64_t kMaxLabels = 1 << 24;

/// Calls `call(index, numbers)` for all rows, until it returns false.
template <class Call>
void visit_rows(const RowArray& array, const Call& call) {
  const std::int64_t numbers = array.row_numbers();
  const std::int64_t rows = std::max<std::int64_t>(kBlockNumbers / numbers, 1);
  std::vector<double> values;
  for (std::int64_t begin = 0; begin < array.size(); begin += rows) {
    const std::int64_t count = std::min(rows, array.size() - begin);
    values.resize(static_cast<std::size_t>(count * numbers));
    array.read(begin, count, std::span(values));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span row = std::span(values).subspan(static_cast<std::size_t>(i * numbers));
      if (!call(begin + i, row.first(static_cast<std::size_t>(numbers)))) return;
    }
  }
}

bool has_integers(const RowArray& array) { return array.type().kind != arrays::NumberKind::real; }

/// Whether all numbers are 0 or 1.
bool are_indicators(const RowArray& array) {
  bool are_all = true;
  visit_rows(array, [&](std::int64_t, std::span<const double> row) {
    are_all = std::ranges::all_of(row, [](double value) { return value == 0 || value == 1; });
    return are_all;
  });
  return are_all;
}

std::int64_t ones_in(std::span<const double> row) { return std::ranges::count(row, 1.0); }

}  // namespace

RowTargets::RowTargets(std::shared_ptr<const RowArray> array, const TargetRule& rule, const RowTargets* train)
    : array_(std::move(array)) {
  if (array_) read_all(rule, train);
}

void RowTargets::read_all(const TargetRule& rule, const RowTargets* train) {
  array_->require_written();
  const std::int64_t numbers = array_->row_numbers();
  if (array_->row_shape().size() > 1) refuse_shape();
  using enum TargetRule::TargetNumbers;
  const bool is_known = rule.classes > 0 && rule.numbers == automatic;
  if (numbers == 1) {
    const bool has_classes =
        train != nullptr ? train->kind() == TargetKind::classes
                         : rule.numbers == classes || is_known || (rule.numbers == automatic && has_integers(*array_));
    if (has_classes) return read_classes(rule, train);
  } else {
    const bool can_be_indicators = rule.numbers == classes || is_known || array_->type().bytes == 1;
    const bool are_labels = train != nullptr ? train->kind() != TargetKind::numbers
                                             : rule.numbers != real && can_be_indicators &&
                                                   (rule.numbers == classes || are_indicators(*array_));
    if (are_labels) return read_indicators(rule, train);
  }
  kind_ = TargetKind::numbers;
  width_ = numbers;
  if (train != nullptr && (train->kind() != kind_ || train->width() != width_)) {
    throw DataError(array_->first_place(), "has " + std::to_string(width_) +
                                               " numbers per sample, but the training part has other targets (" +
                                               std::to_string(train->width()) + "); use the same kind of targets");
  }
}

void RowTargets::refuse_shape() const {
  std::vector<std::int64_t> shape = array_->row_shape();
  shape.insert(shape.begin(), array_->size());
  throw DataError(array_->first_place(),
                  "has the shape " + shape_text(shape) +
                      ", but targets have one number or one row of numbers per sample; for arrays as targets, set "
                      "data.name = fields");
}

void RowTargets::read_classes(const TargetRule& rule, const RowTargets* train) {
  kind_ = TargetKind::classes;
  const std::int64_t limit = train != nullptr ? train->width() : rule.classes > 0 ? rule.classes : kMaxLabels;
  const std::string origin = rule.classes > 0   ? rule.classes_origin
                             : train != nullptr ? std::to_string(limit) + " classes of the training part"
                                                : "the maximum";
  visit_rows(*array_, [&](std::int64_t index, std::span<const double> row) {
    const double value = row.front();
    if (value != std::floor(value)) {
      throw DataError(array_->place(index), "the label " + number_text(value) +
                                                " is not an integer, but the targets are classes; correct it, or "
                                                "set data.target_kind = real");
    }
    if (value < 0 || value >= static_cast<double>(limit)) {
      throw DataError(array_->place(index), "the label is " + number_text(value, 17) + ", but labels are from 0 to " +
                                                std::to_string(limit - 1) + " (" + origin + "); correct it");
    }
    labels_.push_back(static_cast<std::int32_t>(value));
    return true;
  });
  width_ = train != nullptr || rule.classes > 0 ? limit : *std::ranges::max_element(labels_) + 1;
}

void RowTargets::read_indicators(const TargetRule& rule, const RowTargets* train) {
  width_ = array_->row_numbers();
  const std::int64_t wanted = train != nullptr ? train->width() : rule.classes;
  if (wanted > 0 && wanted != width_) {
    throw DataError(array_->first_place(), "has " + std::to_string(width_) + " columns, but there are " +
                                               std::to_string(wanted) + " classes; correct data.classes or the data");
  }
  bool has_one_each = true;
  visit_rows(*array_, [&](std::int64_t index, std::span<const double> row) {
    const auto bad = std::ranges::find_if(row, [](double value) { return value != 0 && value != 1; });
    if (bad != row.end()) {
      throw DataError(array_->place(index), "the target " + number_text(*bad) +
                                                " is neither 0 nor 1, but each column is a class; set "
                                                "data.target_kind = real to predict the numbers");
    }
    if (ones_in(row) != 1) has_one_each = false;
    if (has_one_each) labels_.push_back(static_cast<std::int32_t>(std::ranges::find(row, 1.0) - row.begin()));
    if (!has_one_each && train != nullptr && train->kind() == TargetKind::classes) {
      throw DataError(array_->place(index), "has " + std::to_string(ones_in(row)) +
                                                " classes, but each sample of the training part has one; correct it");
    }
    return true;
  });
  const bool are_sets = train != nullptr ? train->kind() == TargetKind::label_sets : !has_one_each;
  kind_ = are_sets ? TargetKind::label_sets : TargetKind::classes;
  if (are_sets) labels_ = {};
}

void RowTargets::read(std::int64_t index, std::span<float> out) const {
  array_->read(index, 1, out);
  require_finite(out, *array_, index);
}

std::uint64_t RowTargets::digest() const {
  const std::uint64_t digest = hash_of({static_cast<std::uint64_t>(kind_), static_cast<std::uint64_t>(width_)});
  if (!array_) return digest;
  const auto bytes = std::as_bytes(std::span(labels_));
  return hash_of(
      {digest, array_->digest(), hash_of({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()})});
}

void require_finite(std::span<const float> values, const RowArray& array, std::int64_t index) {
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  throw DataError(array.place(index), "number " + std::to_string(bad - values.begin()) + " is " + number_text(*bad) +
                                          ", not a finite float32 number; correct the data, or leave the sample out");
}

}  // namespace lockstep::data
