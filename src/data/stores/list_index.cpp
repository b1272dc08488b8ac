// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/list_index.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "data/source/hash.hpp"
#include "data/stores/cache_files.hpp"

namespace lockstep::data {

namespace {

constexpr std::array<char, 16> kIndexMagic = {'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                                              '-', 'l', 'i', 'n', 'e', 's', ' ', '1'};

/// The beginning of the file; the positions of the lines follow.
struct Header {
  std::array<char, 16> magic = kIndexMagic;
  FileStamp stamp;
  std::uint64_t target = 0;
  std::uint64_t lines = 0;
  std::int64_t max_label = 0;
  std::uint64_t has_several = 0;
  std::int64_t classes = 0;
  std::uint64_t lines_digest = 0;
  TextDigest text;
  std::uint64_t starts_digest = 0;
  std::uint64_t own_digest = 0;  ///< digest of the header up to here
};
static_assert(sizeof(Header) == 16 * sizeof(std::uint64_t), "without gaps");

std::string path_of(const ListIndexKey& key) {
  std::error_code error;  // if it is set, the path of the list is used unchanged
  const std::string canonical = std::filesystem::weakly_canonical(key.list, error).string();
  const std::string& list = error ? key.list : canonical;
  return cache_path(key.cache, list + "\n" + std::to_string(static_cast<int>(key.target)), ".lines");
}

std::uint64_t own_digest_of(const Header& header) {
  return hash_of(std::span(reinterpret_cast<const std::uint8_t*>(&header), offsetof(Header, own_digest)));
}

std::span<const std::uint8_t> bytes_of(std::span<const std::uint64_t> starts) {
  return {reinterpret_cast<const std::uint8_t*>(starts.data()), starts.size_bytes()};
}

template <class T>
std::string_view chars_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

std::shared_ptr<const ListIndex> ListIndex::find(const ListIndexKey& key) {
  try {
    const std::shared_ptr<ListIndex> index(new ListIndex(path_of(key)));
    if (index->take(key)) return index;
  } catch (const DataError&) {  // there is none, or it cannot be read
  }
  return nullptr;
}

bool ListIndex::take(const ListIndexKey& key) {
  const auto bytes = file_.bytes();
  Header header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t rest = bytes.size() - sizeof header;
  if (header.magic != kIndexMagic || header.own_digest != own_digest_of(header)) return false;
  if (header.stamp != key.stamp || header.target != static_cast<std::uint64_t>(key.target)) return false;
  if (rest % sizeof(std::uint64_t) != 0 || rest / sizeof(std::uint64_t) != header.lines) return false;
  starts_ = {reinterpret_cast<const std::uint64_t*>(bytes.data() + sizeof header), header.lines};
  if (hash_of(bytes_of(starts_)) != header.starts_digest) return false;
  facts_ = {.max_label = header.max_label,
            .has_several = header.has_several != 0,
            .classes = header.classes,
            .lines_digest = header.lines_digest,
            .text = header.text};
  file_.check();
  return true;
}

bool ListIndex::write(const ListIndexKey& key, const ListFacts& facts, std::span<const std::uint64_t> starts) {
  Header header{.stamp = key.stamp,
                .target = static_cast<std::uint64_t>(key.target),
                .lines = starts.size(),
                .max_label = facts.max_label,
                .has_several = facts.has_several ? 1U : 0U,
                .classes = facts.classes,
                .lines_digest = facts.lines_digest,
                .text = facts.text,
                .starts_digest = hash_of(bytes_of(starts))};
  header.own_digest = own_digest_of(header);
  return write_whole(path_of(key), {chars_of(std::span<const Header>(&header, 1)), chars_of(starts)});
}

}  // namespace lockstep::data
