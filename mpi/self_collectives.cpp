// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "backends.hpp"
#include "reduction.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kAlignment = 64;

/// One rank: everything is done before it is asked for.
class SelfCollectives final : public Collectives {
 public:
  std::string_view name() const noexcept override { return "self"; }
  int rank() const noexcept override { return 0; }
  int world_size() const noexcept override { return 1; }

  BucketMemory allocate_bucket(std::size_t bytes) override {
    if (bytes == 0) return {};
    const std::shared_ptr<void> memory(::operator new(bytes, std::align_val_t(kAlignment)),
                                       [](void* address) { ::operator delete(address, std::align_val_t(kAlignment)); });
    std::memset(memory.get(), 0, bytes);
    return {.bytes = {static_cast<std::byte*>(memory.get()), bytes}, .owner = memory};
  }

  Ticket start_all_reduce(void*, std::size_t, DType dtype, ReduceOp op) override {
    require_reducible(dtype, op);
    return {++started_};
  }

  void wait(Ticket ticket) override {
    if (ticket.sequence > started_) {
      throw std::logic_error("comm: ticket " + std::to_string(ticket.sequence) + " was never given");
    }
  }

  void broadcast(std::span<std::byte>, int root) override {
    if (root != 0) throw std::logic_error("comm: broadcast from rank " + std::to_string(root) + " of 1");
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (all.size() != mine.size()) throw std::logic_error("comm: all_gather into memory of another size");
    std::copy(mine.begin(), mine.end(), all.begin());
  }

  void reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) override {
    require_reducible(dtype, op);
    std::copy_n(static_cast<const std::byte*>(values), count * size_of(dtype), static_cast<std::byte*>(slice));
  }

  void barrier() override {}

  std::unique_ptr<Collectives> split(int) override { return make_self_collectives(); }

 private:
  std::uint64_t started_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_self_collectives() { return std::make_unique<SelfCollectives>(); }

}  // namespace lockstep::mpi
