// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/mailbox.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <utility>

namespace lockstep::mpi {

namespace {

// MPI counts with 31 bits, so a longer letter travels in pieces.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

int tag_of(int kind, bool has_more) { return 2 * kind + (has_more ? 1 : 0); }

bool is_done(MPI_Request& request) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace

Mailbox::Mailbox(const Communicator& comm, const std::vector<int>& host_of_rank)
    : comm_(&comm), watch_(std::make_unique<PeerWatch>(processes_of_host(comm, host_of_rank))) {}

Mailbox::~Mailbox() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  for (Sent& sent : sent_) forget(is_over != 0, sent.request, std::move(sent.letter));
  for (Incoming& incoming : incoming_) {
    forget(is_over != 0, incoming.request, std::make_shared<MailBytes>(std::move(incoming.bytes)));
  }
}

void Mailbox::forget(bool is_mpi_over, MPI_Request& request, std::shared_ptr<const MailBytes> bytes) const {
  int done = 0;
  if (!is_mpi_over && MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) return;
  if (!is_mpi_over) MPI_Request_free(&request);
  comm_->keep_open();
  static auto* const kept = new std::vector<std::shared_ptr<const MailBytes>>;
  kept->push_back(std::move(bytes));
}

void Mailbox::post(int receiver, int kind, std::shared_ptr<const MailBytes> bytes) {
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(kPieceBytes, bytes->size() - begin);
    const bool has_more = begin + count < bytes->size();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Issend(bytes->data() + begin, static_cast<int>(count), MPI_BYTE, receiver, tag_of(kind, has_more),
                     comm_->handle(), &request),
          "MPI_Issend");
    sent_.push_back({.letter = bytes, .bytes = count, .request = request});
    begin += count;
  } while (begin < bytes->size());
}

Mailbox::UnderWay Mailbox::under_way() {
  std::erase_if(sent_, [](Sent& sent) { return is_done(sent.request); });
  UnderWay all{.letters = sent_.size()};
  for (const Sent& sent : sent_) all.bytes += sent.bytes;
  return all;
}

void Mailbox::begin_to_receive() {
  for (;;) {
    int is_there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_->handle(), &is_there, &message, &status), "MPI_Improbe");
    if (is_there == 0) return;
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    Incoming& incoming = incoming_.emplace_back(Incoming{.from = status.MPI_SOURCE,
                                                         .tag = status.MPI_TAG,
                                                         .bytes = MailBytes(static_cast<std::size_t>(count)),
                                                         .request = MPI_REQUEST_NULL});
    check(MPI_Imrecv(incoming.bytes.data(), count, MPI_BYTE, &message, &incoming.request), "MPI_Imrecv");
  }
}

std::optional<Mailbox::Mail> Mailbox::take() {
  begin_to_receive();
  std::set<int> unfinished;  // senders with an earlier piece that has not arrived completely
  for (auto next = incoming_.begin(); next != incoming_.end();) {
    if (unfinished.contains(next->from) || !is_done(next->request)) {
      unfinished.insert(next->from);
      ++next;
      continue;
    }
    const int from = next->from;
    const bool has_more = next->tag == tag_of(next->tag / 2, true);
    MailBytes bytes = std::move(parts_[from]);
    parts_.erase(from);
    if (bytes.empty()) {
      bytes = std::move(next->bytes);
    } else {
      bytes.insert(bytes.end(), next->bytes.begin(), next->bytes.end());
    }
    const int kind = next->tag / 2;
    next = incoming_.erase(next);
    if (!has_more) return Mail{.from = from, .kind = kind, .bytes = std::move(bytes)};
    parts_[from] = std::move(bytes);
  }
  return std::nullopt;
}

}  // namespace lockstep::mpi
