// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/npy_file.hpp"

#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "checkpoints/foreign/npz.hpp"
#include "checkpoints/foreign/pytorch.hpp"
#include "checkpoints/foreign/zip.hpp"
#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::uint64_t kMaxHeadBytes = 65536;  // NumPy itself reads headers of up to 10000 bytes

// --- element types ---

constexpr std::array<std::pair<std::string_view, NumberType>, 12> kNumbers = {{
    {"f2", {NumberKind::real, 2}},
    {"f4", {NumberKind::real, 4}},
    {"f8", {NumberKind::real, 8}},
    {"i1", {NumberKind::signed_integer, 1}},
    {"i2", {NumberKind::signed_integer, 2}},
    {"i4", {NumberKind::signed_integer, 4}},
    {"i8", {NumberKind::signed_integer, 8}},
    {"u1", {NumberKind::unsigned_integer, 1}},
    {"b1", {NumberKind::unsigned_integer, 1}},  // true and false
    {"u2", {NumberKind::unsigned_integer, 2}},
    {"u4", {NumberKind::unsigned_integer, 4}},
    {"u8", {NumberKind::unsigned_integer, 8}},
}};

constexpr std::array<std::pair<char, const char*>, 8> kRefused = {{
    {'O', "are Python objects, which are never loaded; save an array of numbers"},
    {'c', "are complex numbers; save real and imaginary parts as two arrays"},
    {'S', "are texts, not numbers"},
    {'U', "are texts, not numbers"},
    {'M', "are dates; save them as numbers"},
    {'m', "are spans of time; save them as numbers"},
    {'V', "are records, not numbers; save a field as an array"},
    {'f', "are floating-point numbers of an unsupported size; save them as float64"},
}};

/// @param descr  such as "<f4" and "|b1"
/// @throws DataError  without the file
NumberType number_type(const std::string& descr) {
  const std::string name = descr.size() > 1 ? descr.substr(1) : "";
  const auto* const row = std::ranges::find(kNumbers, name, &std::pair<std::string_view, NumberType>::first);
  const bool has_order = !descr.empty() && std::string_view("<>|=").find(descr.front()) != std::string_view::npos;
  if (row != kNumbers.end() && has_order) {
    NumberType type = row->second;
    const bool is_big = descr.front() == '>' || (descr.front() == '=' && std::endian::native == std::endian::big);
    type.is_big_endian = is_big && type.bytes > 1;
    return type;
  }
  const char kind = name.empty() ? ' ' : name.front();
  const auto* const refused = std::ranges::find(kRefused, kind, &std::pair<char, const char*>::first);
  throw DataError("its elements (" + utf8_text(descr) + ") " +
                  (refused == kRefused.end() ? "are of an unknown type" : refused->second));
}

// --- members ---

/// An array of the file.
struct Member {
  ArrayInfo info;
  PlainArray place;  ///< its axes have the order in which they are stored
  bool is_column_major = false;
  std::uint64_t bytes = 0;                         ///< size, header included
  const checkpoints::ZipRecord* record = nullptr;  ///< null in an npy file
  std::string refusal;                             ///< the reason why it cannot be read; empty = it can

  bool is_deflated() const { return record != nullptr && record->is_deflated; }
};

/// Calls read(). Its errors, which state a fault of the format, become DataErrors with a remedy.
template <class Read>
auto with_remedy(const std::string& remedy, const Read& read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    const std::string message = error.what();
    const std::size_t begin = error.path().empty() ? 0 : error.path().size() + 2;  // the text after "PATH: "
    throw DataError(message.substr(begin) + "; " + remedy);
  }
}

