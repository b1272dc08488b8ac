// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/zip.hpp"

#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>

#include "checkpoints/format/names.hpp"
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
  return std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\' || c == ':'; });
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
  const bool is_missing = std::ranges::any_of(wanted, [](const auto* n) { return *n == kElsewhere; });
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

/// The place of the directory.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t records = 0;
};

struct DirectoryEntry {
  ZipRecord record;
  std::uint64_t header = 0;  ///< position of the local header
  std::uint16_t flags = 0;
};

Directory find_large_directory(const ByteSource& source, std::uint64_t locator) {
  std::array<std::byte, kLargeLocatorBytes> where{};
  std::array<std::byte, kLargeEndBytes> end{};
  source.read_to(locator, where);
  const bool is_placed = locator >= kLargeEndBytes && load<std::uint64_t>(where, 8) == locator - kLargeEndBytes;
  if (!is_placed) source.refuse("its 64-bit zip directory is not where the end record states");
  source.read_to(locator - kLargeEndBytes, end);
  if (load<std::uint32_t>(end, 0) != kLargeEndMagic || load<std::uint64_t>(end, 4) != kLargeEndBytes - 12) {
    source.refuse("its 64-bit zip directory is malformed");
  }
  if (load<std::uint32_t>(end, 16) != 0 || load<std::uint32_t>(end, 20) != 0 || load<std::uint32_t>(where, 4) != 0 ||
      load<std::uint32_t>(where, 16) > 1 || load<std::uint64_t>(end, 24) != load<std::uint64_t>(end, 32)) {
    source.refuse("it is a zip archive in several files");
  }
  return {.offset = load<std::uint64_t>(end, 48),
          .bytes = load<std::uint64_t>(end, 40),
          .records = load<std::uint64_t>(end, 32)};
}

Directory find_directory(const ByteSource& source) {
  std::array<std::byte, kEndBytes> end{};
  if (source.size() < kEndBytes) source.refuse("it is a truncated zip archive");
  const std::uint64_t position = source.size() - kEndBytes;
  source.read_to(position, end);
  if (load<std::uint32_t>(end, 0) != kEndMagic || load<std::uint16_t>(end, 20) != 0) {
    source.refuse("it is a zip archive without an end record: it is truncated, or data were appended");
  }
  Directory directory{.offset = load<std::uint32_t>(end, 16),
                      .bytes = load<std::uint32_t>(end, 12),
                      .records = load<std::uint16_t>(end, 10)};
  std::uint64_t border = position;
  std::array<std::byte, 4> magic{};
  const std::uint64_t locator = position < kLargeLocatorBytes ? position : position - kLargeLocatorBytes;
  source.read_to(locator, magic);
  if (load<std::uint32_t>(magic, 0) == kLargeLocatorMagic) {
    const Directory small = directory;
    directory = find_large_directory(source, locator);
    const bool agrees = (small.offset == kElsewhere || small.offset == directory.offset) &&
                        (small.bytes == kElsewhere || small.bytes == directory.bytes) &&
                        (small.records == 0xFFFF || small.records == directory.records);
    if (!agrees) source.refuse("its two zip directories contradict each other");
    border = locator - kLargeEndBytes;
  } else if (load<std::uint16_t>(end, 4) != 0 || load<std::uint16_t>(end, 6) != 0 ||
             load<std::uint16_t>(end, 8) != directory.records) {
    source.refuse("it is a zip archive in several files");
  }
  if (directory.offset > border || directory.bytes != border - directory.offset) {
    source.refuse("its zip directory is not where the end record states");
  }
  if (directory.records > kMaxObjects) source.refuse("its zip directory has more than a million records");
  if (directory.records * kEntryBytes > directory.bytes) source.refuse("its zip directory is too short");
  return directory;
}

