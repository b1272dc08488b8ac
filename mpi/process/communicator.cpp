// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "core/system/memory.hpp"
#include "core/system/status_line.hpp"
#include "core/text/text.hpp"
#include "mpi/process/chunks.hpp"
#include "mpi/process/waits.hpp"

namespace lockstep::mpi {

namespace {

constexpr int kTextTag = 1;

template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  if constexpr (std::is_same_v<T, std::int32_t>) return MPI_INT32_T;
  if constexpr (std::is_same_v<T, std::int64_t>) return MPI_INT64_T;
  if constexpr (std::is_same_v<T, std::uint8_t>) return MPI_UINT8_T;
  if constexpr (std::is_same_v<T, std::uint64_t>) return MPI_UINT64_T;
  return MPI_BYTE;
}

MPI_Op mpi_op(Op op) {
  if (op == Op::min) return MPI_MIN;
  return op == Op::max ? MPI_MAX : MPI_SUM;
}

/// Calls a blocking operation, or its form that does not block where waits can be given up.
/// @param start  takes the address of a request
template <class Block, class Start>
void perform(const char* call, const Block& block, const Start& start) {
  if (!has_wait_check()) return check(block(), call);
  MPI_Request request = MPI_REQUEST_NULL;
  check(start(&request), call);
  wait_for(request, call);
}

MPI_Comm duplicate_of(MPI_Comm parent) {
  if (parent == MPI_COMM_NULL) return MPI_COMM_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  const UnboundedCall unbounded;
  check(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  return comm;
}

/// The result of `step` on one rank: `code` is kFine, or the exit code of what it threw.
struct RankAnswer {
  static constexpr std::int32_t kFine = -1;
  std::int32_t code = kFine;
  std::string text;
};

RankAnswer run(const std::function<void()>& step) {
  try {
    step();
    return {};
  } catch (const Error& error) {
    return {static_cast<std::int32_t>(error.exit_code()), message_of(error)};
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) return {static_cast<std::int32_t>(kOutOfMemory), out_of_memory_error(error).what()};
    return {static_cast<std::int32_t>(ExitCode::internal), message_of(error)};
  } catch (...) {
    return {static_cast<std::int32_t>(ExitCode::internal), "exception of unknown type"};
  }
}

}  // namespace

Communicator::Communicator(MPI_Comm parent) : Communicator(Adopt{}, duplicate_of(parent)) {}

Communicator::Communicator(Adopt, MPI_Comm comm) : comm_(comm) {
  if (comm_ == MPI_COMM_NULL) return;
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

Communicator::Communicator(Communicator&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_),
      is_kept_open_(other.is_kept_open_) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  Communicator taken(std::move(other));
  std::swap(comm_, taken.comm_);
  std::swap(rank_, taken.rank_);
  std::swap(size_, taken.size_);
  std::swap(is_kept_open_, taken.is_kept_open_);
  return *this;
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL || is_kept_open_) return;
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized == 0) MPI_Comm_free(&comm_);  // Open MPI frees without a word to the other ranks
}

void Communicator::barrier() const {
  if (comm_ == MPI_COMM_NULL) return;
  const ScopedPhase phase(Phase::agreement);
  perform(
      "MPI_Barrier", [&] { return MPI_Barrier(comm_); },
      [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
}

template <class T>
void Communicator::all_reduce(std::span<T> values, Op op) const {
  if (comm_ == MPI_COMM_NULL) return;
  const ScopedPhase phase(Phase::agreement);
  for_each_chunk(values.size(), max_chunk, [&](std::size_t begin, std::size_t count) {
    T* const piece = values.data() + begin;
    const int number = static_cast<int>(count);
    perform(
        "MPI_Allreduce", [&] { return MPI_Allreduce(MPI_IN_PLACE, piece, number, mpi_type<T>(), mpi_op(op), comm_); },
        [&](MPI_Request* request) {
          return MPI_Iallreduce(MPI_IN_PLACE, piece, number, mpi_type<T>(), mpi_op(op), comm_, request);
        });
  });
}

template <class T>
void Communicator::broadcast(std::span<T> values, int root) const {
  if (comm_ == MPI_COMM_NULL) return;
  const ScopedPhase phase(Phase::agreement);
  for_each_chunk(values.size(), max_chunk, [&](std::size_t begin, std::size_t count) {
    T* const piece = values.data() + begin;
    const int number = static_cast<int>(count);
    perform(
        "MPI_Bcast", [&] { return MPI_Bcast(piece, number, mpi_type<T>(), root, comm_); },
        [&](MPI_Request* request) { return MPI_Ibcast(piece, number, mpi_type<T>(), root, comm_, request); });
  });
}

template <class T>
void Communicator::all_gather(std::span<const T> mine, std::span<T> all) const {
  const std::size_t count = mine.size();
  if (comm_ == MPI_COMM_NULL) {
    std::copy(mine.begin(), mine.end(), all.begin());
    return;
  }
  const ScopedPhase phase(Phase::agreement);
  if (count <= max_chunk) {
    const int number = static_cast<int>(count);
    const MPI_Datatype type = mpi_type<T>();
    return perform(
        "MPI_Allgather", [&] { return MPI_Allgather(mine.data(), number, type, all.data(), number, type, comm_); },
        [&](MPI_Request* request) {
          return MPI_Iallgather(mine.data(), number, type, all.data(), number, type, comm_, request);
        });
  }
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(rank_ * count));
  for (int root = 0; root < size_; ++root) broadcast(all.subspan(root * count, count), root);
}

std::vector<std::string> Communicator::all_gather(const std::string& mine) const {
  if (comm_ == MPI_COMM_NULL) return {mine};
  const std::uint64_t my_length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  all_gather(std::span(&my_length, 1), std::span(lengths));
  const std::uint64_t total = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});

  const ScopedPhase phase(Phase::agreement);
  std::vector<std::string> texts(lengths.size());
  if (total > max_chunk) {
    for (int root = 0; root < size_; ++root) {
      texts[root] = rank_ == root ? mine : std::string(lengths[root], '\0');
      broadcast(std::as_writable_bytes(std::span(texts[root])), root);
    }
    return texts;
  }
  const std::vector<int> counts(lengths.begin(), lengths.end());
  std::vector<int> begins(counts.size(), 0);
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), 0);
  std::string joined(total, '\0');
  const int length = static_cast<int>(my_length);
  perform(
      "MPI_Allgatherv",
      [&] {
        return MPI_Allgatherv(mine.data(), length, MPI_CHAR, joined.data(), counts.data(), begins.data(), MPI_CHAR,
                              comm_);
      },
      [&](MPI_Request* request) {
        return MPI_Iallgatherv(mine.data(), length, MPI_CHAR, joined.data(), counts.data(), begins.data(), MPI_CHAR,
                               comm_, request);
      });
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = joined.substr(begins[i], lengths[i]);
  return texts;
}

