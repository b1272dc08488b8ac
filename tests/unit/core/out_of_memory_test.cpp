// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "core/system/memory.hpp"

namespace lockstep {
namespace out_of_memory_test {

std::string sentence_of(const std::string& text) { return out_of_memory_error(std::runtime_error(text)).what(); }

// The sentences are those of LibTorch 2.11.
TEST(OutOfMemoryTest, TheSentenceOfAGpuStatesWhatIsInUse) {
  const std::string libtorch =
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 79.11 GiB of which 12.50 MiB is "
      "free. Including non-PyTorch memory, this process has 79.09 GiB memory in use. Of the allocated memory 77.20 GiB "
      "is allocated by PyTorch, and 1.10 GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
      "memory "
      "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
  ASSERT_TRUE(is_out_of_memory(std::runtime_error(libtorch)));
  const std::string sentence = sentence_of(libtorch);
  EXPECT_TRUE(sentence.starts_with(
      "out of memory on GPU 1: 20.00 MiB were requested; 12.50 MiB of 79.11 GiB are free, the tensors of this process "
      "use 77.20 GiB, and 1.10 GiB more are kept for reuse, in pieces that are too small; reduce train.micro_batch"))
      << sentence;
  EXPECT_NE(sentence.find("strategy.name=sharded"), std::string::npos);
  EXPECT_EQ(out_of_memory_error(std::runtime_error(libtorch)).exit_code(), kOutOfMemory);
  const std::string captured =
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is "
      "free. "
      "Of the allocated memory 5.00 GiB is allocated by PyTorch, with 3.00 GiB allocated in private pools (e.g., CUDA "
      "Graphs), and 10.00 MiB is reserved by PyTorch but unallocated.";
  EXPECT_NE(sentence_of(captured).find("the tensors of this process use 5.00 GiB"), std::string::npos);
}

TEST(OutOfMemoryTest, OtherSentencesOfAGpuAreUnderstood) {
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA error: out of memory\nCUDA kernel errors might be ...")));
  EXPECT_TRUE(sentence_of("CUDA error: out of memory").starts_with("out of memory on GPU: a request failed; reduce"));
  EXPECT_EQ(std::string(gpu_out_of_memory_error(64).what()).find("out of memory on the GPU: 64 bytes were requested; "),
            0U);
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("CUDA error: device-side assert triggered")));
}

TEST(OutOfMemoryTest, TheSentenceOfAHostIsAnother) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  const std::string libtorch = "DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.";
  EXPECT_TRUE(is_out_of_memory(std::runtime_error(libtorch)));
  EXPECT_TRUE(sentence_of(libtorch).starts_with("out of memory: 4096 bytes were requested; this process uses "));
}

TEST(OutOfMemoryTest, TheLastDescriptionIsKept) {
  EXPECT_EQ(noted_gpu_memory(), "");
  note_gpu_memory("first");
  note_gpu_memory("second");
  EXPECT_EQ(noted_gpu_memory(), "second");
  note_gpu_memory("");
}

}  // namespace out_of_memory_test
}  // namespace lockstep
