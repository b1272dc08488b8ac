// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>

#include "checkpoints/foreign/zip.hpp"
#include "checkpoints/format/limits.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::uint32_t kLocalMagic = 0x04034B50;
constexpr std::uint32_t kDirectoryMagic = 0x02014B50;
constexpr std::uint32_t kEndMagic = 0x06054B50;
constexpr std::uint32_t kLargeEndMagic = 0x06064B50;
constexpr std::uint32_t kLargeLocatorMagic = 0x07064B50;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kEntryBytes = 46;
constexpr std::uint64_t kViewAlignment = 8;  // alignment of records that are used in place
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kLargeEndBytes = 56;
constexpr std::uint64_t kLargeLocatorBytes = 20;
constexpr std::uint16_t kLargeField = 1;
constexpr std::uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13;
constexpr std::uint16_t kSizesBehind = 1 << 3;  // sizes and CRC come after the bytes; in front stand zeros
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;
constexpr std::uint64_t kMaxDeflated = 1040;  // deflate makes at most 1032 bytes of one

bool is_good_name(const std::string& name) {
  if (name.empty() || name.size() > 4096 || name.front() == '/' || !is_utf8(name)) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part == ".." || part == ".") return false;
    begin = end + 1;
  }
  return std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\' || c == ':'; });
}

/// The numbers that did not fit into 32 bits, in the order of the format.
void read_large_field(const ByteSource& source, std::span<const std::byte> extra, ZipRecord& record,
                      std::uint64_t& header) {
  std::array<std::uint64_t*, 3> wanted = {&record.bytes, &record.stored_bytes, &header};
  for (std::size_t position = 0; position + 4 <= extra.size();) {
    const std::size_t length = load<std::uint16_t>(extra, position + 2);
    if (length > extra.size() - position - 4) break;
    const auto field = extra.subspan(position + 4, length);
    if (load<std::uint16_t>(extra, position) == kLargeField) {
      std::size_t used = 0;
      for (std::uint64_t* number : wanted) {
        if (*number != kElsewhere || used + 8 > field.size()) continue;
        *number = load<std::uint64_t>(field, used);
        used += 8;
      }
      return;
    }
    position += 4 + length;
  }
  const bool is_missing = std::any_of(wanted.begin(), wanted.end(), [](const auto* n) { return *n == kElsewhere; });
  if (is_missing) source.refuse("its zip directory lacks a 64-bit size");
}

/// Inflates a record whole.
bool inflate_to(std::span<const std::byte> from, std::span<std::byte> target) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // zlib counts in 32 bits
  std::byte none{};
  int result = Z_OK;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data()));
  stream.next_out = reinterpret_cast<Bytef*>(target.empty() ? &none : target.data());
  while (result == Z_OK) {
    const std::size_t in = std::min(kMaxBytes, from.size()), out = std::min(kMaxBytes, target.size());
    stream.avail_in = static_cast<uInt>(in);
    stream.avail_out = static_cast<uInt>(out);
    result = inflate(&stream, Z_NO_FLUSH);
    from = from.subspan(in - stream.avail_in);
    target = target.subspan(out - stream.avail_out);
    const bool is_stuck = stream.avail_in == in && stream.avail_out == out;
    if (is_stuck && result == Z_OK) result = Z_BUF_ERROR;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && from.empty() && target.empty();
}

}  // namespace

Zip::Zip(const ByteSource& source, ZipShare checked) : source_(source), checked_(checked) {
  const Directory directory = find_directory();
  read_directory(directory);
  read_local_headers(directory.offset);
}

const ZipRecord* Zip::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

