// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/rules/ranks.hpp"

#include <array>
#include <cstdio>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace lockstep::fake_gpu {

namespace {

constexpr unsigned kMaxSeconds = 30;

struct Child {
  pid_t pid = 0;
  int text = -1;  ///< a file in memory
};

std::string content_of(int file) {
  std::string text;
  std::array<char, 4096> part{};
  lseek(file, 0, SEEK_SET);
  for (ssize_t bytes = 0; (bytes = read(file, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

Child start(const Rank& rank, const std::function<void(const Rank&)>& body) {
  const int text = memfd_create("stderr", 0);
  const pid_t pid = fork();
  if (pid != 0) return {pid, text};
  alarm(kMaxSeconds);
  dup2(text, STDERR_FILENO);
  setenv("NCCL_HOSTID", std::to_string(rank.rank).c_str(), 1);
  body(rank);
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

Ended wait_for(const Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  Ended ended;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.text = content_of(child.text);
  close(child.text);
  return ended;
}

}  // namespace

void Rank::meet() const {
  const int mine = ++*arrivals;
  const int meeting = (mine + size - 1) / size;
  while (*arrivals < meeting * size) sched_yield();
}

std::vector<Ended> run_ranks(int size, const std::function<void(const Rank&)>& body) {
  void* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Rank rank;
  rank.size = size;
  rank.arrivals = new (shared) std::atomic<int>(0);
  EXPECT_EQ(ncclGetUniqueId(&rank.id), ncclSuccess);
  std::fflush(nullptr);
  std::vector<Child> children;
  for (rank.rank = 0; rank.rank < size; ++rank.rank) children.push_back(start(rank, body));
  std::vector<Ended> ended;
  for (const Child& child : children) ended.push_back(wait_for(child));
  munmap(shared, 4096);
  return ended;
}

void expect_pass(int size, const std::function<void(const Rank&)>& body) {
  const std::vector<Ended> ended = run_ranks(size, body);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << "rank " << rank << " of " << size << ": " << ended[rank].text;
  }
}

void expect_all_broken(int size, const std::string& sentence, const std::function<void(const Rank&)>& body) {
  const std::vector<Ended> ended = run_ranks(size, body);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, kRaceExit) << "rank " << rank << " of " << size << ": " << ended[rank].text;
    EXPECT_NE(ended[rank].text.find(sentence), std::string::npos) << ended[rank].text;
  }
}

ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

ncclResult_t init(const Rank& rank, bool is_blocking, ncclComm_t* comm) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = is_blocking ? 1 : 0;
  const ncclResult_t result = ncclCommInitRankConfig(comm, rank.size, rank.id, rank.rank, &config);
  return result == ncclInProgress ? settled(*comm) : result;
}

Comm::Comm(const Rank& rank, bool is_blocking) {
  EXPECT_EQ(init(rank, is_blocking, &handle_), ncclSuccess) << last_error();
}

Comm::~Comm() { ncclCommDestroy(handle_); }

void write(const Floats& floats, const std::vector<float>& values) {
  EXPECT_EQ(cudaMemcpy(floats.begin(), values.data(), floats.bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

ncclResult_t sum(const Floats& floats, ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(floats.begin(), floats.begin(), floats.count(), ncclFloat32, ncclSum, comm, stream);
}

void begin(cudaStream_t stream) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
}

cudaGraphExec_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return exec;
}

}  // namespace lockstep::fake_gpu