/// @param head    beginning of the array
/// @param offset  its position in the file, or 0 if it is compressed
/// @throws DataError, CheckpointError  without the file
void set_member(Member& member, std::span<const std::byte> head, std::uint64_t offset) {
  const checkpoints::NpyLine line =
      with_remedy("save it again with numpy.save", [&] { return checkpoints::parse_npy_line(head); });
  member.info.shape = line.shape;
  member.info.axes.assign(line.shape.size(), "");
  member.info.type = number_type(line.descr);
  if (member.is_deflated()) member.info.storage = {.layout = "chunked", .chunk = line.shape, .filters = {"deflate"}};
  const auto needed = bytes_of(line.shape, member.info.type.bytes);
  const std::uint64_t there = member.bytes - line.bytes;
  if (!needed || *needed != there) {
    throw DataError("its shape " + shape_text(line.shape) + " needs " + (needed ? std::to_string(*needed) : "2^63") +
                    " bytes, but there are " + std::to_string(there) + "; it is truncated or damaged");
  }
  member.is_column_major = line.is_column_major && line.shape.size() > 1;
  member.place = {.offset = offset + line.bytes, .shape = line.shape, .bytes = member.info.type.bytes};
  if (member.is_column_major) std::ranges::reverse(member.place.shape);
}

Slab reversed(Slab slab) {
  for (auto* const axes : {&slab.start, &slab.count, &slab.step}) std::ranges::reverse(*axes);
  return slab;
}

/// Reads a part of an array; `read` reads the bytes in which it lies.
void read_member(const Member& member, const ReadBytes& read, const Slab& slab, std::span<std::byte> out) {
  if (!member.is_column_major) return read_plain(read, member.place, slab, out);
  std::vector<std::byte> columns(out.size());
  read_plain(read, member.place, reversed(slab), columns);
  std::vector<std::int64_t> strides;
  auto stride = static_cast<std::int64_t>(member.place.bytes);
  for (const std::int64_t count : slab.count) strides.push_back(std::exchange(stride, stride * count));
  checkpoints::gather(columns, slab.count, strides, member.place.bytes, out);
}

/// The first bytes of a record of an archive, unpacked.
std::vector<std::byte> head_of(const InputFile& file, const checkpoints::ZipRecord& record) {
  std::vector<std::byte> stored(static_cast<std::size_t>(std::min(record.stored_bytes, kMaxHeadBytes)));
  file.read(record.offset, stored);
  if (!record.is_deflated) return stored;
  std::vector<std::byte> head(static_cast<std::size_t>(std::min(record.bytes, kMaxHeadBytes)));
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw DataError("there is no memory for unpacking it");
  stream.next_in = reinterpret_cast<Bytef*>(stored.data());
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(head.data());
  stream.avail_out = static_cast<uInt>(head.size());
  const int result = inflate(&stream, Z_SYNC_FLUSH);
  inflateEnd(&stream);
  if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) throw DataError("its bytes are damaged");
  head.resize(head.size() - stream.avail_out);
  return head;
}