Zip::Directory Zip::find_directory() const {
  std::array<std::byte, kEndBytes> end{};
  if (source_.size() < kEndBytes) source_.refuse("it is a truncated zip archive");
  const std::uint64_t position = source_.size() - kEndBytes;
  source_.read_to(position, end);
  if (load<std::uint32_t>(end, 0) != kEndMagic || load<std::uint16_t>(end, 20) != 0) {
    source_.refuse("it is a zip archive without an end record: it is truncated, or data were appended");
  }
  Directory directory{.offset = load<std::uint32_t>(end, 16),
                      .bytes = load<std::uint32_t>(end, 12),
                      .records = load<std::uint16_t>(end, 10)};
  std::uint64_t border = position;
  std::array<std::byte, 4> magic{};
  const std::uint64_t locator = position < kLargeLocatorBytes ? position : position - kLargeLocatorBytes;
  source_.read_to(locator, magic);
  if (load<std::uint32_t>(magic, 0) == kLargeLocatorMagic) {
    const Directory small = directory;
    directory = find_large_directory(locator);
    const bool agrees = (small.offset == kElsewhere || small.offset == directory.offset) &&
                        (small.bytes == kElsewhere || small.bytes == directory.bytes) &&
                        (small.records == 0xFFFF || small.records == directory.records);
    if (!agrees) source_.refuse("its two zip directories contradict each other");
    border = locator - kLargeEndBytes;
  } else if (load<std::uint16_t>(end, 4) != 0 || load<std::uint16_t>(end, 6) != 0 ||
             load<std::uint16_t>(end, 8) != directory.records) {
    source_.refuse("it is a zip archive in several files");
  }
  if (directory.offset > border || directory.bytes != border - directory.offset) {
    source_.refuse("its zip directory is not where the end record states");
  }
  if (directory.records > kMaxObjects) source_.refuse("its zip directory has more than a million records");
  if (directory.records * kEntryBytes > directory.bytes) source_.refuse("its zip directory is too short");
  return directory;
}

Zip::Directory Zip::find_large_directory(std::uint64_t locator) const {
  std::array<std::byte, kLargeLocatorBytes> where{};
  std::array<std::byte, kLargeEndBytes> end{};
  source_.read_to(locator, where);
  const bool is_placed = locator >= kLargeEndBytes && load<std::uint64_t>(where, 8) == locator - kLargeEndBytes;
  if (!is_placed) source_.refuse("its 64-bit zip directory is not where the end record states");
  source_.read_to(locator - kLargeEndBytes, end);
  if (load<std::uint32_t>(end, 0) != kLargeEndMagic || load<std::uint64_t>(end, 4) != kLargeEndBytes - 12) {
    source_.refuse("its 64-bit zip directory is malformed");
  }
  if (load<std::uint32_t>(end, 16) != 0 || load<std::uint32_t>(end, 20) != 0 || load<std::uint32_t>(where, 4) != 0 ||
      load<std::uint32_t>(where, 16) > 1 || load<std::uint64_t>(end, 24) != load<std::uint64_t>(end, 32)) {
    source_.refuse("it is a zip archive in several files");
  }
  return {.offset = load<std::uint64_t>(end, 48),
          .bytes = load<std::uint64_t>(end, 40),
          .records = load<std::uint64_t>(end, 32)};
}

void Zip::read_directory(const Directory& directory) {
  const OwnedBytes block = source_.read(directory.offset, directory.bytes);
  std::span<const std::byte> bytes = block.bytes;
  records_.reserve(directory.records);
  for (std::uint64_t i = 0; i < directory.records; ++i) {
    if (bytes.size() < kEntryBytes || load<std::uint32_t>(bytes, 0) != kDirectoryMagic) {
      source_.refuse("its zip directory is malformed at record " + std::to_string(i));
    }
    const std::size_t name = load<std::uint16_t>(bytes, 28), extra = load<std::uint16_t>(bytes, 30);
    const std::size_t whole = kEntryBytes + name + extra + load<std::uint16_t>(bytes, 32);
    if (bytes.size() < whole) source_.refuse("its zip directory ends inside record " + std::to_string(i));
    ZipRecord record{.name = std::string(reinterpret_cast<const char*>(bytes.data()) + kEntryBytes, name),
                     .offset = 0,
                     .stored_bytes = load<std::uint32_t>(bytes, 20),
                     .bytes = load<std::uint32_t>(bytes, 24),
                     .crc = load<std::uint32_t>(bytes, 16),
                     .is_deflated = load<std::uint16_t>(bytes, 10) == kDeflated};
    const std::string object = quoted("record", record.name);
    if (!is_good_name(record.name)) source_.refuse(object, "this name is not allowed", CheckpointFault::refused);
    Local local{.header = load<std::uint32_t>(bytes, 42), .flags = load<std::uint16_t>(bytes, 8)};
    if ((local.flags & kEncrypted) != 0) source_.refuse(object, "it is encrypted");
    if (load<std::uint16_t>(bytes, 34) != 0) source_.refuse(object, "it is in another file");
    const auto method = load<std::uint16_t>(bytes, 10);
    if (method != kStored && method != kDeflated) {
      source_.refuse(object, "its compression (" + std::to_string(method) + ") is neither none nor deflate");
    }
    read_large_field(source_, bytes.subspan(kEntryBytes + name, extra), record, local.header);
    if (!by_name_.emplace(record.name, records_.size()).second) source_.refuse(object, "the name is used twice");
    records_.push_back(std::move(record));
    locals_.push_back(local);
    bytes = bytes.subspan(whole);
  }
  if (!bytes.empty()) source_.refuse("its zip directory contains bytes that belong to no record");
}

