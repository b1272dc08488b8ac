// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/stacks.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/system/status_line.hpp"

namespace lockstep {

namespace {

constexpr int kFrames = 48;
constexpr int kOwnFrames = 2;  // the handler, and that by which the kernel returns from it
constexpr std::size_t kNameLength = 160;

/// The signal with which a thread is asked for its stack: those below are used by the C library.
int stack_signal() { return SIGRTMIN + 7; }

/// One thread at a time writes its stack here.
struct StackAnswer {
  std::atomic<int> wanted{0};  ///< thread that is asked; 0 = none
  std::atomic<int> count{-1};  ///< frames, once they are here
  std::array<void*, kFrames> frames{};
};

StackAnswer stack_answer;

extern "C" void on_stack_signal(int) {
  const int before = errno;
  int wanted = static_cast<int>(syscall(SYS_gettid));
  // A thread that answers after its time is over finds that another one is asked.
  if (stack_answer.wanted.compare_exchange_strong(wanted, 0)) {
    stack_answer.count.store(backtrace(stack_answer.frames.data(), kFrames), std::memory_order_release);
  }
  errno = before;
}

/// The functions of the program itself, of which the dynamic linker does not know the names.
class ProgramSymbols {
 public:
  ProgramSymbols() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (fstat(file, &status) == 0) read(file, static_cast<std::size_t>(status.st_size));
    close(file);
  }

  /// The mangled name of the function with this address in the file; "" = none.
  std::string name_at(std::uint64_t address) const {
    auto after = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
    if (after == functions_.begin()) return "";
    const Function& found = *std::prev(after);
    return address < found.begin + found.size ? found.name : "";
  }

 private:
  struct Function {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::string name;
  };

  void read(int file, std::size_t bytes) {
    void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) return;
    const auto* const begin = static_cast<const char*>(mapped);
    const auto* const header = static_cast<const Elf64_Ehdr*>(mapped);
    const bool is_elf = bytes > sizeof *header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                        header->e_ident[EI_CLASS] == ELFCLASS64 &&
                        header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) <= bytes;
    if (is_elf) {
      const std::span sections(reinterpret_cast<const Elf64_Shdr*>(begin + header->e_shoff), header->e_shnum);
      for (const Elf64_Shdr& section : sections) {
        if (section.sh_type == SHT_SYMTAB && section.sh_link < sections.size()) {
          add(begin, bytes, section, sections[section.sh_link]);
        }
      }
    }
    munmap(mapped, bytes);
    std::ranges::sort(functions_, {}, &Function::begin);
  }

  void add(const char* begin, std::size_t bytes, const Elf64_Shdr& table, const Elf64_Shdr& names) {
    if (table.sh_offset + table.sh_size > bytes || names.sh_offset + names.sh_size > bytes) return;
    const std::span symbols(reinterpret_cast<const Elf64_Sym*>(begin + table.sh_offset),
                            table.sh_size / sizeof(Elf64_Sym));
    for (const Elf64_Sym& symbol : symbols) {
      const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0;
      if (!is_function || symbol.st_name >= names.sh_size) continue;
      functions_.push_back({symbol.st_value, symbol.st_size, begin + names.sh_offset + symbol.st_name});
    }
  }

  std::vector<Function> functions_;
};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  std::string readable = status == 0 && text ? text.get() : name;
  if (readable.size() > kNameLength) readable = readable.substr(0, kNameLength - 3) + "...";
  return readable;
}

/// "libc.so.6+0x12ab".
std::string place_text(const std::string& file, std::uint64_t offset) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "+0x%llx", static_cast<unsigned long long>(offset));
  return std::filesystem::path(file).filename().string() + text.data();
}

/// Whether a thread of this process lets the signal through.
bool can_be_asked(const ThreadFacts& thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread.id) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const std::uint64_t blocked = std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 16);
    return thread.state != 'D' && (blocked >> (stack_signal() - 1) & 1) == 0;
  }
  return false;
}

