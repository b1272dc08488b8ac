// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/foreign.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string_view>
#include <unistd.h>
#include <unordered_set>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign_hdf5.hpp"
#include "checkpoints/foreign/npz.hpp"
#include "checkpoints/foreign/pytorch.hpp"
#include "checkpoints/foreign/safetensors.hpp"
#include "checkpoints/foreign/zip.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/layout.hpp"
#include "checkpoints/format/names.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

namespace {

constexpr std::size_t kProbedBytes = 512;

std::string head_of(const ByteSource& source) {
  std::string head(std::min<std::uint64_t>(source.size(), kProbedBytes), '\0');
  source.read_to(0, std::as_writable_bytes(std::span(head)));
  return head;
}

bool is_pickle(std::string_view head) { return head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }

/// PyTorch's form before version 0.4.
bool is_tar(std::string_view head) { return head.size() >= 262 && head.substr(257, 5) == "ustar"; }

/// 8 bytes of header length, which are no text, then a JSON object.
bool is_safetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  const std::string_view length = head.substr(0, 8);
  return std::ranges::any_of(length, [](unsigned char c) { return c < 0x09 || c >= 0x7F; });
}

/// Which of the two a zip archive is: by its directory, else by its first record.
FileKind kind_of_zip(const ByteSource& source, std::string_view head) {
  try {
    const Zip zip(source);
    if (is_pytorch(zip)) return FileKind::pytorch;
    if (zip.records().empty()) return FileKind::npz;
    const auto is_array = [](const ZipRecord& record) { return record.name.ends_with(".npy"); };
    if (std::ranges::any_of(zip.records(), is_array)) return FileKind::npz;
  } catch (const CheckpointError&) {
    // It is malformed; which reader says so does not matter much.
  }
  constexpr std::size_t kNameLength = 26, kName = 30;
  if (head.size() < kName) return FileKind::pytorch;
  const auto length = load<std::uint16_t>(std::as_bytes(std::span(head)), kNameLength);
  return head.substr(kName, length).ends_with(".npy") ? FileKind::npz : FileKind::pytorch;
}

FileKind kind_of(const ByteSource& source) {
  const std::string head = head_of(source);
  if (head.starts_with(std::string_view(kMagic.data(), kMagic.size()))) return FileKind::lockstep;
  if (head.starts_with("PK\x03\x04"sv) || head.starts_with("PK\x05\x06"sv)) return kind_of_zip(source, head);
  if (is_pickle(head) || is_tar(head)) return FileKind::pytorch;
  if (is_hdf5(source)) return FileKind::hdf5;
  if (is_safetensors(head)) return FileKind::safetensors;
  return is_safetensors_index(source) ? FileKind::safetensors_index : FileKind::unknown;
}

[[noreturn]] void refuse_unknown(const ByteSource& source) {
  const std::string head = head_of(source);
  if (head.empty()) source.refuse("the file is empty, as after a crash before its bytes reached the disk");
  if (head.find_first_not_of('\0') == std::string::npos) {
    source.refuse("it starts with zeros: its writer was interrupted, or its data never reached the disk");
  }
  if (head.starts_with("\x1F\x8B")) {
    source.refuse("it is a gzip file: decompress it first (`gunzip`)", CheckpointFault::other_kind);
  }
  source.refuse("it is not a Lockstep checkpoint, safetensors, PyTorch, npz or HDF5 file", CheckpointFault::other_kind);
}

Archive read_any_pytorch(const ByteSource& source, const std::string& head, const ForeignReading& reading) {
  if (is_tar(head)) {
    source.refuse(
        "it is a PyTorch file in the format used before version 0.4, which is not supported: load it in Python and "
        "call torch.save again",
        CheckpointFault::other_kind);
  }
  if (!head.starts_with("PK")) return read_legacy_pytorch(source, reading.left_out);
  const Zip zip(source, {reading.part, reading.parts});
  return is_pytorch(zip) ? read_pytorch(zip, reading.left_out) : read_npz(zip, reading.left_out);
}

