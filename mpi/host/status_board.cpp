// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/status_board.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "mpi/shared/job.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kSentenceBytes = 4096;

/// A text that one rank writes once, and others read.
struct Sentence {
  enum State : std::uint32_t { none, writing, written };
  std::atomic<std::uint32_t> state;
  std::int32_t rank;
  ExitCode code;
  std::array<char, kSentenceBytes> text;

  bool write(int from, ExitCode its_code, const std::string& words) noexcept {
    std::uint32_t expected = none;
    if (!state.compare_exchange_strong(expected, writing)) return false;
    rank = from;
    code = its_code;
    words.copy(text.data(), kSentenceBytes - 1);
    state.store(written, std::memory_order_release);
    return true;
  }
  std::optional<StatusBoard::NotedFailure> read() const {
    if (state.load(std::memory_order_acquire) != written) return std::nullopt;
    return StatusBoard::NotedFailure{.rank = rank, .code = code, .message = text.data()};
  }
};

}  // namespace

struct alignas(64) StatusBoard::Board {
  std::atomic<std::uint64_t> asked;
  Sentence failure;
  Sentence verdict;
};

StatusBoard::StatusBoard(Communicator host)
    : host_(std::move(host)),
      memory_(host_, sizeof(Board) + static_cast<std::size_t>(host_.size()) * (sizeof(StatusLine) + kAnswerBytes)),
      board_(reinterpret_cast<Board*>(memory_.bytes().data())),
      lines_(reinterpret_cast<StatusLine*>(board_ + 1), static_cast<std::size_t>(size())),
      answers_(reinterpret_cast<char*>(lines_.data() + lines_.size()), lines_.size() * kAnswerBytes) {
  StatusLine& mine = line(rank());
  mine.pid.store(getpid());
  use_status_line(&mine);
  const ProcessId self = ProcessId::mine();
  std::vector<ProcessId> processes(lines_.size());
  host_.all_gather(std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(processes)));
  watch_ = std::make_unique<PeerWatch>(processes);
}

StatusBoard::~StatusBoard() {
  line(rank()).place.store(packed({.activity = Activity::ended, .since_us = monotonic_us()}));
  use_status_line(nullptr);
}

std::uint64_t StatusBoard::ask() { return board_->asked.fetch_add(1) + 1; }

std::uint64_t StatusBoard::asked() const { return board_->asked.load(std::memory_order_acquire); }

void StatusBoard::answer(std::uint64_t question, const std::string& text) {
  char* const mine = answers_.data() + static_cast<std::size_t>(rank()) * kAnswerBytes;
  const std::size_t count = text.copy(mine, kAnswerBytes - 1);
  mine[count] = '\0';
  line(rank()).answered.store(question, std::memory_order_release);
}

std::optional<std::string> StatusBoard::answer_of(int rank, std::uint64_t question) const {
  if (line(rank).answered.load(std::memory_order_acquire) < question) return std::nullopt;
  const char* const begin = answers_.data() + static_cast<std::size_t>(rank) * kAnswerBytes;
  return std::string(begin, strnlen(begin, kAnswerBytes));
}

bool StatusBoard::note_failure(const NotedFailure& failure) noexcept {
  return board_->failure.write(failure.rank, failure.code, failure.message);
}

std::optional<StatusBoard::NotedFailure> StatusBoard::failure() const { return board_->failure.read(); }

void StatusBoard::conclude(const std::string& verdict, int rank) noexcept {
  board_->verdict.write(rank, ExitCode::done, verdict);
}

std::optional<StatusBoard::NotedFailure> StatusBoard::verdict() const { return board_->verdict.read(); }

std::string call_text(std::uint64_t call) {
  if (call == 0) return "";
  return std::string(name_of(static_cast<CallKind>(kind_of(call)))) + " #" + std::to_string(sequence_of(call));
}

}  // namespace lockstep::mpi
