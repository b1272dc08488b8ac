// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/sandbox.hpp"

#include <lockstep/core/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace lockstep::checkpoints {

namespace {

constexpr rlim_t kMaxSeconds = 120;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 20;

/// The memory of this process, in address space.
std::uint64_t memory_in_use() {
  std::uint64_t pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  const bool is_read = file != nullptr && std::fscanf(file, "%lu", &pages) == 1;
  if (file != nullptr) std::fclose(file);
  return is_read ? pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

void limit(int resource, rlim_t max) {
  rlimit limits{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limits) != 0) _exit(1);
  limits.rlim_cur = std::min(max, limits.rlim_max);
  limits.rlim_max = limits.rlim_cur;
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limits) != 0) _exit(1);
}

[[noreturn]] void be_child(int pipe, std::uint64_t memory_bytes, const std::function<void(ChildOutput&)>& work) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGXCPU, SIGTERM, SIGINT}) {
    ::signal(signal, SIG_DFL);  // whatever the program does on them is not for the child
  }
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);  // the C library's last words, when it aborts
  if (memory_bytes != 0) limit(RLIMIT_AS, memory_bytes);
  limit(RLIMIT_NOFILE, 0);  // nothing can be opened from here on; what is open stays so
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, kMaxSeconds);
  ::alarm(kMaxSeconds);
  try {
    ChildOutput output(pipe);
    work(output);
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

/// Ends the child if it is still there, and collects it.
class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
    return status;
  }

 private:
  pid_t process_;
};

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const noexcept { return file_; }
  void close() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

 private:
  int file_;
};

}  // namespace

void ChildOutput::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(pipe_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // the parent is gone
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ChildOutput::write_text(const std::string& text) {
  write_number(text.size());
  write(std::as_bytes(std::span(text)));
}

void ChildInput::read(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::read(pipe_, out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw CheckpointError("it could not be parsed");
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::uint64_t ChildInput::read_number() {
  std::uint64_t number = 0;
  read(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

std::string ChildInput::read_text() {
  const std::uint64_t length = read_number();
  if (length > kMaxTextBytes) throw CheckpointError("it could not be parsed");
  std::string text(length, '\0');
  read(std::as_writable_bytes(std::span(text)));
  return text;
}

void run_in_child(std::uint64_t memory_bytes, const std::function<void(ChildOutput&)>& work,
                  const std::function<void(ChildInput&)>& receive) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw CheckpointError(std::string("pipe failed: ") + std::strerror(errno));
  Descriptor from_child(ends[0]), to_parent(ends[1]);
  const std::uint64_t used = memory_in_use();
  const pid_t process = ::fork();
  if (process < 0) throw CheckpointError(std::string("fork failed: ") + std::strerror(errno));
  if (process == 0) be_child(to_parent.get(), used == 0 ? 0 : used + memory_bytes, work);
  Child child(process);
  to_parent.close();
  std::exception_ptr failure;
  try {
    ChildInput input(from_child.get());
    receive(input);
  } catch (...) {
    failure = std::current_exception();
  }
  from_child.close();  // a child that continues writing ends by this
  const int status = child.wait();
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (failure == nullptr) return;
  if (signal == SIGALRM || signal == SIGXCPU) throw CheckpointError("it took more than 120 s to parse");
  if (signal != 0 && signal != SIGPIPE) {
    throw CheckpointError("it is malformed: the library that reads it crashed in a child process (signal " +
                          std::to_string(signal) + ")");
  }
  std::rethrow_exception(failure);
}

}  // namespace lockstep::checkpoints