/// Asks a thread for its stack.
std::vector<std::string> stack_of(pid_t thread) {
  constexpr std::chrono::milliseconds kLimit(100);
  constexpr std::chrono::microseconds kNap(200);
  stack_answer.count.store(-1);
  stack_answer.wanted.store(thread);
  if (syscall(SYS_tgkill, getpid(), thread, stack_signal()) != 0) {
    stack_answer.wanted.store(0);
    return {};
  }
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (stack_answer.count.load(std::memory_order_acquire) < 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kNap);
  }
  int expected = thread;
  const bool is_late = stack_answer.wanted.compare_exchange_strong(expected, 0);
  if (is_late) return {};  // it cannot answer any more
  while (stack_answer.count.load(std::memory_order_acquire) < 0) std::this_thread::sleep_for(kNap);  // it is at it
  std::vector<std::string> frames;
  for (int i = kOwnFrames; i < stack_answer.count.load(); ++i) {
    // The address is that of the next instruction, which can be behind the end of the function.
    const auto* const next = static_cast<const char*>(stack_answer.frames[static_cast<std::size_t>(i)]);
    frames.push_back(function_name(i == kOwnFrames ? next : next - 1));
  }
  return frames;
}

/// The former actions of the fatal signals, by their numbers.
std::array<struct sigaction, NSIG> former_actions{};

extern "C" void on_fatal_signal(int signal, siginfo_t* info, void*) {
  note_signal(signal);
  sigaction(signal, &former_actions[static_cast<std::size_t>(signal)], nullptr);
  // An instruction that failed fails again when this returns. A signal that somebody sent has to come again.
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void prepare_stacks() {
  static std::once_flag is_prepared;
  std::call_once(is_prepared, [] {
    std::array<void*, 1> frame{};
    backtrace(frame.data(), 1);  // loads the library that unwinds, which must not happen in a handler
    struct sigaction action {};
    action.sa_handler = on_stack_signal;
    action.sa_flags = SA_RESTART;
    sigaction(stack_signal(), &action, nullptr);
  });
}

std::vector<ThreadFacts> stacks_of_threads(std::size_t most) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> hold(one_at_a_time);
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::vector<ThreadFacts> threads = threads_of(getpid(), most);
  std::erase_if(threads, [self](const ThreadFacts& thread) { return thread.id == self; });
  for (ThreadFacts& thread : threads) {
    if (can_be_asked(thread)) thread.frames = stack_of(thread.id);
  }
  return threads;
}

std::string function_name(const void* address) {
  static const ProgramSymbols program;
  Dl_info info{};
  if (dladdr(address, &info) == 0) return place_text("?", reinterpret_cast<std::uint64_t>(address));
  const auto offset =
      static_cast<std::uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
  static const std::uint64_t own_base = [] {
    Dl_info own{};
    return dladdr(reinterpret_cast<const void*>(&prepare_stacks), &own) == 0
               ? std::uint64_t{0}
               : reinterpret_cast<std::uint64_t>(own.dli_fbase);
  }();
  if (reinterpret_cast<std::uint64_t>(info.dli_fbase) == own_base) {
    // A program at a fixed address has its addresses in the file, one that is relocated has offsets.
    std::string name = program.name_at(offset);
    if (name.empty()) name = program.name_at(reinterpret_cast<std::uint64_t>(address));
    if (!name.empty()) return demangled(name);
  }
  if (info.dli_sname != nullptr) return demangled(info.dli_sname);
  return place_text(info.dli_fname == nullptr ? "?" : info.dli_fname, offset);
}

void note_fatal_signals() {
  static bool is_prepared = false;
  if (std::exchange(is_prepared, true)) return;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
    struct sigaction& former = former_actions[static_cast<std::size_t>(signal)];
    if (sigaction(signal, nullptr, &former) != 0 || former.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace lockstep
