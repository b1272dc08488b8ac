// SPDX-License-Identifier: BSD-3-Clause
#include <zlib.h>

#include "checkpoints/foreign/zip.hpp"

namespace lockstep::checkpoints {

namespace {

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
