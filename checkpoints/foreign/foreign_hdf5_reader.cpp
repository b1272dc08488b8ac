// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <cstring>

#include "checkpoints/foreign/foreign_hdf5.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/limits.hpp"

namespace lockstep::checkpoints {

namespace {

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