void Zip::read_local_headers(std::uint64_t directory) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // header to the end of the bytes, index
  for (std::size_t i = 0; i < records_.size(); ++i) {
    ZipRecord& record = records_[i];
    record.offset = locals_[i].header;
    record.offset = read_local_header(record, locals_[i].flags, directory);
    ranges.emplace_back(locals_[i].header, i);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const ZipRecord& before = records_[ranges[i - 1].second];
    if (before.offset + before.stored_bytes > ranges[i].first) {
      source_.refuse(quoted("record", before.name), "it overlaps another record");
    }
  }
}

/// @return  where the bytes begin
std::uint64_t Zip::read_local_header(ZipRecord& record, std::uint16_t flags, std::uint64_t directory) const {
  const std::string object = quoted("record", record.name);
  const std::uint64_t header = record.offset, needed = kLocalBytes + record.name.size();
  if (header > directory || directory - header < needed) source_.refuse(object, "it is after the directory");
  std::vector<std::byte> head(needed);
  source_.read_to(header, head);
  if (load<std::uint32_t>(head, 0) != kLocalMagic) source_.refuse(object, "no record starts at the stated offset");
  const std::string name(reinterpret_cast<const char*>(head.data()) + kLocalBytes, record.name.size());
  const bool has_sizes = (flags & kSizesBehind) == 0;
  const auto is_told = [&](std::size_t position, std::uint64_t number) {
    const auto event = load<std::uint32_t>(head, position);
    return event == number || event == kElsewhere || (!has_sizes && event == 0);
  };
  const bool agrees = load<std::uint16_t>(head, 26) == record.name.size() && name == record.name &&
                      load<std::uint16_t>(head, 6) == flags &&
                      load<std::uint16_t>(head, 8) == (record.is_deflated ? kDeflated : kStored) &&
                      is_told(14, record.crc) && is_told(18, record.stored_bytes) && is_told(22, record.bytes);
  if (!agrees) source_.refuse(object, "its local header contradicts the directory");
  const std::uint64_t begin = header + needed + load<std::uint16_t>(head, 28);
  if (begin > directory || record.stored_bytes > directory - begin) {
    source_.refuse(object,
                   "it states a size of " + std::to_string(record.stored_bytes) + " bytes, more than the file has");
  }
  if (!record.is_deflated && record.stored_bytes != record.bytes) {
    source_.refuse(object, "its compressed and uncompressed size differ although it is not compressed");
  }
  return begin;
}

OwnedBytes Zip::read(const ZipRecord& record, const std::string& object, Expansion& expansion) const {
  OwnedBytes block = source_.view(record.offset, record.stored_bytes, kViewAlignment);
  if (record.is_deflated) {
    const bool is_lie = record.bytes / kMaxDeflated > record.stored_bytes;
    if (is_lie) source_.refuse(object, "its record states more bytes than deflate can produce");
    expansion.take(object, record.bytes);
    const std::shared_ptr<std::byte> memory = allocate_aligned(record.bytes);
    const std::span<std::byte> bytes(memory.get(), record.bytes);
    if (!inflate_to(block.bytes, bytes)) source_.refuse(object, "its compressed bytes are damaged");
    block = {bytes, memory};
  }
  const auto number = static_cast<std::size_t>(&record - records_.data());
  if (number % checked_.parts != checked_.part) return block;
  const auto* from = reinterpret_cast<const Bytef*>(block.bytes.data());
  if (crc32_z(0, from, block.bytes.size()) != record.crc) {
    source_.refuse(object, "it is damaged: the bytes of record " + record.name + " differ from their CRC-32");
  }
  release_pages(block);
  return block;
}

}  // namespace lockstep::checkpoints
