// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/write_guard.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <execinfo.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep::parallel {

namespace {

constexpr int kMaxFrames = 32;

std::string sentence_about(const std::string& parameter, int rank) {
  return "lockstep: rank " + std::to_string(rank) + ": ddp.check_writes: parameter '" + parameter +
         "' was written outside of ParameterStore::write, while other ranks read it or have other values. Make the "
         "change inside ParameterStore::write_whole. The job ends; this is the stack of the write:\n";
}

/// Writes to stderr, by means that a signal handler may use.
void write_to_stderr(const std::string& sentence) {
  const char* rest = sentence.data();
  for (std::size_t left = sentence.size(); left > 0;) {
    const ssize_t written = write(STDERR_FILENO, rest, left);
    if (written < 0 && errno != EINTR) return;
    if (written < 0) continue;
    rest += written;
    left -= static_cast<std::size_t>(written);
  }
}

void print_stack() {
  std::array<void*, kMaxFrames> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMaxFrames), STDERR_FILENO);
}

}  // namespace

std::shared_ptr<std::byte> private_pages(std::size_t bytes) {
  const std::size_t length = bytes > 0 ? bytes : 1;
  void* const memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), [length](std::byte* pages) { munmap(pages, length); }};
}

WriteGuard* WriteGuard::first_ = nullptr;
struct sigaction WriteGuard::former_ {};

WriteGuard::WriteGuard(std::span<const optim::FlatBlock> blocks, int rank) {
  for (const optim::FlatBlock& block : blocks) {
    const std::size_t element = size_of(block.dtype);
    if (block.count > 0) ranges_.push_back({block.parameters, static_cast<std::size_t>(block.count) * element});
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const bool is_last = s + 1 == block.segments.size();
      const std::int64_t end = is_last ? block.count : block.segments[s + 1].offset;
      parameters_.push_back({block.parameters + static_cast<std::size_t>(block.segments[s].offset) * element,
                             block.parameters + static_cast<std::size_t>(end) * element,
                             sentence_about(block.segments[s].name, rank)});
    }
  }
  set(false);
  if (first_ == nullptr) {
    std::array<void*, 1> frame{};
    backtrace(frame.data(), 1);  // loads what it needs, which a handler must not
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &former_);
  }
  next_ = first_;
  first_ = this;
}

WriteGuard::~WriteGuard() {
  for (const GuardedRange& range : ranges_) mprotect(range.begin, range.bytes, PROT_READ | PROT_WRITE);
  WriteGuard** link = &first_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  const bool is_ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault;
  if (first_ == nullptr && is_ours) sigaction(SIGSEGV, &former_, nullptr);
}

void WriteGuard::set(bool is_open) {
  for (const GuardedRange& range : ranges_) {
    if (mprotect(range.begin, range.bytes, is_open ? PROT_READ | PROT_WRITE : PROT_READ) == 0) continue;
    throw ConfigError(std::string("ddp.check_writes: the memory pages of parameters cannot be protected: ") +
                      std::strerror(errno) + "; set ddp.check_writes=false");
  }
}

const WriteGuard::GuardedParameter* WriteGuard::find(const void* address) const noexcept {
  for (const GuardedParameter& parameter : parameters_) {
    if (parameter.begin <= address && address < parameter.end) return &parameter;
  }
  return nullptr;
}

/// Runs on the thread that writes, at the instruction that does.
void WriteGuard::on_fault(int signal, siginfo_t* info, void* context) {
  static std::atomic_flag is_told;
  const GuardedParameter* parameter = nullptr;
  if (info->si_code == SEGV_ACCERR) {
    for (const WriteGuard* guard = first_; guard != nullptr && parameter == nullptr; guard = guard->next_) {
      parameter = guard->find(info->si_addr);
    }
  }
  if (parameter == nullptr) return pass_on(signal, info, context);
  if (!is_told.test_and_set()) {
    write_to_stderr(parameter->sentence);
    print_stack();
  }
  mpi::Environment::abort(ExitCode::configuration);
}

void WriteGuard::pass_on(int signal, siginfo_t* info, void* context) {
  if ((former_.sa_flags & SA_SIGINFO) != 0) return former_.sa_sigaction(signal, info, context);
  if (former_.sa_handler != SIG_DFL && former_.sa_handler != SIG_IGN) return former_.sa_handler(signal);
  sigaction(signal, &former_, nullptr);
  raise(signal);  // delivered once this handler has returned
}

}  // namespace lockstep::parallel
