// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/group.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::fake_gpu::nccl {

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::note(ncclResult_t result) {
  if (!is_open() || result == ncclSuccess || result == ncclInProgress || error_ != ncclSuccess) return;
  error_ = result;
}

ncclResult_t Group::add(const std::shared_ptr<FakeCommunicator>& communicator, const NcclOperation& operation) {
  if (!is_open()) return communicator->launch({operation});
  auto launch = std::find_if(launches_.begin(), launches_.end(),
                             [&](const Launch& kept) { return kept.communicator == communicator; });
  if (launch == launches_.end()) launch = launches_.insert(launches_.end(), {communicator, {}});
  launch->operations.push_back(operation);
  return ncclSuccess;
}

ncclResult_t Group::begin(const std::shared_ptr<FakeCommunicator>& communicator,
                          FakeCommunicator::ProgressTest progress) {
  if (!is_open() || !communicator->options().is_blocking) return communicator->begin(std::move(progress));
  begun_.push_back(std::move(progress));
  return ncclSuccess;
}

ncclResult_t Group::end() {
  if (!is_open()) throw Refusal(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--depth_ > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, *this);
  return ended.error_ != ncclSuccess ? ended.error_ : ended.run();
}

void Group::require_one_mode() const {
  const auto has_other_mode = [this](const Launch& launch) {
    return launch.communicator->options().is_blocking != launches_.front().communicator->options().is_blocking;
  };
  if (std::none_of(launches_.begin(), launches_.end(), has_other_mode)) return;
  throw Refusal(ncclInvalidArgument, "Blocking and non-blocking communicators are not allowed in the same group.");
}

ncclResult_t Group::run() {
  require_one_mode();
  complete_begun();
  ncclResult_t result = ncclSuccess;
  for (const Launch& launch : launches_) {
    if (launch.communicator->launch(launch.operations) == ncclInProgress) result = ncclInProgress;
  }
  return result;
}

void Group::complete_begun() {
  while (!begun_.empty()) {
    std::erase_if(begun_, [](const FakeCommunicator::ProgressTest& progress) { return progress(); });
    if (!begun_.empty()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace lockstep::fake_gpu::nccl
