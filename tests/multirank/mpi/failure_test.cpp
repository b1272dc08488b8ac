// SPDX-License-Identifier: BSD-3-Clause
// Every failure leaves its Collectives unusable, so each test makes its own. One rank has no peer that could fail.
#include <lockstep/core/error.hpp>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <sys/time.h>
#include <thread>

#include "every_backend.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::mpi {
namespace failure_test {

using namespace std::chrono_literals;

/// The text of the CommError that `step` throws; empty when it throws none.
template <class Step>
std::string error_of(Step step) {
  try {
    step();
    return "";
  } catch (const CommError& error) {
    return error.what();
  }
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' is not in '" << text << "'";
  }
}

/// Runs `body(collectives)` with every backend for several ranks, and a short time-out.
/// Case 102: whatever fault `body` makes, every rank knows of it two seconds after the time-out at the latest. Faults
/// of processes are in unit/mpi/lost_peer_test.cpp.
template <class Body>
void with_impatient_backends(double timeout_s, Body body) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const std::string& backend : backends_for(world.size())) {
    SCOPED_TRACE(backend);
    const auto collectives = make_backend(world, backend, timeout_s);
    const double start = MPI_Wtime();
    body(*collectives);
    EXPECT_LT(MPI_Wtime() - start, timeout_s + 2);
    world.barrier();  // nobody is left behind
  }
}

// Cases 98, 103, 115, 120: no rank continues with wrong data, and all say the same forever.
TEST(FailureTest, DifferentCountsAreNamedOnEveryRank) {
  with_impatient_backends(20, [](Collectives& collectives) {
    const BucketMemory bucket = collectives.allocate_bucket(4096);
    const bool is_odd_one = collectives.rank() == collectives.world_size() - 1;
    const std::string error = error_of(
        [&] { collectives.all_reduce(bucket.bytes.data(), is_odd_one ? 99 : 100, DType::float32, ReduceOp::sum); });
    expect_words(
        error, {"the ranks call different operations: rank ", " called all_reduce #2 of 100 float32 (sum)",
                "rank " + std::to_string(collectives.world_size() - 1) + " called all_reduce #2 of 99 float32 (sum)"});
    EXPECT_EQ(error_of([&] { collectives.barrier(); }), error);
    float value = 1;
    EXPECT_EQ(error_of([&] { collectives.all_reduce(&value, 1, DType::float32, ReduceOp::sum); }), error);
  });
}

/// The answer that each rank says when only the last one does as `odd` says.
void expect_disagreement(const std::function<void(Collectives&)>& even, const std::function<void(Collectives&)>& odd,
                         const std::vector<std::string>& words) {
  with_impatient_backends(20, [&](Collectives& collectives) {
    const bool is_odd_one = collectives.rank() == collectives.world_size() - 1;
    expect_words(error_of([&] { (is_odd_one ? odd : even)(collectives); }), words);
  });
}

// Case 115.
TEST(FailureTest, DifferentTypesOperationsAndRootsAreNamedOnEveryRank) {
  std::vector<std::byte> values(16);
  const auto reduce = [&](DType dtype, ReduceOp op) {
    return [&values, dtype, op](Collectives& collectives) { collectives.all_reduce(values.data(), 2, dtype, op); };
  };
  const auto broadcast = [&](int root) {
    return [&values, root](Collectives& collectives) { collectives.broadcast(values, root); };
  };
  const auto float32_sum = reduce(DType::float32, ReduceOp::sum);
  expect_disagreement(float32_sum, reduce(DType::float64, ReduceOp::sum), {"of 2 float32 (sum)", "of 2 float64 (sum)"});
  expect_disagreement(float32_sum, reduce(DType::float32, ReduceOp::max), {"of 2 float32 (sum)", "of 2 float32 (max)"});
  expect_disagreement(broadcast(0), broadcast(1), {"of 16 bytes from rank 0", "of 16 bytes from rank 1"});
}

// Case 124: a rank that has left its peers to it contributes to their reductions, but cannot be the root.
TEST(FailureTest, ABroadcastFromARankThatOnlyContributesToReductionsIsAnErrorOnEveryRank) {
  const auto world = Communicator::world();
  const int last = world.size() - 1;
  std::vector<float> values(4, -0.0F);  // the neutral element of a sum
  expect_disagreement(
      [&](Collectives& collectives) { collectives.broadcast(std::as_writable_bytes(std::span(values)), last); },
      [&](Collectives& collectives) {
        collectives.all_reduce(values.data(), values.size(), DType::float32, ReduceOp::sum);
      },
      {"broadcast #1 of 16 bytes from rank " + std::to_string(last), "all_reduce #1 of 4 float32"});
}

// Case 101.
TEST(FailureTest, ABarrierAmongReductionsIsFoundAtOnce) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const std::string& backend : backends_for(world.size())) {
    double min_s = 1;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto collectives = make_backend(world, backend);
      float value = 1;
      world.barrier();
      const double start = MPI_Wtime();
      const std::string error = error_of([&] {
        if (world.rank() == 0) return collectives->barrier();
        collectives->all_reduce(&value, 1, DType::float32, ReduceOp::sum);
      });
      min_s = std::min(min_s, MPI_Wtime() - start);
      expect_words(error, {"rank 0 called barrier #1", "called all_reduce #1 of 1 float32 (sum)"});
      world.barrier();
    }
    EXPECT_LT(min_s, 0.1) << backend;  // the best of three on a busy host
  }
}

