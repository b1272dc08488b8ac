// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/partner_copies.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/text/text.hpp"
#include "engine/saving/memory_copies.hpp"

namespace lockstep::engine {

namespace {

constexpr int kReceiver = 1;       // its rank among the two
constexpr std::int64_t kEnd = -1;  // the step that ends the sequence of copies
constexpr std::chrono::microseconds kPause(500);

/// The two ranks have color 0: the first of all, and the first that is on another host.
int color_of(const mpi::Communicator& world, const std::vector<int>& host_of_rank) {
  const auto partner = std::ranges::find_if(host_of_rank, [](int host) { return host != 0; });
  return world.is_root() || world.rank() == partner - host_of_rank.begin() ? 0 : 1;
}

}  // namespace

PartnerCopies::PartnerCopies(const mpi::Communicator& world, const std::vector<int>& host_of_rank, std::string folder)
    : folder_(std::move(folder)), pair_(world.split(color_of(world, host_of_rank))) {
  if (color_of(world, host_of_rank) != 0) return;
  role_ = pair_.is_root() ? Role::sender : Role::receiver;
  mail_ = std::make_unique<mpi::Mailbox>(pair_, std::vector<int>{0, 1});
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      role_ == Role::sender ? send_all(stop) : receive_all(stop);
    } catch (const std::exception& error) {
      log::warning("no more copies are sent to the other host: " + message_of(error));
    }
  });
}

PartnerCopies::~PartnerCopies() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void PartnerCopies::send(std::int64_t step) {
  if (role_ != Role::sender) return;
  {
    const std::lock_guard lock(mutex_);
    next_ = step;
  }
  changed_.notify_all();
}

void PartnerCopies::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PartnerCopies::send_all(const std::stop_token& stop) {
  while (true) {
    std::int64_t step = kEnd;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return next_ || is_over_; })) return;
      if (next_) step = *std::exchange(next_, std::nullopt);
    }
    if (const auto letter = letter_of(step)) mail_->post(kReceiver, 0, letter);
    while (mail_->under_way().letters > 0) {
      if (stop.stop_requested()) return;
      std::this_thread::sleep_for(kPause);
    }
    if (step == kEnd) return;
  }
}

/// The step and the bytes of its copy; null if a later copy has replaced it.
std::shared_ptr<mpi::Mailbox::MailBytes> PartnerCopies::letter_of(std::int64_t step) const {
  auto letter = std::make_shared<mpi::Mailbox::MailBytes>(sizeof step);
  std::memcpy(letter->data(), &step, sizeof step);
  if (step == kEnd) return letter;
  try {
    const std::vector<std::byte> bytes = copy_of(folder_, step);
    letter->insert(letter->end(), bytes.begin(), bytes.end());
  } catch (const CheckpointError&) {
    return nullptr;
  }
  return letter;
}

void PartnerCopies::receive_all(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto mail = mail_->take();
    if (!mail) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    std::int64_t step = kEnd;
    std::memcpy(&step, mail->bytes.data(), sizeof step);
    if (step == kEnd) return;
    put_copy(folder_, step, std::span(mail->bytes).subspan(sizeof step));
  }
}

}  // namespace lockstep::engine
