// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/mailbox.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::mpi {
namespace mailbox_test {

/// The letter number `number` of a rank: its length and bytes depend on both.
Mailbox::MailBytes content(int from, int number) {
  static constexpr std::size_t kLengths[] = {0, 1, 1000, 100'000, 3'000'000};
  Mailbox::MailBytes bytes(kLengths[number % 5]);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + number + 31 * from);
  return bytes;
}

std::vector<int> one_host(const Communicator& world) { return std::vector<int>(world.size(), 0); }

TEST(MailboxTest, LettersOfEachRankArriveCompleteAndInOrder) {
  const Communicator world = Communicator::world();
  constexpr int kLetters = 20;
  Mailbox mail(world, one_host(world));
  for (int number = 0; number < kLetters; ++number) {
    for (int peer = 0; peer < world.size(); ++peer) {
      mail.post(peer, number, std::make_shared<Mailbox::MailBytes>(content(world.rank(), number)));
    }
  }
  std::vector<int> next(world.size(), 0);
  for (int left = kLetters * world.size(); left > 0;) {
    const std::optional<Mailbox::Mail> letter = mail.take();
    if (!letter) continue;
    --left;
    EXPECT_EQ(letter->kind, next[letter->from]++);
    EXPECT_TRUE(letter->bytes == content(letter->from, letter->kind)) << letter->kind;
  }
  while (mail.under_way().letters > 0) {
  }
  EXPECT_FALSE(mail.take());
}

TEST(MailboxTest, LettersAreUnderWayUntilTheyAreTaken) {
  const Communicator world = Communicator::world();
  Mailbox mail(world, one_host(world));
  const int peer = (world.rank() + 1) % world.size();
  mail.post(peer, 1, std::make_shared<Mailbox::MailBytes>(100));
  mail.post(peer, 2, std::make_shared<Mailbox::MailBytes>(11));
  EXPECT_EQ(mail.under_way().letters, 2U);
  EXPECT_EQ(mail.under_way().bytes, 111U);
  world.barrier();
  for (int taken = 0; taken < 2;) taken += mail.take() ? 1 : 0;
  while (mail.under_way().letters > 0) {
  }
  EXPECT_EQ(mail.under_way().bytes, 0U);
  world.barrier();
}

TEST(MailboxTest, LettersThatNobodyTakesAreForgotten) {
  const Communicator world = Communicator::world();
  {
    Mailbox mail(world, one_host(world));
    mail.post((world.rank() + 1) % world.size(), 0, std::make_shared<Mailbox::MailBytes>(5'000'000));
    for (int rank = 0; rank < world.size(); ++rank) EXPECT_FALSE(mail.is_gone(rank));
  }
  world.barrier();
}

}  // namespace mailbox_test
}  // namespace lockstep::mpi