// Case 100.
TEST(FailureTest, ABarrierNamesAllThatAreAbsent) {
  const auto world = Communicator::world();
  if (world.size() < 3) return;
  for (const std::string backend : {"shm", "mpi"}) {
    SCOPED_TRACE(backend);
    const auto collectives = make_backend(world, backend, 0.5);
    collectives->barrier();
    std::string error;
    if (world.rank() % 2 == 0) error = error_of([&] { collectives->barrier(); });
    world.barrier();
    if (world.rank() % 2 == 1) continue;
    expect_words(error, {"in barrier #2 for rank 1"});
    if (world.size() == 4) expect_words(error, {", rank 3"});
  }
}

// Case 122.
TEST(FailureTest, GroupsThatAreUsedInDifferentOrdersAreFoundWithoutATimeOut) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const std::string& backend : backends_for(world.size())) {
    SCOPED_TRACE(backend);
    std::vector<std::unique_ptr<Collectives>> groups;
    for (int i = 0; i < 3; ++i) {
      groups.push_back(make_backend(world, backend, 5));
      groups.back()->barrier();
    }
    const std::string error = error_of([&] {
      for (int i = 0; i < 3; ++i) groups[(world.rank() + i) % 3]->barrier();
    });
    const bool is_found = error.find("in barrier #2, while rank ") != std::string::npos;
    // The third of three ranks on two hosts hears of nothing, for nobody waits for it.
    const bool may_be_late = backend == "hierarchical" && world.size() == 3 && world.rank() == 2;
    EXPECT_TRUE(is_found || may_be_late) << error;
    EXPECT_NE(error, "");
    world.barrier();
  }
}

TEST(FailureTest, GroupsOfDifferentThreadsAreNotTakenForCrossed) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const std::string& backend : backends_for(world.size())) {
    SCOPED_TRACE(backend);
    const auto one = make_backend(world, backend);
    const auto other = make_backend(world, backend);
    one->barrier();
    // The worker is late on rank 0, elsewhere it is the main thread: each waits long for what is still to come.
    std::thread worker([&] {
      if (world.rank() == 0) std::this_thread::sleep_for(800ms);
      EXPECT_EQ(error_of([&] { other->barrier(); }), "");
    });
    if (world.rank() != 0) std::this_thread::sleep_for(800ms);
    EXPECT_EQ(error_of([&] { one->barrier(); }), "");
    worker.join();
    world.barrier();
  }
}

/// Interrupts this process every 0.3 ms for 0.2 ms, wherever it is.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
      nanosleep(&pause, nullptr);
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    set_interval(300);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions() {
    set_interval(0);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void set_interval(int microseconds) {
    const itimerval timer{.it_interval = {.tv_sec = 0, .tv_usec = microseconds},
                          .it_value = {.tv_sec = 0, .tv_usec = microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }

  struct sigaction before_ {};
};

// A rank that looks where a peer is may be interrupted, and the peer may meanwhile do its call and wait in the next.
TEST(FailureTest, GroupsThatAPeerHasGoneOnToAreNotTakenForCrossed) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  const auto one = make_backend(world, "shm");
  const auto other = make_backend(world, "shm");
  const Interruptions interruptions;
  const std::string error = error_of([&] {
    for (int i = 0; i < 20000; ++i) (i % 2 == 0 ? one : other)->barrier();
  });
  EXPECT_EQ(error, "");
}

// Case 125.
TEST(FailureTest, AfterAFailureANewObjectServes) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const std::string& backend : backends_for(world.size())) {
    for (int life = 0; life < 3; ++life) {
      const auto collectives = make_backend(world, backend);
      float value = 1;
      collectives->all_reduce(&value, 1, DType::float32, ReduceOp::sum);
      EXPECT_EQ(value, static_cast<float>(world.size()));
      EXPECT_NE(error_of([&] {
                  if (world.rank() == 0) return collectives->barrier();
                  collectives->all_reduce(&value, 1, DType::float32, ReduceOp::sum);
                }),
                "");
    }
  }
}

TEST(FailureTest, DifferentCountsAreNamedBeforeARangeIsReduced) {
  with_impatient_backends(20, [](Collectives& collectives) {
    const BucketMemory bucket = collectives.allocate_bucket(4096);
    const std::size_t count = collectives.rank() == 0 ? 99 : 100;
    const Ticket ticket = collectives.start_reduce_ranges(bucket.bytes.data(), count, DType::float32, ReduceOp::sum);
    bool is_called = false;
    const std::string error = error_of(
        [&] { collectives.reduce_range(ticket, {.begin = 0, .count = 10}, [&](auto...) { is_called = true; }); });
    expect_words(error,
                 {"rank 0 called reduce_ranges #2 of 99 float32", "rank 1 called reduce_ranges #2 of 100 float32"});
    EXPECT_FALSE(is_called);
    EXPECT_NE(error_of([&] { collectives.barrier(); }), "") << "still usable";
  });
}

