// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/tensor_update.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::optim {

/// The numbers of a captured step that change: learning rates, bias corrections, the loss scale. The recorded work
/// reads them from the memory of the device, and the host writes them there before each launch.
///
/// What a step depends on and cannot read there is declared as fixed: if it changes, the step must be recorded again.
class LiveNumbers {
 public:
  using NumberSource = std::function<double()>;

  static constexpr std::int64_t kMaxNumbers = 16384;

  /// Created before the recording, whose memory would not be written by the host.
  explicit LiveNumbers(at::Device device);

  /// While the step is recorded.
  /// @param value  computes the number for the step at hand, now and in every refresh; whatever it uses outlives this
  /// @return  [] float64 on the device
  /// @throws std::runtime_error  there are kMaxNumbers
  at::Tensor number(NumberSource value);
  void fixed(NumberSource value);
  /// Whether all fixed ones are as they were recorded.
  bool holds() const;
  /// How many numbers and fixed ones were declared.
  std::size_t size() const noexcept { return numbers_.size() + fixed_.size(); }

  /// Queues the numbers of the step at hand, before the launch. The host does not wait.
  /// @return  false: a fixed one has changed, and nothing was queued
  bool refresh();

 private:
  struct Fixed {
    NumberSource value;
    double recorded = 0;
  };

  at::Tensor on_device_;  // [kMaxNumbers] float64
  std::vector<NumberSource> numbers_;
  std::vector<Fixed> fixed_;
};

/// The numbers of one TensorUpdate in a captured step, as functions of its options and its count.
class LiveUpdate {
 public:
  using UpdateNumber = std::function<double(const Options& options, std::int64_t step)>;

  /// @param options, step  outlive `numbers`
  LiveUpdate(LiveNumbers& numbers, const Options& options, const std::int64_t& step)
      : numbers_(&numbers), options_(&options), step_(&step) {}

  at::Tensor number(UpdateNumber value) const {
    return numbers_->number(
        [value = std::move(value), options = options_, step = step_] { return value(*options, *step); });
  }
  void fixed(UpdateNumber value) const {
    numbers_->fixed([value = std::move(value), options = options_, step = step_] { return value(*options, *step); });
  }
  /// Every option but lr, which the forms read as a live number.
  void fix_options() const;

 private:
  LiveNumbers* numbers_;
  const Options* options_;
  const std::int64_t* step_;
};

/// A number in an update by tensors: known to the host or, in a captured step, read from the memory of the device.
class Number {
 public:
  /// @param value  gives it for the update's options and count
  Number(const TensorUpdate& update, const LiveUpdate::UpdateNumber& value)
      : plain_(value(*update.options, update.step)),
        live_(update.live != nullptr ? update.live->number(value) : at::Tensor()) {}

  bool is_live() const noexcept { return live_.defined(); }
  double plain() const noexcept { return plain_; }
  /// [] of this type; only if is_live.
  at::Tensor live(at::ScalarType type) const;

 private:
  double plain_;
  at::Tensor live_;  // undefined = plain
};

using TensorList = std::vector<at::Tensor>;

// Operations with a number. On a CPU the results are the same, bit for bit, whether the number is live or not.

/// Changes tensors of one type in place.
void multiply(const TensorList& list, const Number& factor);
at::Tensor product(const at::Tensor& tensor, const Number& factor);
at::Tensor moved_towards(const at::Tensor& tensor, const at::Tensor& other, const Number& weight);

}  // namespace lockstep::optim
