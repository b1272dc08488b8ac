// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/source.hpp"

#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints/foreign/foreign.hpp"
#include "core/system/lost_pages.hpp"
#include "core/system/memory.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kSourceAlignment = 64;
constexpr std::uint64_t kExpansionFactor = 100;
constexpr std::uint64_t kExpansionFloor = std::uint64_t{64} << 20;
constexpr const char* kMetadataGroup = "/__metadata__";

void require_free(const ByteSource& source, const Archive& archive, const std::string& path) {
  if (archive.has(path)) source.refuse(path, "the name is used twice");
  if (!is_path(path)) source.refuse(path.substr(0, 200) + "...", "it is nested too deeply");
}

/// The size of an open file and the time of its last change.
struct FileState {
  off_t size = 0;
  time_t seconds = 0;
  long nanoseconds = 0;

  bool operator==(const FileState&) const = default;
};

FileState state_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {};
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

/// A mapped file, as the deleter of its bytes.
class MappedPages {
 public:
  MappedPages(std::span<const std::byte> pages, std::string path, int descriptor)
      : pages_(pages),
        path_(std::move(path)),
        descriptor_(::dup(descriptor)),
        state_(state_of(descriptor_)),
        lost_(std::make_shared<const LostPages>(pages)) {}

  void operator()(const void*) {
    lost_.reset();
    ::munmap(const_cast<std::byte*>(pages_.data()), pages_.size());
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::string& path() const noexcept { return path_; }
  bool is_unchanged() const { return state_of(descriptor_) == state_; }

 private:
  std::span<const std::byte> pages_;
  std::string path_;
  int descriptor_;
  FileState state_;
  std::shared_ptr<const LostPages> lost_;
};

}  // namespace

std::shared_ptr<std::byte> allocate_aligned(std::uint64_t bytes) {
  if (auto memory = aligned_memory(bytes, kSourceAlignment)) return memory;
  throw CheckpointError("not enough memory for " + std::to_string(bytes) + " bytes");
}

void ByteSource::require_inside(std::uint64_t offset, std::uint64_t count) const {
  if (offset <= size() && count <= size() - offset) return;
  refuse("it is truncated: it has only " + std::to_string(size()) + " bytes, but should have " + std::to_string(count) +
         " from byte " + std::to_string(offset) + " on");
}

void ByteSource::read_to(std::uint64_t offset, std::span<std::byte> out) const {
  require_inside(offset, out.size());
  copy(offset, out);
}

OwnedBytes ByteSource::read(std::uint64_t offset, std::uint64_t count) const {
  require_inside(offset, count);  // checked before memory is taken
  const std::shared_ptr<std::byte> memory = allocate_aligned(count);
  const std::span<std::byte> bytes(memory.get(), count);
  read_to(offset, bytes);
  return {bytes, memory};
}

OwnedBytes ByteSource::view(std::uint64_t offset, std::uint64_t count, std::uint64_t alignment) const {
  require_inside(offset, count);
  const OwnedBytes file = count > 0 && offset % alignment == 0 ? mapped() : OwnedBytes{};
  if (file.bytes.empty()) return read(offset, count);
  return {file.bytes.subspan(offset, count), file.owner};
}

void ByteSource::refuse(const std::string& message, CheckpointFault fault) const {
  throw CheckpointError(path(), message).as(fault);
}

void ByteSource::refuse(const std::string& object, const std::string& message, CheckpointFault fault) const {
  throw CheckpointError(path(), object, message).as(fault);
}

OwnedBytes DiskSource::map() const {
  if (mapped_.owner || size() == 0) return mapped_;
  void* const pages = ::mmap(nullptr, size(), PROT_READ, MAP_PRIVATE, file_.descriptor(), 0);
  if (pages == MAP_FAILED) return {};
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(pages), size());
  mapped_ = {bytes, std::shared_ptr<const void>(pages, MappedPages(bytes, path_, file_.descriptor()))};
  return mapped_;
}

void release_pages(const OwnedBytes& block) {
  if (std::get_deleter<MappedPages>(block.owner) == nullptr || block.bytes.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(block.bytes.data());
  const std::uintptr_t first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + block.bytes.size() - first, MADV_DONTNEED);
}

void release_pages(const Array& array) { release_pages(OwnedBytes{array.bytes, array.owner}); }

void require_unchanged(const Archive& archive) {
  for (const std::string& path : archive.array_paths()) {
    const auto* const file = std::get_deleter<MappedPages>(archive.array(path).owner);
    if (file == nullptr || file->is_unchanged()) continue;
    throw CheckpointError(file->path(), "it was changed while it was read; restore the file and start again");
  }
}

void MemorySource::copy(std::uint64_t offset, std::span<std::byte> out) const {
  const auto from = bytes_.subspan(offset, out.size());
  std::copy(from.begin(), from.end(), out.begin());
}

Expansion::Expansion(const ByteSource& source) : source_(source) {
  if (__builtin_mul_overflow(source.size(), kExpansionFactor, &left_)) left_ = std::numeric_limits<std::int64_t>::max();
  left_ = std::max(left_, kExpansionFloor);
}

void Expansion::take(const std::string& object, std::uint64_t bytes) {
  if (bytes > left_) {
    source_.refuse(object, "it states a size of " + std::to_string(bytes) + " bytes in a file of " +
                               std::to_string(source_.size()) + "; such an expansion is not allowed");
  }
  left_ -= bytes;
}

std::string part_of(const ByteSource& source, const std::string& name) {
  if (name.empty()) source.refuse("a name in it is empty");
  if (!is_utf8(name)) source.refuse(quoted("name", name), "it is not UTF-8");
  std::string part = encode_name(name);
  if (!is_part(part)) source.refuse(quoted("name", name), "it is longer than 1024 bytes");
  return part;
}

void put_array(const ByteSource& source, Archive& archive, const std::string& path, Array array) {
  require_free(source, archive, path);
  if (array.dtype == DType::boolean) {
    const auto wrong = std::ranges::find_if(array.bytes, [](std::byte byte) { return byte > std::byte{1}; });
    if (wrong != array.bytes.end()) {
      source.refuse(path, "its element " + std::to_string(wrong - array.bytes.begin()) + " must be 0 or 1, but is " +
                              std::to_string(std::to_integer<int>(*wrong)));
    }
  }
  archive.put(path, std::move(array));
}

void link_array(const ByteSource& source, Archive& archive, const std::string& path, const std::string& first) {
  require_free(source, archive, path);
  archive.link(path, first);
}

void put_attribute(const ByteSource& source, Archive& archive, const std::string& group, const std::string& name,
                   Attribute value, const std::string& text_group) {
  std::string part = part_of(source, name);
  if (part == kDTypeAttribute) part = "torch%5Fdtype";
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->size() > kMaxAttributeBytes || text->find('\0') != std::string::npos) {
      put_array(source, archive, (text_group == "/" ? "" : text_group) + "/" + part, text_array(*text));
      return;
    }
    if (!is_utf8(*text)) source.refuse(quoted("text", name), "it is not UTF-8");
  }
  if (archive.has_attribute(group, part)) source.refuse(quoted("entry", name), "the name is used twice");
  archive.set(group, part, std::move(value));
}

void put_metadata(const ByteSource& source, Archive& archive, const std::string& name, const std::string& text) {
  put_attribute(source, archive, "/", name, text, kMetadataGroup);
}

}  // namespace lockstep::checkpoints