std::vector<std::string> Communicator::gather(const std::string& mine, int root) const {
  if (comm_ == MPI_COMM_NULL) return {mine};
  const ScopedPhase phase(Phase::agreement);
  const std::uint64_t my_length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  perform(
      "MPI_Gather",
      [&] { return MPI_Gather(&my_length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, root, comm_); },
      [&](MPI_Request* request) {
        return MPI_Igather(&my_length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, root, comm_, request);
      });
  if (rank_ != root) {
    for_each_chunk(mine.size(), max_chunk, [&](std::size_t begin, std::size_t count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Isend(mine.data() + begin, static_cast<int>(count), MPI_CHAR, root, kTextTag, comm_, &request),
            "MPI_Isend");
      wait_for(request, "MPI_Isend");
    });
    return {};
  }
  std::vector<std::string> texts(lengths.size());
  for (int sender = 0; sender < size_; ++sender) {
    texts[sender] = sender == root ? mine : std::string(lengths[sender], '\0');
    if (sender == root) continue;
    for_each_chunk(lengths[sender], max_chunk, [&](std::size_t begin, std::size_t count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(
          MPI_Irecv(texts[sender].data() + begin, static_cast<int>(count), MPI_CHAR, sender, kTextTag, comm_, &request),
          "MPI_Irecv");
      wait_for(request, "MPI_Irecv");
    });
  }
  return texts;
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  std::uint64_t length = text.size();
  broadcast(std::span(&length, 1), root);
  std::string copy = rank_ == root ? text : std::string(length, '\0');
  broadcast(std::as_writable_bytes(std::span(copy)), root);
  return copy;
}

void Communicator::all_or_throw(const std::function<void()>& step) const {
  const RankAnswer mine = run(step);
  std::vector<std::int32_t> codes(static_cast<std::size_t>(size_));
  all_gather(std::span(&mine.code, 1), std::span(codes));
  const auto fine = std::count(codes.begin(), codes.end(), RankAnswer::kFine);
  if (fine == size_) return;
  const auto failed =
      std::find_if(codes.begin(), codes.end(), [](std::int32_t code) { return code != RankAnswer::kFine; });
  const auto rank = static_cast<int>(failed - codes.begin());
  const std::string text = broadcast(mine.text, rank);
  throw_agreed(static_cast<ExitCode>(*failed), fine == 0 ? text : "rank " + std::to_string(rank) + ": " + text);
}

std::vector<int> Communicator::world_ranks() const {
  if (comm_ == MPI_COMM_NULL) return {0};
  MPI_Group mine = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &mine), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<int> world_ranks(ranks.size());
  check(MPI_Group_translate_ranks(mine, size_, ranks.data(), world, world_ranks.data()), "MPI_Group_translate_ranks");
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  return world_ranks;
}

Communicator Communicator::split(int color, int key) const {
  if (color < 0) throw std::logic_error("comm: split by color " + std::to_string(color) + "; the minimum color is 0");
  if (comm_ == MPI_COMM_NULL) return alone();
  MPI_Comm part = MPI_COMM_NULL;
  const UnboundedCall unbounded;
  check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
  return Communicator(Adopt{}, part);
}

Communicator Communicator::split_by_host() const {
  if (comm_ == MPI_COMM_NULL) return alone();
  MPI_Comm part = MPI_COMM_NULL;
  const UnboundedCall unbounded;
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
  return Communicator(Adopt{}, part);
}

#define LOCKSTEP_INSTANTIATE(T)                                      \
  template void Communicator::broadcast<T>(std::span<T>, int) const; \
  template void Communicator::all_gather<T>(std::span<const T>, std::span<T>) const;
#define LOCKSTEP_INSTANTIATE_NUMBER(T) \
  LOCKSTEP_INSTANTIATE(T)              \
  template void Communicator::all_reduce<T>(std::span<T>, Op) const;

LOCKSTEP_INSTANTIATE_NUMBER(float)
LOCKSTEP_INSTANTIATE_NUMBER(double)
LOCKSTEP_INSTANTIATE_NUMBER(std::int32_t)
LOCKSTEP_INSTANTIATE_NUMBER(std::int64_t)
LOCKSTEP_INSTANTIATE_NUMBER(std::uint8_t)
LOCKSTEP_INSTANTIATE_NUMBER(std::uint64_t)
LOCKSTEP_INSTANTIATE(std::byte)

}  // namespace lockstep::mpi
