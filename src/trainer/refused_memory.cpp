// SPDX-License-Identifier: BSD-3-Clause
// The operator new of the program trainer. It is in no library, because a user's program may have its own.
#include <cstdlib>
#include <new>

#include "core/system/memory.hpp"

// Sanitizers have their own allocator.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// The standard operator, except that it remembers the size of a request that fails.
void* operator new(std::size_t bytes) {
  while (true) {
    if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) {
      lockstep::note_refused_memory(bytes);
      throw std::bad_alloc();
    }
    handler();
  }
}
#endif
