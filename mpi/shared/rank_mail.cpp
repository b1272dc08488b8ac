// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/rank_mail.hpp"

#include <iterator>
#include <utility>

namespace lockstep::mpi {

RankMail::~RankMail() {
  for (Outgoing& letter : sent_) {
    int is_done = 0;
    MPI_Test(&letter.request, &is_done, MPI_STATUS_IGNORE);
    if (is_done != 0) continue;
    comm_.keep_open();
    MPI_Cancel(&letter.request);
    MPI_Request_free(&letter.request);
  }
}

void RankMail::send(int rank, int kind, std::string text) {
  forget_what_has_arrived();
  Outgoing& letter = sent_.emplace_back(Outgoing{.text = std::move(text)});
  check(MPI_Isend(letter.text.data(), static_cast<int>(letter.text.size()), MPI_BYTE, rank, kind, comm_.handle(),
                  &letter.request),
        "MPI_Isend");
}

std::optional<RankMail::ReceivedMail> RankMail::receive() {
  int has_arrived = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.handle(), &has_arrived, &status), "MPI_Iprobe");
  if (has_arrived == 0) return std::nullopt;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  ReceivedMail letter{.from = status.MPI_SOURCE, .kind = status.MPI_TAG, .text = std::string(bytes, '\0')};
  check(MPI_Recv(letter.text.data(), bytes, MPI_BYTE, letter.from, letter.kind, comm_.handle(), MPI_STATUS_IGNORE),
        "MPI_Recv");
  return letter;
}

void RankMail::forget_what_has_arrived() {
  for (auto letter = sent_.begin(); letter != sent_.end();) {
    int is_done = 0;
    check(MPI_Test(&letter->request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    letter = is_done != 0 ? sent_.erase(letter) : std::next(letter);
  }
}

}  // namespace lockstep::mpi
