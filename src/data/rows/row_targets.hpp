// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/rows/row_array.hpp"

namespace lockstep::data {

/// The keys that say what targets are.
struct TargetRule {
  enum class TargetNumbers {
    automatic,  ///< classes if integers, or if their number is known
    classes,
    real
  };
  TargetNumbers numbers = TargetNumbers::automatic;
  std::int64_t classes = 0;         ///< 0 = unknown
  std::string classes_origin = "";  ///< origin of `classes` in messages, such as "data.classes = 4"
};

/// The targets of samples. Classes are in memory, other targets are read from the files.
class RowTargets {
 public:
  /// @param array  null = the samples have no targets
  /// @param train  targets of the training part, which determine the kind; null = these are they
  /// @throws DataError  a target is not what the rule says; the message names the sample
  RowTargets(std::shared_ptr<const RowArray> array, const TargetRule& rule, const RowTargets* train);

  TargetKind kind() const noexcept { return kind_; }
  /// null = the samples have no targets
  const RowArray* array() const noexcept { return array_.get(); }
  /// Number of classes or labels, or of the numbers of a sample.
  std::int64_t width() const noexcept { return width_; }
  /// The class of a sample, for TargetKind::classes.
  std::int64_t label(std::int64_t index) const { return labels_[static_cast<std::size_t>(index)]; }
  /// Reads the numbers of a sample, or 1 for each of its labels and 0 for the others.
  /// @param out  width() numbers
  /// @throws DataError  a number is not finite, or the file is damaged
  void read(std::int64_t index, std::span<float> out) const;
  /// The array that is read for each sample; null = the targets are in memory.
  const RowArray* array_of_samples() const noexcept {
    return kind_ == TargetKind::classes || kind_ == TargetKind::none ? nullptr : array_.get();
  }
  std::uint64_t digest() const;

 private:
  void read_all(const TargetRule& rule, const RowTargets* train);
  void read_classes(const TargetRule& rule, const RowTargets* train);
  void read_indicators(const TargetRule& rule, const RowTargets* train);
  [[noreturn]] void refuse_shape() const;

  std::shared_ptr<const RowArray> array_;
  TargetKind kind_ = TargetKind::none;
  std::int64_t width_ = 0;
  std::vector<std::int32_t> labels_;
};

/// @throws DataError  a value of a sample is NaN or infinite
void require_finite(std::span<const float> values, const RowArray& array, std::int64_t index);

}  // namespace lockstep::data