Archive read_kind(const DiskSource& source, const ForeignReading& reading) {
  switch (kind_of(source)) {
    case FileKind::lockstep:
      source.refuse("it is a Lockstep checkpoint, not a file of another program");
    case FileKind::hdf5:
      return read_foreign_hdf5(source);
    case FileKind::safetensors:
      return read_safetensors(source);
    case FileKind::safetensors_index:
      return read_safetensors_index(source, reading.is_mapped);
    case FileKind::pytorch:
      return read_any_pytorch(source, head_of(source), reading);
    case FileKind::npz:
      return read_npz(Zip(source, {reading.part, reading.parts}), reading.left_out);
    case FileKind::unknown:
      break;
  }
  refuse_unknown(source);
}

// --- writing ---

void require_writable(const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, array] : arrays) {
    const std::string object = quoted("array", name);
    if (name.empty() || name.size() > kMaxPartBytes || !is_utf8(name)) {
      throw CheckpointError(object + ": a name has 1 to 1024 bytes of UTF-8");
    }
    if (!names.insert(name).second) throw CheckpointError(object + ": the name is used twice");
    if (nbytes_of(array.dtype, array.shape) != array.bytes.size()) {
      throw std::logic_error("write_foreign: " + object + ": its bytes do not fit its shape and dtype");
    }
  }
  for (const auto& [name, text] : metadata) {
    const bool is_good = !name.empty() && is_utf8(name) && is_utf8(text) && text.find('\0') == std::string::npos;
    if (!is_good) throw CheckpointError(quoted("metadata", name) + ": it is not UTF-8, or has a NUL");
  }
}

void write_hdf5(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  Archive archive;
  for (const auto& [name, text] : metadata) {
    if (text.size() > kMaxAttributeBytes)
      throw CheckpointError(quoted("metadata", name) + ": it is longer than 60000 bytes");
    archive.set("/", encode_name(name), text);
  }
  for (const auto& [name, array] : arrays) {
    const std::string part = encode_name(name);
    if (!is_part(part)) throw CheckpointError(quoted("array", name) + ": its name is too long for HDF5");
    archive.put("/" + part, array);
  }
  const Layout layout = lay_out(archive, 0);
  file.reserve(layout.metadata->end());
  std::uint64_t written = 0;
  std::vector<std::byte> between;
  const auto write_metadata_to = [&](std::uint64_t end) {
    between.resize(end - written);
    layout.metadata->read(written, between);
    file.write(written, between);
  };
  std::map<std::uint64_t, std::span<const std::byte>> by_offset;
  for (const ArrayLocation& place : layout.places) {
    if (place.nbytes != 0) by_offset.emplace(place.offset, archive.array(place.path).bytes);
  }
  for (const auto& [offset, bytes] : by_offset) {
    write_metadata_to(offset);
    file.write(offset, bytes);
    written = offset + bytes.size();
  }
  write_metadata_to(layout.metadata->end());
}

void write_kind(NewFile& file, ExportKind kind, const std::vector<NamedArray>& arrays,
                const ForeignMetadata& metadata) {
  switch (kind) {
    case ExportKind::safetensors:
      return write_safetensors(file, arrays, metadata);
    case ExportKind::pytorch:
      return write_pytorch(file, arrays, metadata);
    case ExportKind::npz:
      return write_npz(file, arrays, metadata);
    case ExportKind::hdf5:
      return write_hdf5(file, arrays, metadata);
  }
}

[[noreturn]] void refuse_existing(const std::string& path) {
  throw CheckpointError(path, "the file already exists and is not overwritten").as(CheckpointFault::refused);
}

/// Gives a finished file its name.
void rename_to(const std::string& from, const std::string& target, IfExists if_exists) {
  if (if_exists == IfExists::replace) return move(from, target);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) refuse_existing(target);
  if (errno != EINVAL && errno != ENOSYS) throw_errno(from, "rename", " to " + target);
  if (exists(target)) refuse_existing(target);
  move(from, target);  // the file system does not support that kind of rename
}

