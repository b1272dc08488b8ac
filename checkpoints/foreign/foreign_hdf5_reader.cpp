// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "checkpoints/foreign/foreign_hdf5.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

// --- a child process for a library that may crash on what it reads ---

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

/// Reads what the child writes; in the parent. The child is not believed: a length is checked before memory is taken.
class ChildInput {
 public:
  explicit ChildInput(int pipe) : pipe_(pipe) {}

  /// @throws CheckpointError  without a path: the child ended before that
  void read(std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t got = ::read(pipe_, out.data(), out.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw CheckpointError("it could not be parsed");
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }

  std::uint64_t read_number() {
    std::uint64_t number = 0;
    read(std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }

  std::string read_text() {
    const std::uint64_t length = read_number();
    if (length > kMaxTextBytes) throw CheckpointError("it could not be parsed");
    std::string text(length, '\0');
    read(std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  int pipe_;
};

/// Runs `work` in a child that can open no file and write none, with bounds on its time and memory, and `receive` here
/// meanwhile.
///
/// The child is a fork of this process, made while no other thread uses HDF5: `work`, which is inside that session,
/// must not wait for another thread, nor use MPI or a GPU. Its exceptions end the child without a word: it must report
/// them through its output.
/// @param memory_bytes  what the child may take beyond what this process has
/// @throws CheckpointError  without a path: the child crashed, or was stopped for taking too much; else what `receive`
///                          throws
void run_in_child(std::uint64_t memory_bytes, const std::function<void(ChildOutput&)>& work,
                  const std::function<void(ChildInput&)>& receive) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw CheckpointError(std::string("pipe failed: ") + std::strerror(errno));
  Descriptor from_child(ends[0]), to_parent(ends[1]);
  const std::uint64_t used = memory_in_use();
  std::optional<HdfSession> session(std::in_place);
  const pid_t process = ::fork();
  if (process < 0) throw CheckpointError(std::string("fork failed: ") + std::strerror(errno));
  if (process == 0) be_child(to_parent.get(), used == 0 ? 0 : used + memory_bytes, work);
  Child child(process);
  session.reset();
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

// --- its messages ---

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// Builds the archive from the messages of the child, and checks all sizes.
class Receiver {
 public:
  explicit Receiver(const ByteSource& source) : source_(source), expansion_(source) {
    archive_.set_origin(source.path());
  }

  void receive(ChildInput& input) {
    for (std::size_t count = 0;; ++count) {
      const auto event = static_cast<Hdf5Event>(input.read_number());
      if (event == Hdf5Event::end) return;
      if (count > 64 * kMaxObjects) source_.refuse("it contains too many objects");
      receive(event, input);
    }
  }
  Archive take() { return std::move(archive_); }

 private:
  void receive(Hdf5Event event, ChildInput& input) {
    const std::string path = input.read_text();
    switch (event) {
      case Hdf5Event::group:
        return archive_.add_group(path);
      case Hdf5Event::array:
        return receive_array(path, input);
      case Hdf5Event::alias:
        return link_array(source_, archive_, path, input.read_text());
      case Hdf5Event::integer:
      case Hdf5Event::real:
      case Hdf5Event::text:
        return receive_attribute(event, path, input);
      case Hdf5Event::failure:
        return receive_failure(path, input);
      default:
        source_.refuse("it could not be parsed");
    }
  }

  void receive_failure(const std::string& object, ChildInput& input) {
    const std::string message = input.read_text();
    const std::uint64_t fault = input.read_number();
    const bool is_known = fault <= static_cast<std::uint64_t>(CheckpointFault::refused);
    source_.refuse(object, message, is_known ? static_cast<CheckpointFault>(fault) : CheckpointFault::damaged);
  }

  void receive_array(const std::string& path, ChildInput& input) {
    const std::uint64_t dtype = input.read_number(), rank = input.read_number();
    if (dtype >= kAllDTypes.size() || rank > kMaxDimensions) source_.refuse(path, "it could not be parsed");
    Array array{.dtype = kAllDTypes.at(dtype), .shape = {}, .bytes = {}, .owner = nullptr};
    for (std::uint64_t i = 0; i < rank; ++i) array.shape.push_back(static_cast<std::int64_t>(input.read_number()));
    const std::uint64_t nbytes = input.read_number();
    if (nbytes_of(array.dtype, array.shape) != nbytes) source_.refuse(path, "its shape does not fit its bytes");
    expansion_.take(path, nbytes);
    const std::shared_ptr<std::byte> memory = allocate_aligned(nbytes);
    input.read({memory.get(), nbytes});
    array.bytes = {memory.get(), nbytes};
    array.owner = memory;
    put_array(source_, archive_, path, std::move(array));
  }

  void receive_attribute(Hdf5Event event, const std::string& path, ChildInput& input) {
    const std::string name = input.read_text();
    Attribute value;
    if (event == Hdf5Event::text) {
      value = input.read_text();
    } else {
      const std::uint64_t bits = input.read_number();
      if (event == Hdf5Event::integer) value = static_cast<std::int64_t>(bits);
      if (event == Hdf5Event::real) value = std::bit_cast<double>(bits);
    }
    put_attribute(source_, archive_, path, name, std::move(value), path);
  }

  const ByteSource& source_;
  Expansion expansion_;
  Archive archive_;
};

/// Whether HDF5's part ends before the file does, by a superblock of version 2 or 3: where the user block has the size
/// of an envelope, that is a checkpoint which lost its first bytes.
bool has_more_behind(const ByteSource& source, std::uint64_t superblock) {
  constexpr std::uint64_t kVersion = 8, kEnd = 28, kBytes = 48;
  if (superblock + kBytes > source.size()) return true;
  std::array<std::byte, kBytes> bytes{};
  source.read_to(superblock, bytes);
  const auto end = load<std::uint64_t>(bytes, kEnd);
  return bytes[kVersion] >= std::byte{2} && end != source.size() && end != source.size() - superblock;
}

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

bool is_hdf5(const ByteSource& source) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1A\n";
  std::array<std::byte, 8> head{};
  for (std::uint64_t position = 0; position + head.size() <= source.size();
       position = position == 0 ? 512 : 2 * position) {
    source.read_to(position, head);
    const bool is_here = std::memcmp(head.data(), kSignature.data(), head.size()) == 0;
    if (is_here) return position != kEnvelopeBytes || !has_more_behind(source, position);
  }
  return false;
}

Archive read_foreign_hdf5(const DiskSource& source) {
  const OwnedBytes content = source.map();  // should the file be cut off meanwhile, only the child gets a SIGBUS
  if (content.bytes.empty()) source.refuse(std::string("mmap failed: ") + std::strerror(errno));
  Receiver receiver(source);
  const std::uint64_t memory =
      kGiB + std::min(source.size(), kGiB) * 100;  // the limit is that of Expansion, within reason
  try {
    run_in_child(
        memory, [&](ChildOutput& output) { walk_hdf5(source, content.bytes, output); },
        [&](ChildInput& input) { receiver.receive(input); });
  } catch (const CheckpointError& error) {
    if (!error.path().empty()) throw;
    source.refuse(error.what(), error.fault());
  }
  return receiver.take();
}

}  // namespace lockstep::checkpoints
