// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <csignal>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// Zeroed memory of whole pages of its own, which a WriteGuard may close.
std::shared_ptr<std::byte> private_pages(std::size_t bytes);

/// Keeps the pages of parameters read-only, except while they are opened.
///
/// Whoever writes to a parameter all the same ends the job with exit code 2 after a sentence that names it, and the
/// stack of the write. Faults elsewhere go to the SIGSEGV handler that was there before.
class WriteGuard {
 public:
  /// Closes the blocks.
  /// @param blocks  each in whole pages of its own (private_pages, or a SharedRegion); they outlive the guard
  /// @param rank    to be named
  /// @throws ConfigError  the kernel refuses
  WriteGuard(std::span<const optim::FlatBlock> blocks, int rank);
  ~WriteGuard();  ///< opens for good
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  /// While one lives, the parameters may be written. Does nothing without a guard.
  class Opened {
   public:
    explicit Opened(WriteGuard* guard) : guard_(guard) {
      if (guard_ != nullptr) guard_->set(true);
    }
    ~Opened() {
      if (guard_ != nullptr) guard_->set(false);
    }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    WriteGuard* guard_;
  };

 private:
  struct GuardedRange {
    std::byte* begin;
    std::size_t bytes;
  };
  /// A parameter with the padding behind it.
  struct GuardedParameter {
    const std::byte* begin;
    const std::byte* end;
    std::string sentence;
  };

  void set(bool is_open);
  const GuardedParameter* find(const void* address) const noexcept;
  static void on_fault(int signal, siginfo_t* info, void* context);
  static void pass_on(int signal, siginfo_t* info, void* context);

  std::vector<GuardedRange> ranges_;
  std::vector<GuardedParameter> parameters_;
  WriteGuard* next_ = nullptr;  // next in the list of all live guards

  static WriteGuard* first_;
  static struct sigaction former_;
};

}  // namespace lockstep::parallel
