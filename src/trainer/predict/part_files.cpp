// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/part_files.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace lockstep::trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

std::string part_of(const std::string& path, int rank) { return fmt::format("{}.part-{:05}", path, rank); }

ConfigError write_error(const std::string& path, int reason) {
  return ConfigError(path + " cannot be written: " + std::strerror(reason));
}

OpenFile open_file(const std::string& path, const char* mode) {
  OpenFile file(std::fopen(path.c_str(), mode), std::fclose);
  if (file) std::setvbuf(file.get(), nullptr, _IOFBF, kBufferBytes);
  return file;
}

/// Appends a whole file to another one.
void append(const std::string& path, const std::string& part, std::int64_t size, std::FILE* out) {
  const OpenFile in = open_file(part, "re");
  std::string block(kBufferBytes, '\0');
  std::int64_t copied = 0;
  while (const std::size_t got = in ? std::fread(block.data(), 1, block.size(), in.get()) : 0) {
    copied += static_cast<std::int64_t>(got);
    if (std::fwrite(block.data(), 1, got, out) != got) throw write_error(path, errno);
  }
  const bool is_read = in && std::ferror(in.get()) == 0;
  if (is_read && copied == size) return;
  throw ConfigError(part +
                    (is_read ? " is incomplete on rank 0" : std::string(" cannot be read: ") + std::strerror(errno)) +
                    "; the folder of the output must be shared by all ranks");
}

}  // namespace

PartFile::PartFile(const std::string& path, int rank)
    : path_(path), part_(part_of(path, rank)), file_(open_file(part_, "we")) {
  if (!file_) throw write_error(path_, errno);
}

PartFile::~PartFile() { ::unlink(part_.c_str()); }

void PartFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) throw write_error(path_, errno);
  size_ += static_cast<std::int64_t>(bytes.size());
}

std::int64_t PartFile::close() {
  if (std::fclose(file_.release()) != 0) throw write_error(path_, errno);
  return size_;
}

void remove_parts(const std::string& path) {
  const fs::path whole(path);
  const std::string start = whole.filename().string() + ".part-";
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    const bool is_part = name.starts_with(start) && name.size() == start.size() + 5 &&
                         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(start.size()), name.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
    if (is_part) fs::remove(entry.path(), unreadable);
  }
}

void join_parts(const std::string& path, const std::vector<std::int64_t>& sizes) {
  const OpenFile out = open_file(part_of(path, 0), "ae");
  if (!out) throw write_error(path, errno);
  for (std::size_t rank = 1; rank < sizes.size(); ++rank) {
    append(path, part_of(path, static_cast<int>(rank)), sizes[rank], out.get());
  }
  if (std::fflush(out.get()) != 0 || ::fsync(::fileno(out.get())) != 0) throw write_error(path, errno);
}

void publish_parts(const std::string& path) {
  if (std::rename(part_of(path, 0).c_str(), path.c_str()) != 0) throw write_error(path, errno);
}

}  // namespace lockstep::trainer
