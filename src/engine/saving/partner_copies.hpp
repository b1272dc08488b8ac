// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "mpi/shared/mailbox.hpp"

namespace lockstep::engine {

/// Sends copies in memory from the first rank to the first rank of the second host, while training continues. If the
/// first host is lost, the second one has the state. On these two ranks, a thread and a communicator serve this alone.
class PartnerCopies {
 public:
  /// Collective over `world`, the ranks of at least two hosts.
  /// @param host_of_rank  see mpi::Topology
  /// @param folder        of the copies, on both hosts
  PartnerCopies(const mpi::Communicator& world, const std::vector<int>& host_of_rank, std::string folder);
  PartnerCopies(const PartnerCopies&) = delete;
  PartnerCopies& operator=(const PartnerCopies&) = delete;
  /// Abandons what is under way. Not collective.
  ~PartnerCopies();

  /// Sends the copy of `step`. On rank 0; does nothing elsewhere. If another one is being sent, the latest follows it.
  void send(std::int64_t step);
  /// Waits for what is under way. Collective.
  void finish();

 private:
  enum class Role { none, sender, receiver };

  void send_all(const std::stop_token& stop);
  void receive_all(const std::stop_token& stop);
  std::shared_ptr<mpi::Mailbox::MailBytes> letter_of(std::int64_t step) const;

  std::string folder_;
  mpi::Communicator pair_;
  Role role_ = Role::none;
  std::unique_ptr<mpi::Mailbox> mail_;  // only its thread uses it
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<std::int64_t> next_;  // the step that is sent next
  bool is_over_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace lockstep::engine