class NpyFile final : public ArrayFile {
 public:
  explicit NpyFile(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {
    std::vector<std::byte> head(static_cast<std::size_t>(std::min(file_->size(), kMaxHeadBytes)));
    file_->read(0, head);
    member_.bytes = file_->size();
    with_place(path(), "", [&] { set_member(member_, head, 0); });
  }

  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override { return {""}; }
  ArrayInfo find(const std::string& name) const override {
    if (name.empty()) return member_.info;
    throw DataError(path(), "there is no variable '" + name + "': an npy file has one array, which has no name");
  }
  Attributes attributes_of(const std::string&) const override { return {}; }
  std::vector<std::string> texts(const std::string&) const override { return {}; }

  void read(const ArrayInfo& array, const Slab& slab, std::span<std::byte> out) const override {
    require_inside(path(), member_.info, slab, out.size());
    const auto read_file = [&](std::uint64_t offset, std::span<std::byte> bytes) { file_->read(offset, bytes); };
    file_->while_unchanged([&] { read_member(member_, read_file, slab, out); });
    if (is_foreign_order(array.type)) reverse_elements(out, array.type.bytes);
  }

 private:
  std::shared_ptr<const InputFile> file_;
  Member member_;
};

class NpzFile final : public ArrayFile {
 public:
  explicit NpzFile(std::shared_ptr<const InputFile> file)
      : file_(std::move(file)), source_(open_source(file_->path())), zip_(open_zip(source_)), expansion_(source_) {
    for (const checkpoints::ZipRecord& record : zip_.records()) {
      if (record.name.ends_with(kSuffix)) add(record);
    }
    file_->require_same_at_path();
    if (members_.empty()) throw DataError(path(), fault_of_archive());
  }

  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, member] : members_) names.push_back(name);
    return names;
  }
  ArrayInfo find(const std::string& name) const override {
    const Member& member = find_member(name);
    if (!member.refusal.empty()) throw DataError(path(), called(name) + ": " + member.refusal);
    return member.info;
  }
  Attributes attributes_of(const std::string&) const override { return {}; }
  std::vector<std::string> texts(const std::string&) const override { return {}; }

  void read(const ArrayInfo& array, const Slab& slab, std::span<std::byte> out) const override {
    const Member& member = find_member(array.path);
    require_inside(path(), member.info, slab, out.size());
    if (member.is_deflated()) {
      const std::span<const std::byte> bytes = unpacked(member);
      const auto copy = [&](std::uint64_t offset, std::span<std::byte> part) {
        std::memcpy(part.data(), bytes.data() + offset, part.size());
      };
      read_member(member, copy, slab, out);
    } else {
      const auto read_file = [&](std::uint64_t offset, std::span<std::byte> part) { file_->read(offset, part); };
      file_->while_unchanged([&] { read_member(member, read_file, slab, out); });
    }
    if (is_foreign_order(array.type)) reverse_elements(out, array.type.bytes);
  }

 private:
  static checkpoints::DiskSource open_source(const std::string& path) {
    return with_place(path, "", [&] { return checkpoints::DiskSource(path); });
  }
  static checkpoints::Zip open_zip(const checkpoints::DiskSource& source) {
    const auto open = [&] { return checkpoints::Zip(source); };
    return with_place(source.path(), "", [&] { return with_remedy("copy it or save it again", open); });
  }

  void add(const checkpoints::ZipRecord& record) {
    Member member;
    member.bytes = record.bytes;
    member.record = &record;
    member.info.path = record.name.substr(0, record.name.size() - kSuffix.size());
    try {
      set_member(member, head_of(*file_, record), record.is_deflated ? 0 : record.offset);
    } catch (const DataError& error) {
      if (!error.path().empty()) throw;
      member.refusal = error.what();
    } catch (const CheckpointError& error) {
      member.refusal = error.what();
    }
    members_.emplace(member.info.path, std::move(member));
  }

  std::string fault_of_archive() const {
    const bool is_zarr = std::ranges::any_of(zip_.records(), [](const auto& record) {
      const std::string name = record.name.substr(record.name.rfind('/') + 1);
      return name == ".zarray" || name == ".zgroup" || name == "zarr.json";
    });
    return is_zarr ? "it is a zarr store, which is not supported; convert it to HDF5 or netCDF-4"
                   : "it is a zip archive without arrays of NumPy (`unzip -l` lists it)";
  }

  const Member& find_member(const std::string& name) const {
    const auto found = members_.find(name);
    if (found != members_.end()) return found->second;
    throw DataError(path(), no_such_array(name, names()));
  }

  std::span<const std::byte> unpacked(const Member& member) const {
    const std::lock_guard hold(mutex_);
    checkpoints::OwnedBytes& block = unpacked_[member.info.path];
    if (!block.owner) {
      checkpoints::OwnedBytes read;
      file_->while_unchanged([&] {
        read = with_place(path(), "", [&] { return zip_.read(*member.record, called(member.info.path), expansion_); });
      });
      block = std::move(read);
    }
    return block.bytes;
  }

  std::shared_ptr<const InputFile> file_;
  checkpoints::DiskSource source_;
  checkpoints::Zip zip_;
  std::map<std::string, Member> members_;
  mutable std::mutex mutex_;  ///< protects the next two
  mutable checkpoints::Expansion expansion_;
  mutable std::map<std::string, checkpoints::OwnedBytes> unpacked_;
};

}  // namespace

std::shared_ptr<const ArrayFile> open_npy(std::shared_ptr<const InputFile> file) {
  return std::make_shared<const NpyFile>(std::move(file));
}

std::shared_ptr<const ArrayFile> open_npz(std::shared_ptr<const InputFile> file) {
  return std::make_shared<const NpzFile>(std::move(file));
}

}  // namespace lockstep::arrays
