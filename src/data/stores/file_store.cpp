// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/file_store.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "data/codecs/decode.hpp"

namespace lockstep::data {

namespace {

constexpr std::array<int, 3> kPauses_ms = {100, 1000, 10000};

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

bool is_transient(int code) {
  return code == EIO || code == ESTALE || code == ETIMEDOUT || code == EAGAIN || code == EINTR;
}

/// One attempt.
/// @return  0, or the error number of the system; then `action` states the failed action
int read_once(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes, std::size_t& count,
              const char*& action) {
  action = "opened";
  const OpenFile file(path);
  if (file.get() < 0) return errno;
  action = "examined";
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) throw DataError(path, "is not a regular file; replace it or exclude it");
  if (status.st_size > max_bytes) {
    throw DataError(path, "has " + std::to_string(status.st_size) + " bytes, more than data.max_image_mb = " +
                              mb_text(max_bytes) + "; exclude the file or raise the limit");
  }
  action = "read";
  const auto size = static_cast<std::size_t>(status.st_size);
  if (bytes.size() < size) bytes.resize(size);
  count = 0;
  while (count < size) {
    const ssize_t got = ::read(file.get(), bytes.data() + count, size - count);
    if (got < 0) return errno;
    if (got == 0) break;  // the file became shorter; its decoder reports what is missing
    count += static_cast<std::size_t>(got);
  }
  return 0;
}

constexpr std::int64_t kFiles = 16;  // files: whose content is part of the digest

TargetKind kind_of(ListTarget target, bool has_label_sets) {
  if (target == ListTarget::none) return TargetKind::none;
  if (target == ListTarget::numbers) return TargetKind::numbers;
  if (target == ListTarget::masks) return TargetKind::masks;
  return has_label_sets ? TargetKind::label_sets : TargetKind::classes;
}

}  // namespace

std::span<const std::byte> read_file(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes) {
  for (std::size_t attempt = 0;; ++attempt) {
    std::size_t count = 0;
    const char* action = "";
    const int code = read_once(path, max_bytes, bytes, count, action);
    if (code == 0) return {bytes.data(), count};
    if (!is_transient(code) || attempt == kPauses_ms.size()) {
      throw DataError(path, std::string("cannot be ") + action + " (" + std::generic_category().message(code) +
                                "); restore the file or exclude it");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauses_ms.at(attempt)));
  }
}

void read_file_ahead(const std::string& path) noexcept {
  const OpenFile file(path);
  if (file.get() >= 0) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED);
}

FileStore::FileStore(std::shared_ptr<const ListLines> lines, FileStoreOptions options)
    : lines_(std::move(lines)), options_(std::move(options)) {
  const TargetKind kind = kind_of(lines_->options().target, options_.has_label_sets);
  facts_ = {.size = lines_->size(),
            .targets = options_.are_masks ? TargetKind::none : kind,
            .classes = options_.classes,
            .class_names = options_.class_names,
            .numbers = lines_->numbers_per_line(),
            .has_files = true};
  if (facts_.targets != TargetKind::masks) return;
  FileStoreOptions masks = options_;
  masks.are_masks = true;
  facts_.masks = std::make_shared<FileStore>(lines_, std::move(masks));
}

std::string_view FileStore::listed_path(std::int64_t index) const {
  const ListLine line = lines_->line(index);
  return options_.are_masks ? line.label : line.path;
}

std::string FileStore::place(std::int64_t index) const {
  const std::string_view path = listed_path(index);
  const bool is_whole = path.starts_with('/') || options_.root.empty();
  return (is_whole ? "" : options_.root + "/") + std::string(path);
}

// One check per sample: the list's label is read immediately afterward.
StoredImage FileStore::read(std::int64_t index, ReadBuffer& buffer) const {
  const std::string path = place(index);
  lines_->check_unchanged();
  const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
  // A file without bytes would mean that pixels are given.
  if (bytes.empty()) throw DataError(path, "the file is empty; replace the file or exclude it");
  return {.file = bytes};
}

std::string FileStore::name(std::int64_t index) const {
  std::string path(listed_path(index));
  lines_->check_unchanged();
  return path;
}

ImageTarget FileStore::target(std::int64_t index) const {
  if (facts_.targets == TargetKind::numbers) return {.numbers = lines_->numbers(index)};
  if (facts_.targets == TargetKind::label_sets) return {.classes = lines_->labels(index)};
  if (facts_.targets != TargetKind::classes) return {};
  const std::int64_t label = lines_->label(index);
  return {.classes = {options_.numbers.empty() ? label : options_.numbers.at(static_cast<std::size_t>(label))}};
}

// A few files stand for the content of all.
std::uint64_t FileStore::digest() const {
  return digest_.get([this] {
    std::uint64_t hash = lines_->digest(facts_.classes);
    ReadBuffer buffer;
    const auto add_file = [&](const std::string& path) {
      std::uint64_t content = 0;  // stays 0 if the file cannot be read
      try {
        const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
        content = sampled_hash_of({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      } catch (const DataError&) {
      }
      hash = hash_of({hash, content});
    };
    for (std::int64_t i = 0; i < std::min(kFiles, size()); ++i) {
      const std::int64_t index = size() <= kFiles ? i : (size() - 1) / (kFiles - 1) * i;
      add_file(place(index));
      if (facts_.masks) add_file(facts_.masks->place(index));
    }
    return hash;
  });
}

}  // namespace lockstep::data