TEST(FailureTest, DifferentDealsOfLanesAreNamedOnEveryRank) {
  with_impatient_backends(20, [](Collectives& collectives) {
    const int size = collectives.world_size();
    std::vector<int> first_lane(static_cast<std::size_t>(size) + 1);
    for (int rank = 0; rank <= size; ++rank) first_lane[static_cast<std::size_t>(rank)] = rank;
    first_lane.back() = size + collectives.rank() % 2;
    const LaneTree tree(first_lane);
    std::vector<float> nodes(4);
    const std::string error = error_of([&] {
      collectives.wait(start_lane_reduce(collectives, nodes.data(), 1, 1, DType::float32, ReduceOp::average, tree));
    });
    const std::string call = " called all_reduce #1 of 1 float32 (average) over ";
    expect_words(error, {"rank 0" + call + std::to_string(size), "rank 1" + call + std::to_string(size + 1)});
  });
}

TEST(FailureTest, DifferentOperationsAreNamedOnEveryRank) {
  with_impatient_backends(20, [](Collectives& collectives) {
    float value = 0;
    const std::string error = error_of([&] {
      if (collectives.rank() == 0) return collectives.broadcast(std::as_writable_bytes(std::span(&value, 1)), 0);
      collectives.all_reduce(&value, 1, DType::float32, ReduceOp::max);
    });
    expect_words(error,
                 {"rank 0 called broadcast #1 of 4 bytes from rank 0", "rank 1 called all_reduce #1 of 1 float32"});
  });
}

TEST(FailureTest, DifferentBucketSizesAreNamedOnEveryRank) {
  with_impatient_backends(20, [](Collectives& collectives) {
    const std::string error = error_of([&] { collectives.allocate_bucket(64 + 64 * (collectives.rank() % 2)); });
    expect_words(error,
                 {"rank 0 called allocate_bucket #1 of 64 bytes", "rank 1 called allocate_bucket #1 of 128 bytes"});
  });
}

TEST(FailureTest, ALateRankIsNamedByThoseWhoWaitAndGetsAnErrorItself) {
  with_impatient_backends(0.3, [](Collectives& collectives) {
    const int late = collectives.world_size() - 1;
    float value = 1;
    collectives.barrier();
    if (collectives.rank() == late) std::this_thread::sleep_for(700ms);
    const std::string error = error_of([&] { collectives.all_reduce(&value, 1, DType::float32, ReduceOp::sum); });
    if (collectives.rank() == late) {
      expect_words(error, {"waited 0."});
    } else {
      expect_words(error, {"in all_reduce #2 of 1 float32 (sum)"});
      const bool is_on_host = error.find("rank " + std::to_string(late)) != std::string::npos;
      const bool is_elsewhere =
          error.find("the host of rank ") != std::string::npos;  // such a place: its own ranks know better
      EXPECT_TRUE(is_on_host || (collectives.name() == "hierarchical" && is_elsewhere)) << error;
    }
  });
}

TEST(FailureTest, ShmSaysWhereALateRankWasSeenLast) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  const auto collectives = make_collectives(world, {.backend = "shm", .timeout_s = 0.3});
  collectives->barrier();
  if (world.rank() == 1) std::this_thread::sleep_for(600ms);
  const std::string error = error_of([&] { collectives->barrier(); });
  expect_words(error, {" waited 0.3 s in barrier #2 for rank 1 (last seen in barrier #1)"});
}

TEST(FailureTest, PeersThrowWhatARankGivesUpFor) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  for (const char* backend : {"shm", "hierarchical"}) {
    for (const bool wait_in_part : {false, true}) {
      const auto collectives = make_collectives(world, {.backend = backend, .timeout_s = 60});
      const auto part = collectives->split(0);
      Collectives& awaited = wait_in_part ? *part : *collectives;
      awaited.barrier();
      if (world.rank() == 1) {
        std::this_thread::sleep_for(50ms);  // the others are asleep by then
        collectives->give_up(ExitCode::data, "sample 3 is torn");
      } else {
        try {
          awaited.barrier();
          ADD_FAILURE() << "passed";
        } catch (const DataError& error) {
          EXPECT_STREQ(error.what(), "rank 1: sample 3 is torn");
          EXPECT_TRUE(error.is_remote());
          EXPECT_FALSE(error.is_agreed());
        }
        EXPECT_THROW(awaited.barrier(), Error);
      }
      world.barrier();
    }
  }
}

TEST(FailureTest, ARankThatDropsItsCollectivesEndsTheWaitOfTheOthersAtOnce) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  auto collectives = make_collectives(world, {.backend = "shm", .timeout_s = 60});
  collectives->barrier();
  if (world.rank() == 1) {
    std::this_thread::sleep_for(50ms);  // the others are asleep by then
    collectives.reset();
  } else {
    const std::string error = error_of([&] { collectives->barrier(); });
    expect_words(error, {"rank 1 (last seen in barrier #1) has ended"});
  }
  world.barrier();
}

}  // namespace failure_test
}  // namespace lockstep::mpi
