// SPDX-License-Identifier: BSD-3-Clause
// A job whose last rank leaves in the way that the first argument names, while the others wait for it.
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

using namespace lockstep;

int leave(const std::string& way) {
  if (way == "exit") std::exit(0);
  if (way == "throw") throw std::runtime_error("out of luck");
  if (way == "data-error") throw DataError("train.bin", "is truncated");
  if (way == "thread") std::thread([] { throw std::runtime_error("worker failed"); }).join();
  if (way == "abort") mpi::Environment::abort(ExitCode::numeric);
  return 0;  // "return"
}

int run(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "finish";
  mpi::Environment environment(&argc, &argv);
  {
    const auto world = mpi::Communicator::world();
    if (way == "settings" && world.is_root()) std::printf("pml=%s\n", std::getenv("OMPI_MCA_pml"));
    const bool is_good_end = way == "finish" || way == "settings";
    if (!is_good_end && world.rank() == world.size() - 1) return leave(way);
    world.barrier();
  }
  environment.finish();
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
