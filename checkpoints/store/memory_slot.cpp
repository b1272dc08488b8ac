// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/memory_slot.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/format/digest.hpp"
#include "checkpoints/format/names.hpp"
#include "kernels/copies.hpp"

namespace lockstep::checkpoints {

namespace {

using Json = nlohmann::json;

constexpr std::array<char, 8> kSlotMagic = {'L', 'S', 'S', 'L', 'O', 'T', '1', '\n'};
constexpr std::int64_t kEmpty = -1;
constexpr std::size_t kFirstArray = 4096;
constexpr std::size_t kAlignment = 64;  // alignment of arrays, and of the parts that processes fill

/// A slot begins with it. Then come the arrays, each aligned, and the tree: names, types, shapes and attributes in
/// CBOR.
struct SlotHead {
  std::array<char, 8> magic = kSlotMagic;
  std::int64_t step = kEmpty;  ///< written when all else is there
  std::uint64_t tree_offset = 0;
  std::uint64_t tree_bytes = 0;
  std::uint64_t digest = 0;

  std::uint64_t end() const { return tree_offset + tree_bytes; }
};

/// The digest of a head with this step and of its tree.
std::uint64_t digest_of(const SlotHead& head, std::int64_t step, std::span<const std::byte> tree) {
  const std::array<std::uint64_t, 4> values = {static_cast<std::uint64_t>(step), head.tree_offset, head.tree_bytes,
                                               digest64(tree)};
  return digest64(std::as_bytes(std::span(values)));
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Visits the arrays with the places where they begin.
/// @return  the end of the last one
std::size_t visit_places(const Archive& archive, const std::function<void(std::size_t, const Array&)>& visit) {
  std::size_t place = kFirstArray;
  for (const std::string& path : archive.array_paths()) {
    if (!archive.first_path_of(path).empty()) continue;
    const Array& array = archive.array(path);
    visit(place, array);
    place += aligned(array.bytes.size());
  }
  return place;
}

// --- the tree ---

Json json_of(const std::map<std::string, Attribute>& attributes) {
  Json object = Json::object();
  for (const auto& [name, value] : attributes) {
    std::visit([&, &key = name](const auto& known) { object[key] = known; }, value);
  }
  return object;
}

std::vector<std::byte> encoded_tree(const Archive& archive) {
  Json groups = Json::array({Json::array({"/", json_of(archive.attributes_of("/"))})});
  for (const std::string& path : archive.group_paths()) {
    groups.push_back(Json::array({path, json_of(archive.attributes_of(path))}));
  }
  Json arrays = Json::array();
  for (const std::string& path : archive.array_paths()) {
    const Array& array = archive.array(path);
    arrays.push_back(Json::array({path, archive.first_path_of(path), static_cast<int>(array.dtype), array.shape,
                                  json_of(archive.attributes_of(path))}));
  }
  const std::vector<std::uint8_t> code = Json::to_cbor(Json::array({std::move(groups), std::move(arrays)}));
  const auto bytes = std::as_bytes(std::span(code));
  return {bytes.begin(), bytes.end()};
}

void set_attributes(Archive& archive, const std::string& path, const Json& attributes) {
  for (const auto& [name, value] : attributes.items()) {
    if (value.is_string()) {
      archive.set(path, name, value.get<std::string>());
    } else if (value.is_number_float()) {
      archive.set(path, name, value.get<double>());
    } else {
      archive.set(path, name, value.get<std::int64_t>());
    }
  }
}

/// The archive of a tree over the memory of a whole slot.
Archive decoded(std::span<const std::byte> slot, const SlotHead& head, const std::shared_ptr<const void>& owner) {
  const auto tree = slot.subspan(head.tree_offset, head.tree_bytes);
  const auto* const code = reinterpret_cast<const std::uint8_t*>(tree.data());
  const Json json = Json::from_cbor(code, code + tree.size());
  Archive archive;
  for (const Json& group : json.at(0)) {
    const auto path = group.at(0).get<std::string>();
    if (path != "/") archive.add_group(path);
    set_attributes(archive, path, group.at(1));
  }
  std::size_t place = kFirstArray;
  for (const Json& entry : json.at(1)) {
    const auto path = entry.at(0).get<std::string>();
    const auto first = entry.at(1).get<std::string>();
    if (!first.empty()) {
      archive.link(path, first);
    } else {
      Array array{.dtype = kAllDTypes.at(entry.at(2).get<std::size_t>()),
                  .shape = entry.at(3).get<std::vector<std::int64_t>>(),
                  .bytes = {},
                  .owner = owner};
      const auto bytes = nbytes_of(array.dtype, array.shape);
      if (!bytes || *bytes > head.tree_offset - place) throw std::logic_error("an array is larger than the file");
      array.bytes = slot.subspan(place, *bytes);
      place += aligned(*bytes);
      archive.put(path, std::move(array));
    }
    set_attributes(archive, path, entry.at(4));
  }
  return archive;
}

// --- files ---

/// A slot, mapped for reading.
class MappedSlot {
 public:
  /// @throws CheckpointError  it is none, or empty
  explicit MappedSlot(const std::string& path) : path_(path) {
    const ExistingFile file(path);
    if (file.size() < kFirstArray) throw empty();
    void* const memory = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (memory == MAP_FAILED) throw_errno(path, "mmap");
    bytes_ = {static_cast<const std::byte*>(memory), file.size()};
    try {
      check();
    } catch (const CheckpointError&) {
      unmap();
      throw;
    }
  }
  MappedSlot(const MappedSlot&) = delete;
  MappedSlot& operator=(const MappedSlot&) = delete;
  ~MappedSlot() { unmap(); }

  SlotHead head() const {
    SlotHead head;
    std::memcpy(&head, bytes_.data(), sizeof head);
    return head;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

  CheckpointError empty() const { return {path_, "it has no complete copy"}; }

 private:
  void check() const {
    const SlotHead head = this->head();
    if (head.magic != kSlotMagic || head.step < 0) throw empty();
    const bool is_inside = head.tree_offset >= kFirstArray && head.tree_offset <= bytes_.size() &&
                           head.tree_bytes <= bytes_.size() - head.tree_offset;
    if (!is_inside) throw empty();
    const auto tree = bytes_.subspan(head.tree_offset, head.tree_bytes);
    if (digest_of(head, head.step, tree) != head.digest) throw empty();
  }
  void unmap() noexcept { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  std::string path_;
  std::span<const std::byte> bytes_;
};

/// Opens the file and gives it at least so many bytes, which it then has for certain.
int open_with_room(const std::string& path, std::size_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (file < 0) throw_errno(path, "open");
  struct stat status {};
  int error = ::fstat(file, &status) == 0 ? 0 : errno;
  // It looks at every page, also of those that are there.
  if (error == 0 && static_cast<std::size_t>(status.st_size) < bytes) {
    error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  }
  if (error == 0) return file;
  ::close(file);
  errno = error;
  throw_errno(path, "posix_fallocate");
}

void write_at(int file, const std::string& path, std::size_t place, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_errno(path, "pwrite");
    place += static_cast<std::size_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_step(int file, std::int64_t step) noexcept {
  [[maybe_unused]] const ssize_t written = ::pwrite(file, &step, sizeof step, offsetof(SlotHead, step));
}

}  // namespace

MemorySlot::MemorySlot(std::string path) : path_(std::move(path)) {}

MemorySlot::~MemorySlot() { unmap(); }

/// Whether the file still has its name: somebody may have removed it.
bool MemorySlot::is_there() const noexcept {
  struct stat named {};
  struct stat mapped {};
  return ::lstat(path_.c_str(), &named) == 0 && ::fstat(file_, &mapped) == 0 && named.st_ino == mapped.st_ino;
}

void MemorySlot::unmap() noexcept {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
  memory_ = {};
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void MemorySlot::map(std::size_t bytes) {
  if (memory_.size() >= bytes && is_there()) return;
  unmap();
  file_ = open_with_room(path_, bytes);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) throw_errno(path_, "mmap");
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

void MemorySlot::begin(const Archive& archive) {
  tree_offset_ = visit_places(archive, [](std::size_t, const Array&) {});
  tree_ = encoded_tree(archive);
  map(tree_offset_ + tree_.size());
  write_step(file_, kEmpty);
}

void MemorySlot::fill(const Archive& archive, FilePart part) {
  archive.await_arrival();
  const std::size_t end = visit_places(archive, [](std::size_t, const Array&) {});
  map(end);
  const auto border = [&](std::size_t number) {
    return aligned(kFirstArray + (end - kFirstArray) * number / part.count);
  };
  const std::size_t first = border(part.number);
  const std::size_t last = border(part.number + 1);
  visit_places(archive, [&](std::size_t place, const Array& array) {
    const std::size_t begin = std::max(place, first);
    const std::size_t stop = std::min(place + array.bytes.size(), last);
    if (begin >= stop) return;
    kernels::copy_past_caches(array.bytes.subspan(begin - place, stop - begin), memory_.data() + begin);
  });
}

void MemorySlot::complete(std::int64_t step) {
  std::memcpy(memory_.data() + tree_offset_, tree_.data(), tree_.size());
  SlotHead head{.tree_offset = tree_offset_, .tree_bytes = tree_.size()};
  head.digest = digest_of(head, step, tree_);
  std::memcpy(memory_.data(), &head, sizeof head);
  std::atomic_thread_fence(std::memory_order_release);
  write_step(file_, step);
}

std::optional<std::int64_t> step_in_slot(const std::string& path) noexcept {
  try {
    return MappedSlot(path).head().step;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void empty_slot(const std::string& path) noexcept {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return;
  struct stat status {};
  if (::fstat(file, &status) == 0 && status.st_size > 0) write_step(file, kEmpty);
  ::close(file);
}

Archive read_slot(const std::string& path) {
  const auto slot = std::make_shared<const MappedSlot>(path);
  try {
    Archive archive = decoded(slot->bytes(), slot->head(), slot);
    archive.set_origin(path);
    return archive;
  } catch (const nlohmann::json::exception&) {
    throw slot->empty();
  } catch (const std::logic_error&) {  // Archive and std::array::at throw it
    throw slot->empty();
  }
}

std::vector<std::byte> slot_bytes(const std::string& path) {
  const MappedSlot slot(path);
  const SlotHead before = slot.head();
  const auto used = slot.bytes().first(before.end());
  std::vector<std::byte> bytes(used.begin(), used.end());
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.head().step != before.step) throw CheckpointError(path, "another copy has replaced it");
  return bytes;
}

void put_slot_bytes(const std::string& path, std::span<const std::byte> bytes) {
  SlotHead head;
  if (bytes.size() < kFirstArray) throw CheckpointError(path, "the bytes are no copy");
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::int64_t step = std::exchange(head.step, kEmpty);
  const int file = open_with_room(path, bytes.size());
  try {
    write_at(file, path, 0, std::as_bytes(std::span(&head, 1)));
    write_at(file, path, sizeof head, bytes.subspan(sizeof head));
  } catch (const CheckpointError&) {
    ::close(file);
    throw;
  }
  write_step(file, step);
  ::close(file);
}

}  // namespace lockstep::checkpoints
