// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/array_file.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "arrays/chunks.hpp"
#include "arrays/hdf5_file.hpp"
#include "arrays/input_file.hpp"
#include "arrays/npy_file.hpp"
#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

namespace fs = std::filesystem;

using Opener = std::shared_ptr<const ArrayFile> (*)(std::shared_ptr<const InputFile> file);

/// A format that is read, by its first bytes.
struct FormatRow {
  std::string_view magic;
  Opener open;
};

constexpr std::array<FormatRow, 3> kFormats = {{
    {"\x93NUMPY", open_npy}, {"PK\x03\x04", open_npz}, {"PK\x05\x06", open_npz},  // an archive without records
}};

constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1A\n";

constexpr const char* kClassicAdvice = "it is a netCDF-3 file; convert a copy: nccopy -k nc4 IN.nc OUT.nc";
constexpr const char* kWebPage = "it is a web page (HTML), not data; download the file again";

/// Other formats by their first bytes, and the message.
constexpr std::array<std::pair<std::string_view, const char*>, 12> kOtherFormats = {{
    {"CDF\x01", kClassicAdvice},
    {"CDF\x02", kClassicAdvice},
    {"CDF\x05", kClassicAdvice},
    {"GRIB",
     "it is a GRIB file, which is not supported; convert it to netCDF-4, for example with grib_to_netcdf or cdo"},
    {"\x0E\x03\x13\x01", "it is an HDF4 file, which is not supported; convert it to HDF5: h4toh5 IN OUT"},
    {"\x1F\x8B", "it is compressed with gzip; unpack it: gunzip FILE"},
    {"version https://git-lfs", "it is only a pointer of Git LFS; fetch the file: git lfs pull"},
    {"<!doctype html", kWebPage},
    {"<!DOCTYPE html", kWebPage},
    {"<!DOCTYPE HTML", kWebPage},
    {"<html", kWebPage},
    {"<HTML", kWebPage},
}};

std::string head_of(const InputFile& file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset >= file.size()) return "";
  std::string head(static_cast<std::size_t>(std::min(bytes, file.size() - offset)), '\0');
  file.read(offset, std::as_writable_bytes(std::span(head)));
  return head;
}

/// HDF5's signature is at the beginning, or after a block of the user of 512, 1024, 2048, ... bytes.
bool is_hdf5(const InputFile& file) {
  for (std::uint64_t offset = 0; offset < file.size(); offset = offset == 0 ? 512 : 2 * offset) {
    if (head_of(file, offset, kHdf5.size()) == kHdf5) return true;
  }
  return false;
}

/// A zarr store is a folder.
void require_no_zarr(const std::string& path) {
  std::error_code error;
  for (const char* const name : {".zgroup", ".zarray", ".zmetadata", "zarr.json"}) {
    if (!fs::exists(fs::path(path) / name, error)) continue;
    throw DataError(path, "it is a zarr store, which is not supported; convert it to HDF5 or netCDF-4");
  }
}

}  // namespace

std::string name_of(const NumberType& type) {
  const char* const kind = type.kind == NumberKind::real             ? "float"
                           : type.kind == NumberKind::signed_integer ? "int"
                                                                     : "uint";
  return kind + std::to_string(8 * type.bytes);
}

std::vector<double> numbers_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return {};
  return std::visit(
      [](const auto& values) -> std::vector<double> {
        if constexpr (std::is_same_v<std::decay_t<decltype(values)>, std::vector<std::string>>) {
          return {};
        } else {
          std::vector<double> numbers;
          for (const auto value : values) numbers.push_back(static_cast<double>(value));
          return numbers;
        }
      },
      found->second);
}

std::vector<std::string> texts_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  const auto* const texts = found == attributes.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
  return texts == nullptr ? std::vector<std::string>() : *texts;
}

Slab whole(const ArrayInfo& array) {
  const std::size_t rank = array.shape.size();
  return {
      .start = std::vector<std::int64_t>(rank, 0), .count = array.shape, .step = std::vector<std::int64_t>(rank, 1)};
}

std::int64_t size_of(const Slab& slab) {
  std::int64_t size = 1;
  for (const std::int64_t count : slab.count) size *= count;
  return size;
}

std::shared_ptr<const ArrayFile> open_arrays(const std::string& path) {
  require_no_zarr(path);
  return open_arrays(std::make_shared<const InputFile>(path));
}

std::shared_ptr<const ArrayFile> open_arrays(const std::shared_ptr<const InputFile>& file) {
  const std::string& path = file->path();
  if (file->size() == 0) throw DataError(path, "it is empty (0 bytes)");
  if (is_hdf5(*file)) return open_hdf5(file);
  constexpr std::uint64_t kHeadBytes = 256;
  std::string head = head_of(*file, 0, kHeadBytes);
  for (const auto& [magic, open] : kFormats) {
    if (head.starts_with(magic)) return open(file);
  }
  const std::string text = trimmed(head);
  for (const auto& [magic, message] : kOtherFormats) {
    if (head.starts_with(magic) || text.starts_with(magic)) throw DataError(path, message);
  }
  if (head.size() < kHdf5.size() && kHdf5.starts_with(head)) throw DataError(path, "it is a truncated HDF5 file");
  throw DataError(path, "it is neither HDF5 nor netCDF-4, npy or npz; check its name, or convert it");
}

void set_chunk_cache(std::size_t bytes) { chunk_cache().set_limit(bytes); }

void divide_chunk_cache(int processes) { chunk_cache().set_sharers(processes); }

ChunkUse chunk_use() { return chunk_cache().use(); }

/// The last file in the list is the one that was used most recently.
class OpenFiles::Impl {
 public:
  explicit Impl(std::size_t most) : most_(std::max<std::size_t>(most, 1)) {}

  std::shared_ptr<const ArrayFile> get(const std::string& path) {
    const std::lock_guard hold(mutex_);
    const auto found = std::ranges::find_if(files_, [&](const auto& file) { return file->path() == path; });
    if (found != files_.end()) {
      files_.splice(files_.end(), files_, found);
      return files_.back();
    }
    if (files_.size() >= most_) files_.pop_front();
    files_.push_back(open(path));
    return files_.back();
  }

 private:
  /// The description of an array holds only for the version of its file that was opened first.
  std::shared_ptr<const ArrayFile> open(const std::string& path) {
    const auto known = versions_.find(path);
    if (known == versions_.end()) require_no_zarr(path);
    const auto bytes = std::make_shared<const InputFile>(path);
    if (known != versions_.end() && known->second != bytes->version()) throw_changed(path);
    std::shared_ptr<const ArrayFile> file = open_arrays(bytes);
    versions_.emplace(path, bytes->version());
    return file;
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, FileVersion> versions_;
  std::list<std::shared_ptr<const ArrayFile>> files_;
};

OpenFiles::OpenFiles(std::size_t most) : impl_(std::make_unique<Impl>(most)) {}
OpenFiles::~OpenFiles() = default;

std::shared_ptr<const ArrayFile> OpenFiles::get(const std::string& path) { return impl_->get(path); }

}  // namespace lockstep::arrays
