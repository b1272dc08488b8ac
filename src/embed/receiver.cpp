// SPDX-License-Identifier: BSD-3-Clause
#include "embed/receiver.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/text/text.hpp"

namespace lockstep::embed {

Receiver::Receiver(mpi::Mailbox& mail, const std::vector<int>& producers) : mail_(&mail) {
  for (const int rank : producers) peers_.push_back({.rank = rank});
}

std::int64_t Receiver::open() const { return std::ranges::count(peers_, true, &Peer::is_open); }

void Receiver::read(mpi::Mailbox::Mail& letter, const Keep& keep, const MakeWeights& weights) {
  const auto kind = static_cast<LetterKind>(letter.kind);
  if (kind == LetterKind::request) {
    const auto [answer, content] = weights();
    mail_->post(letter.from, static_cast<int>(answer), packed(content));
    return;
  }
  const Letter content = unpacked(std::move(letter.bytes));
  if (kind == LetterKind::closed) {
    dropped_ += content.number;
    std::ranges::find(peers_, letter.from, &Peer::rank)->is_open = false;
    return;
  }
  received_ += content.tensors.front().second.size(0);
  try {
    keep(content.tensors, content.number < 0 ? std::nullopt : std::optional(content.number));
  } catch (const DataError& fault) {
    faults_.push_back(std::make_exception_ptr(
        DataError("samples of the producer on rank " + std::to_string(letter.from) + ": " + message_of(fault))));
  }
}

void Receiver::read_all(const Keep& keep, const MakeWeights& weights) {
  while (std::optional<mpi::Mailbox::Mail> letter = mail_->take()) read(*letter, keep, weights);
}

void Receiver::receive(const Keep& keep, const MakeWeights& weights) {
  read_all(keep, weights);
  mail_->under_way();  // frees what has arrived
  for (Peer& peer : peers_) {
    if (!peer.is_open || !mail_->is_gone(peer.rank)) continue;
    read_all(keep, weights);  // its last letter may have come in between
    if (!peer.is_open) continue;
    peer.is_open = false;
    faults_.push_back(std::make_exception_ptr(CommError("the producer on rank " + std::to_string(peer.rank) +
                                                        " is gone: its process has ended without closing the run")));
  }
}

void Receiver::report_fault() {
  if (faults_.empty()) return;
  const std::exception_ptr fault = faults_.front();
  faults_.pop_front();
  std::rethrow_exception(fault);
}

void Receiver::require_producers(std::int64_t open, std::int64_t received, std::int64_t dropped) {
  if (open > 0 || is_end_reported_) return;
  is_end_reported_ = true;
  throw_agreed(ExitCode::communication, "all producers have closed the run or are gone; they have sent " +
                                            std::to_string(received) + " samples and dropped " +
                                            std::to_string(dropped) +
                                            "; further calls train on the samples that are in the buffers");
}

void Receiver::end(const std::string& reason) noexcept {
  try {
    const std::shared_ptr<const LetterBytes> letter = packed({.text = reason});
    for (const Peer& peer : peers_) {
      if (peer.is_open) mail_->post(peer.rank, static_cast<int>(LetterKind::ended), letter);
    }
    mail_->under_way();
  } catch (const std::exception& failure) {
    log::warning("producers could not be told that the run has ended: " + message_of(failure));
  }
}

}  // namespace lockstep::embed
