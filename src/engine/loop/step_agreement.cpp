// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/step_agreement.hpp"

#include <cstddef>
#include <exception>

#include "engine/steps/perf_timer.hpp"

namespace lockstep::engine {

namespace {

// Bits of what rank 0 requests.
constexpr unsigned kSave = 1;
constexpr unsigned kEnd = 2;
constexpr unsigned kEvaluation = 4;

constexpr std::size_t kNumbers = 4;  // the losses follow them

}  // namespace

std::vector<double> pack(const StepWishes& wishes, bool is_root, std::span<const double> losses) {
  const unsigned of_root = (wishes.saves ? kSave : 0) + (wishes.ends ? kEnd : 0) + (wishes.evaluates ? kEvaluation : 0);
  std::vector<double> numbers = {wishes.stops ? 1.0 : 0.0, is_root ? static_cast<double>(of_root) : 0.0,
                                 wishes.has_failed ? 1.0 : 0.0, wishes.reads_report ? 1.0 : 0.0};
  numbers.insert(numbers.end(), losses.begin(), losses.end());
  return numbers;
}

StepAgreement unpack(std::span<const double> sums) {
  const auto of_root = static_cast<unsigned>(sums[1]);
  return {.stops = sums[0] > 0,
          .saves = (of_root & kSave) != 0,
          .ends = (of_root & kEnd) != 0,
          .evaluates = (of_root & kEvaluation) != 0,
          .has_failed = sums[2] > 0,
          .readers = static_cast<int>(sums[3]),
          .losses = {sums.begin() + kNumbers, sums.end()}};
}

StepAgreement agree(const RunRequests& requests, std::span<const double> losses, bool reads_report,
                    const mpi::Communicator& world, mpi::Collectives& collectives, PerfStats* perf) {
  const StepWishes wishes{.stops = RunRequests::is_stop_requested(),
                          .saves = requests.is_save_requested(),
                          .ends = requests.is_end_requested(),
                          .evaluates = requests.is_evaluation_requested(),
                          .has_failed = requests.failure() != nullptr,
                          .reads_report = reads_report};
  std::vector<double> numbers = pack(wishes, world.is_root(), losses);
  {
    const PerfScope timer("loss_all_reduce", perf);
    collectives.all_reduce(numbers.data(), numbers.size(), DType::float64, mpi::ReduceOp::sum);
  }
  StepAgreement agreed = unpack(numbers);
  if (agreed.has_failed) {
    world.all_or_throw([&requests] {
      if (requests.failure()) std::rethrow_exception(requests.failure());
    });
  }
  return agreed;
}

}  // namespace lockstep::engine