/// @param by_name  receives the position of each record
std::vector<DirectoryEntry> read_directory(const ByteSource& source, const Directory& directory,
                                           std::unordered_map<std::string, std::size_t>& by_name) {
  std::vector<DirectoryEntry> entries;
  const OwnedBytes block = source.read(directory.offset, directory.bytes);
  std::span<const std::byte> bytes = block.bytes;
  entries.reserve(directory.records);
  for (std::uint64_t i = 0; i < directory.records; ++i) {
    if (bytes.size() < kEntryBytes || load<std::uint32_t>(bytes, 0) != kDirectoryMagic) {
      source.refuse("its zip directory is malformed at record " + std::to_string(i));
    }
    const std::size_t name = load<std::uint16_t>(bytes, 28), extra = load<std::uint16_t>(bytes, 30);
    const std::size_t whole = kEntryBytes + name + extra + load<std::uint16_t>(bytes, 32);
    if (bytes.size() < whole) source.refuse("its zip directory ends inside record " + std::to_string(i));
    ZipRecord record{.name = std::string(reinterpret_cast<const char*>(bytes.data()) + kEntryBytes, name),
                     .offset = 0,
                     .stored_bytes = load<std::uint32_t>(bytes, 20),
                     .bytes = load<std::uint32_t>(bytes, 24),
                     .crc = load<std::uint32_t>(bytes, 16),
                     .is_deflated = load<std::uint16_t>(bytes, 10) == kDeflated};
    const std::string object = quoted("record", record.name);
    if (!is_good_name(record.name)) source.refuse(object, "this name is not allowed", CheckpointFault::refused);
    std::uint64_t header = load<std::uint32_t>(bytes, 42);
    const auto flags = load<std::uint16_t>(bytes, 8);
    if ((flags & kEncrypted) != 0) source.refuse(object, "it is encrypted");
    if (load<std::uint16_t>(bytes, 34) != 0) source.refuse(object, "it is in another file");
    const auto method = load<std::uint16_t>(bytes, 10);
    if (method != kStored && method != kDeflated) {
      source.refuse(object, "its compression (" + std::to_string(method) + ") is neither none nor deflate");
    }
    read_large_field(source, bytes.subspan(kEntryBytes + name, extra), record, header);
    if (!by_name.emplace(record.name, entries.size()).second) source.refuse(object, "the name is used twice");
    entries.push_back({std::move(record), header, flags});
    bytes = bytes.subspan(whole);
  }
  if (!bytes.empty()) source.refuse("its zip directory contains bytes that belong to no record");
  return entries;
}

/// @return  where the bytes begin
std::uint64_t read_local_header(const ByteSource& source, const DirectoryEntry& entry, std::uint64_t directory) {
  const auto& [record, header, flags] = entry;
  const std::string object = quoted("record", record.name);
  const std::uint64_t needed = kLocalBytes + record.name.size();
  if (header > directory || directory - header < needed) source.refuse(object, "it is after the directory");
  std::vector<std::byte> head(needed);
  source.read_to(header, head);
  if (load<std::uint32_t>(head, 0) != kLocalMagic) source.refuse(object, "no record starts at the stated offset");
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
  if (!agrees) source.refuse(object, "its local header contradicts the directory");
  const std::uint64_t begin = header + needed + load<std::uint16_t>(head, 28);
  if (begin > directory || record.stored_bytes > directory - begin) {
    source.refuse(object,
                  "it states a size of " + std::to_string(record.stored_bytes) + " bytes, more than the file has");
  }
  if (!record.is_deflated && record.stored_bytes != record.bytes) {
    source.refuse(object, "its compressed and uncompressed size differ although it is not compressed");
  }
  return begin;
}

/// The records do not overlap.
void check_places(const ByteSource& source, std::vector<DirectoryEntry> entries) {
  std::ranges::stable_sort(entries, {}, &DirectoryEntry::header);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const ZipRecord& before = entries[i - 1].record;
    if (before.offset + before.stored_bytes > entries[i].header) {
      source.refuse(quoted("record", before.name), "it overlaps another record");
    }
  }
}

// --- writing ---

constexpr std::uint64_t kRecordAlignment = 64;
constexpr std::uint16_t kUtf8Names = 1 << 11;
constexpr std::uint16_t kDate = 1 << 5 | 1;  // 1980-01-01: equal archives are equal bytes

template <class Value>
void append(std::string& text, Value value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    text += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}

/// The fields that stand both in front of a record and in the directory.
struct Fields {
  std::uint16_t version = 20;
  std::uint32_t crc = 0;
  std::uint32_t bytes = 0;
  std::uint16_t name_bytes = 0;
  std::uint16_t extra_bytes = 0;

