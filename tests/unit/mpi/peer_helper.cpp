// SPDX-License-Identifier: BSD-3-Clause
// usage: peer_helper BACKEND kill | term | abort | exit CODE | vanish CODE | stop SECONDS TIMEOUT_S A job that reduces
// forever, or until rank 1 was stopped and continued. Meanwhile rank 1 is ended by a signal or by itself (vanish: so
// that nothing of the program hears of it), or stopped for so many seconds. Who gets an error prints it and ends the
// job.
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

using namespace lockstep;

constexpr int kVictim = 1;

void end_as(const std::string& way, int code) {
  if (way == "kill") raise(SIGKILL);
  if (way == "term") raise(SIGTERM);
  if (way == "abort") std::abort();
  if (way == "exit") std::exit(code);
  if (way == "vanish") _exit(code);
}

/// Stops this process; a child of it makes it continue.
void stop_for(double seconds) {
  const pid_t me = getpid();
  if (fork() == 0) {
    usleep(static_cast<useconds_t>(seconds * 1e6));
    kill(me, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

void reduce(mpi::Collectives& collectives, int times) {
  const mpi::BucketMemory bucket = collectives.allocate_bucket(1 << 20);
  for (int i = 0; i < times; ++i) {
    collectives.all_reduce(bucket.bytes.data(), bucket.bytes.size() / sizeof(float), DType::float32,
                           mpi::ReduceOp::average);
  }
}

int run(int argc, char** argv) {
  const std::string way = argv[2];
  mpi::Environment environment(&argc, &argv);
  const auto world = mpi::Communicator::world();
  try {
    const int hosts = std::string(argv[1]) == "hierarchical" ? 2 : 0;
    const double timeout_s = way == "stop" ? std::atof(argv[4]) : 30;
    const auto collectives = make_collectives(world, {.backend = argv[1], .timeout_s = timeout_s, .hosts = hosts});
    reduce(*collectives, 50);
    if (world.rank() == kVictim && way == "stop") stop_for(std::atof(argv[3]));
    if (world.rank() == kVictim) end_as(way, argc > 3 ? std::atoi(argv[3]) : 0);
    reduce(*collectives, way == "stop" ? 50 : 1'000'000);
  } catch (const CommError& error) {
    std::fprintf(stderr, "rank %d says: %s\n", world.rank(), error.what());
    std::fflush(nullptr);
    if (way != "stop") std::this_thread::sleep_for(std::chrono::seconds(20));  // mpirun ends the job of a dead rank
    mpi::Environment::abort(error.exit_code());
  }
  world.barrier();
  environment.finish();
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