/// A file under construction, removed again unless it gets its name.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {
    if (exists(path_)) remove_tree(path_);  // left by this process after a failure
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() { ::unlink(path_.c_str()); }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// A new file that `write` fills, under its name when it is complete and durable.
template <class Write>
void write_new_file(const std::string& path, IfExists if_exists, const Write& write) {
  if (if_exists == IfExists::refuse && exists(path)) refuse_existing(path);
  const fs::path target(path);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const Temporary temporary(folder + "/" + temporary_name(target.filename().string()));
  NewFile file(temporary.path());
  write(file);
  file.sync();
  file.close();
  rename_to(temporary.path(), path, if_exists);
  sync_folder(folder);
}

/// Adds the path to errors that lack it.
template <class Run>
void with_path(const std::string& path, const Run& run) {
  try {
    run();
  } catch (const CheckpointError& error) {
    if (!error.path().empty()) throw;
    throw CheckpointError(path, error.what()).as(error.fault());
  }
}

}  // namespace

FileKind kind_of(const std::string& path) { return kind_of(DiskSource(path)); }

std::string describe(FileKind kind) {
  static const std::map<FileKind, std::string> kWords = {
      {FileKind::lockstep, "a Lockstep checkpoint"},
      {FileKind::hdf5, "an HDF5 file of another program"},
      {FileKind::safetensors, "a safetensors file"},
      {FileKind::safetensors_index, "a model in several safetensors files"},
      {FileKind::pytorch, "a PyTorch file"},
      {FileKind::npz, "a NumPy npz file"},
      {FileKind::unknown, "a file in an unknown format"},
  };
  return kWords.at(kind);
}

std::string describe(const std::string& path) {
  const DiskSource source(path);
  const FileKind kind = kind_of(source);
  if (kind != FileKind::hdf5) return describe(kind);
  std::string head(std::min<std::uint64_t>(source.size(), kEnvelopeBytes), '\0');
  source.read_to(0, std::as_writable_bytes(std::span(head)));
  return "an HDF5 file of " + hdf5_writer(head);
}

std::vector<std::string> files_of(const std::string& path) {
  const DiskSource source(path);
  std::vector<std::string> files = {path};
  if (kind_of(source) == FileKind::safetensors_index) {
    for (std::string& file : files_of_index(source)) files.push_back(std::move(file));
  }
  return files;
}

Archive read_foreign(const std::string& path, const ForeignReading& reading) {
  const DiskSource source(path, reading.is_mapped);
  try {
    return read_kind(source, reading);
  } catch (const CheckpointError& error) {
    if (!error.path().empty()) throw;
    source.refuse(error.what(), error.fault());
  } catch (const std::bad_alloc&) {
    source.refuse("not enough memory to read it");
  } catch (const std::logic_error& error) {  // Archive refuses it
    source.refuse(std::string("it is malformed: ") + error.what());
  }
}

std::optional<ExportKind> export_kind_of(const std::string& path) {
  const std::string suffix = fs::path(path).extension().string();
  if (suffix == ".safetensors") return ExportKind::safetensors;
  if (suffix == ".pt" || suffix == ".pth") return ExportKind::pytorch;
  if (suffix == ".npz") return ExportKind::npz;
  if (suffix == ".h5" || suffix == ".hdf5") return ExportKind::hdf5;
  return std::nullopt;
}

void write_foreign(const std::string& path, ExportKind kind, const std::vector<NamedArray>& arrays,
                   const ForeignMetadata& metadata, IfExists if_exists) {
  with_path(path, [&] {
    require_writable(arrays, metadata);
    write_new_file(path, if_exists, [&](NewFile& file) { write_kind(file, kind, arrays, metadata); });
  });
}

void write_pytorch_value(const std::string& path, const PythonValue& value) {
  with_path(path, [&] { write_new_file(path, IfExists::refuse, [&](NewFile& file) { write_pytorch(file, value); }); });
}

}  // namespace lockstep::checkpoints
