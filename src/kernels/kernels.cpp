// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/kernels.hpp"

#include <atomic>

#include "kernels/measured_ratios.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::size_t index_of(ProcessorLevel level) { return static_cast<std::size_t>(level); }

constexpr std::size_t kLevels = index_of(ProcessorLevel::amx) + 1;

/// Whether a kernel is used on this processor, for each level and kernel.
using Choices = std::array<std::array<bool, kKernelRows.size()>, kLevels>;

Choices choices_of_this_processor() {
  Choices choices{};
  for (std::size_t level = 0; level < kLevels; ++level) {
    for (const KernelRow& row : kKernelRows) {
      choices[level][static_cast<std::size_t>(row.kernel)] =
          is_chosen(measured_ratios(), row.kernel, static_cast<ProcessorLevel>(level), processor_vendor());
    }
  }
  return choices;
}

// States of the choice of a kernel.
constexpr int kByTable = 0;
constexpr int kForcedOn = 1;
constexpr int kForcedOff = 2;

std::atomic<int>& forced_choice(Kernel kernel) {
  static std::array<std::atomic<int>, kKernelRows.size()> choices{};
  return choices[static_cast<std::size_t>(kernel)];
}

}  // namespace

const MeasuredRatio* find_ratio(std::initializer_list<MeasuredRatio> table, Kernel kernel, ProcessorLevel level,
                                ProcessorVendor vendor) {
  const MeasuredRatio* found = nullptr;
  for (const MeasuredRatio& row : table) {
    if (row.kernel != kernel || row.level != level) continue;
    if (row.vendor != vendor && row_of(kernel).is_vendors) continue;
    if (found == nullptr || (row.vendor == vendor && found->vendor != vendor)) found = &row;
  }
  if (found != nullptr || level != ProcessorLevel::amx) return found;
  return find_ratio(table, kernel, ProcessorLevel::avx512, vendor);
}

bool is_chosen(std::initializer_list<MeasuredRatio> table, Kernel kernel, ProcessorLevel level,
               ProcessorVendor vendor) {
  if (const MeasuredRatio* const row = find_ratio(table, kernel, level, vendor)) return row->ratio < 1;
  const KernelRow& row = row_of(kernel);
  return row.first <= level && level <= row.last;
}

std::initializer_list<MeasuredRatio> measured_ratios() {
#if defined(__x86_64__)
  return kMeasuredRatios;
#else
  return {};
#endif
}

bool is_used(Kernel kernel) {
  const int forced = forced_choice(kernel).load(std::memory_order_relaxed);
  if (forced != kByTable) return forced == kForcedOn;
  static const Choices choices = choices_of_this_processor();
  return choices[index_of(processor_level())][static_cast<std::size_t>(kernel)];
}

ScopedChoice::ScopedChoice(Kernel kernel, bool is_used)
    : kernel_(kernel), before_(forced_choice(kernel).exchange(is_used ? kForcedOn : kForcedOff)) {}

ScopedChoice::~ScopedChoice() { forced_choice(kernel_) = before_; }

}  // namespace lockstep::kernels