  void append_to(std::string& text) const {
    append(text, version);
    append(text, kUtf8Names);
    append(text, std::uint16_t{0});  // not compressed
    append(text, std::uint16_t{0});
    append(text, kDate);
    append(text, crc);
    append(text, bytes);
    append(text, bytes);
    append(text, name_bytes);
    append(text, extra_bytes);
  }
};

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;  // zlib takes a null pointer for a question
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// The extra field of 64-bit numbers.
std::string large_field(std::initializer_list<std::uint64_t> numbers) {
  std::string text;
  append(text, std::uint16_t{1});
  append(text, static_cast<std::uint16_t>(8 * numbers.size()));
  for (const std::uint64_t number : numbers) append(text, number);
  return text;
}

}  // namespace

Zip::Zip(const ByteSource& source, ZipShare checked) : source_(source), checked_(checked) {
  const Directory directory = find_directory(source);
  std::vector<DirectoryEntry> entries = read_directory(source, directory, by_name_);
  for (DirectoryEntry& entry : entries) {
    entry.record.offset = read_local_header(source, entry, directory.offset);
    records_.push_back(entry.record);
  }
  check_places(source, std::move(entries));
}

const ZipRecord* Zip::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &records_[found->second];
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

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  const bool is_large = bytes.size() >= large_from_;
  const bool is_far = end_ >= large_from_;
  Fields fields{.version = static_cast<std::uint16_t>(is_large ? 45 : 20),
                .crc = crc_of(bytes),
                .bytes = is_large ? kElsewhere : static_cast<std::uint32_t>(bytes.size()),
                .name_bytes = static_cast<std::uint16_t>(name.size()),
                .extra_bytes = 0};
  std::string extra = is_large ? large_field({bytes.size(), bytes.size()}) : "";
  constexpr std::uint64_t kLocalBytes = 30, kPaddingHead = 4;
  const std::uint64_t begin = end_ + kLocalBytes + name.size() + extra.size() + kPaddingHead;
  const std::uint64_t padding = (kRecordAlignment - begin % kRecordAlignment) % kRecordAlignment;
  extra += "FB";  // the field that PyTorch pads with
  append(extra, static_cast<std::uint16_t>(padding));
  extra.append(padding, '\0');
  fields.extra_bytes = static_cast<std::uint16_t>(extra.size());

  std::string head = "PK\x03\x04";
  fields.append_to(head);
  head += name + extra;
  file_.write(end_, std::as_bytes(std::span(head)));
  file_.write(end_ + head.size(), bytes);

  extra = is_large && is_far ? large_field({bytes.size(), bytes.size(), end_})
          : is_large         ? large_field({bytes.size(), bytes.size()})
          : is_far           ? large_field({end_})
                             : "";
  fields.extra_bytes = static_cast<std::uint16_t>(extra.size());
  fields.version = static_cast<std::uint16_t>(is_large || is_far ? 45 : 20);
  directory_ += "PK\x01\x02";
  append(directory_, fields.version);
  fields.append_to(directory_);
  append(directory_, std::uint16_t{0});  // comment, disk, attributes
  append(directory_, std::uint16_t{0});
  append(directory_, std::uint16_t{0});
  append(directory_, std::uint32_t{0});
  append(directory_, is_far ? kElsewhere : static_cast<std::uint32_t>(end_));
  directory_ += name + extra;
  end_ += head.size() + bytes.size();
  ++count_;
}

void ZipWriter::finish() {
  const std::uint64_t begin = end_, bytes = directory_.size();
  const bool is_large = begin >= large_from_ || bytes >= large_from_ || count_ >= 0xFFFF;
  if (is_large) {
    directory_ += "PK\x06\x06";
    append(directory_, std::uint64_t{44});
    append(directory_, std::uint16_t{45});
    append(directory_, std::uint16_t{45});
    append(directory_, std::uint64_t{0});  // two numbers of disks
    for (const std::uint64_t number : {count_, count_, bytes, begin}) append(directory_, number);
    directory_ += "PK\x06\x07";
    append(directory_, std::uint32_t{0});
    append(directory_, begin + bytes);
    append(directory_, std::uint32_t{1});
  }
  directory_ += "PK\x05\x06";
  append(directory_, std::uint32_t{0});
  for (int i = 0; i < 2; ++i) append(directory_, static_cast<std::uint16_t>(is_large ? 0xFFFF : count_));
  append(directory_, is_large ? kElsewhere : static_cast<std::uint32_t>(bytes));
  append(directory_, is_large ? kElsewhere : static_cast<std::uint32_t>(begin));
  append(directory_, std::uint16_t{0});
  file_.write(end_, std::as_bytes(std::span(directory_)));
  end_ += directory_.size();
}

}  // namespace lockstep::checkpoints
