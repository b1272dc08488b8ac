// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/mpi/communicator.hpp>

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <unistd.h>

#include "core/system/status_line.hpp"
#include "core/text/text.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"
#include "mpi/process/waits.hpp"

namespace lockstep::mpi {

namespace {

std::atomic<bool> is_guarded{false};  // true between MPI_Init_thread and finish
std::atomic<bool> is_aborting{false};
std::terminate_handler former_terminate = nullptr;

bool is_mpi_running() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  return is_initialized != 0 && is_finalized == 0;
}

[[noreturn]] void abort_because(const char* reason, ExitCode code) noexcept {
  int rank = 0;
  if (is_mpi_running()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "lockstep: rank %d: %s; ending the job\n", rank, reason);
  Environment::abort(code);
}

void abort_at_exit() {
  if (is_guarded) abort_because("the program called exit before the job ended", ExitCode::internal);
}

[[noreturn]] void abort_at_terminate() {
  if (!is_guarded && former_terminate != nullptr) former_terminate();
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    abort_because(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    abort_because(("uncaught exception: " + message_of(error)).c_str(), ExitCode::internal);
  } catch (...) {
    abort_because("uncaught exception of unknown type", ExitCode::internal);
  }
  abort_because("std::terminate was called", ExitCode::internal);
}

bool has_fabric() {
  std::error_code ignored;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", ignored);
  return devices != std::filesystem::directory_iterator();
}

void refuse(const std::string& fault) {
  if (fault.empty()) return;
  if (is_mpi_running()) MPI_Finalize();
  throw ConfigError(fault);
}

}  // namespace

void check(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  const std::string file_name = std::filesystem::path(file).filename();
  throw CommError(std::string(call) + " failed at " + file_name + ":" + std::to_string(line) + ": " +
                  std::string(text, static_cast<std::size_t>(length)));
}

Environment::Environment(int* argc, char*** argv) {
  const Variables variables = current_variables();
  refuse(launch_fault(variables, 0));
  const HostFacts host{
      .has_fabric = has_fabric(), .cpus = count_cpus(affinity_mask()), .can_read_processes = can_read_processes()};
  for (const auto& [name, value] : start_settings(variables, host)) setenv(name.c_str(), value.c_str(), 0);

  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_MULTIPLE) {
    refuse("this MPI library does not support MPI_THREAD_MULTIPLE; use one that was built with thread support");
  }
  int world_size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  refuse(launch_fault(variables, world_size));

  std::atexit(abort_at_exit);
  former_terminate = std::set_terminate(abort_at_terminate);
  is_guarded = true;
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

std::string launcher() { return launcher_of(current_variables()); }

Environment::~Environment() {
  if (is_guarded) abort_because("main returned before all ranks had finished", ExitCode::internal);
}

void Environment::finish() {
  is_guarded = false;
  std::set_terminate(former_terminate);
  if (has_lost_ranks()) return;  // Open MPI's MPI_Finalize can wait forever for those that have died
  check(MPI_Finalize(), "MPI_Finalize");
}

void Environment::abort(ExitCode code, bool is_remote) noexcept {
  constexpr unsigned kGraceSeconds = 10;
  constexpr useconds_t kPeersMayEndItFirstMicroseconds = 500'000;
  const int status = static_cast<int>(code);
  if (is_aborting.exchange(true)) {  // another thread is at it already
    sleep(kGraceSeconds);
    _exit(status);
  }
  is_guarded = false;
  note_exit(status);
  std::fflush(nullptr);
  // Who waited for a peer that failed knows less than that peer, which is about to end the job with a code of its own.
  if (is_remote || code == ExitCode::communication) usleep(kPeersMayEndItFirstMicroseconds);
  if (is_mpi_running()) MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

}  // namespace lockstep::mpi
