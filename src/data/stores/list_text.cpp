// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/list_text.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "core/text/text.hpp"
#include "core/text/text_files.hpp"
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

constexpr std::int64_t kMaxClasses = std::int64_t{1} << 24;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr const char* kNoLabels = "-";  // an image without any of several classes

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view without_end_blanks(std::string_view text) {
  while (!text.empty() && (is_blank(text.back()) || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

/// A whole number or a finite real one, with nothing around it.
template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole_text = error == std::errc() && end == text.data() + text.size();
  return is_whole_text && std::isfinite(static_cast<double>(value)) ? std::optional(value) : std::nullopt;
}

template <class Call>
void for_each_word(std::string_view text, const Call& call) {
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    call(text.substr(0, comma));
    if (comma == text.size()) return;
    text.remove_prefix(comma + 1);
  }
}

std::int64_t words_in_label(std::string_view label) { return 1 + std::ranges::count(label, ','); }

std::string_view whole_line(std::string_view text, std::size_t start) {
  return text.substr(start, std::min(text.find('\n', start), text.size()) - start);
}

bool is_skipped(std::string_view line) { return line.starts_with('#') || without_end_blanks(line).empty(); }

/// Calls `call(start, line)` for every line.
template <class Call>
void for_each_line(std::string_view text, const Call& call) {
  std::size_t start = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (start < text.size()) {
    const std::string_view line = whole_line(text, start);
    call(start, line);
    start += line.size() + 1;
  }
}

[[noreturn]] void fail(const std::string& list, std::int64_t number, const std::string& fault) {
  throw DataError(list + ": line " + std::to_string(number), fault);
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

ListText::ListText(const std::string& path)
    : file_(std::make_unique<const MappedFile>(path)),
      stamp_(file_->stamp()),
      modified_ns_(std::make_unique<std::atomic<std::int64_t>>(stamp_->modified_ns)),
      name_(path) {
  file_->check();
  if (text().find('\n') != std::string_view::npos || text().find('\r') == std::string_view::npos) return;
  memory_ = plain_text(text());  // lines that end in CR only
  file_.reset();
  stamp_.reset();
}

const TextDigest& ListText::digest() {
  if (!digest_) {
    digest_ = digest_of(text());
    if (file_) file_->check();
  }
  return *digest_;
}

void ListText::check_unchanged() const {
  if (!file_) return;
  file_->check();
  const std::int64_t modified_ns = file_->stamp().modified_ns;
  if (modified_ns == *modified_ns_) return;
  if (!digest_ || digest_of(text()) != *digest_) {
    throw DataError(name_, "was changed while it was in use; restore the file and resume the run");
  }
  *modified_ns_ = modified_ns;
}

TextDigest digest_of(std::string_view text) {
  const std::string_view first = whole_line(text, 0);
  const std::string_view rest = text.substr(std::min(first.size() + 1, text.size()));
  return {.first = hash_of_text(first), .rest = hash_of_text(rest)};
}

ListLines::ListLines(ListText text, const ListOptions& options) : text_(std::move(text)), options_(options) {
  const std::optional<ListIndexKey> key = index_key();
  if (key && take_index(*key)) return;
  facts_.text = text_.digest();  // read before the lines, so that a change while they are read is noticed
  read_lines();
  if (!key) return;
  facts_.classes = classes();
  facts_.lines_digest = digest(facts_.classes);
  text_.check_unchanged();
  if (ListIndex::write(*key, facts_, starts_) && take_index(*key)) own_starts_ = {};
}

std::optional<ListIndexKey> ListLines::index_key() const {
  const std::optional<FileStamp>& stamp = text_.stamp();
  if (options_.cache.empty() || !stamp) return std::nullopt;
  if (!is_settled(std::max(stamp->modified_ns, stamp->changed_ns))) return std::nullopt;
  return ListIndexKey{.cache = options_.cache, .list = text_.name(), .target = options_.target, .stamp = *stamp};
}

bool ListLines::take_index(const ListIndexKey& key) {
  auto index = ListIndex::find(key);
  if (!index) return false;
  // The number of the wrong line, which the message states, is not in the index.
  if (options_.classes > 0 && index->facts().max_label >= options_.classes) return false;
  index_ = std::move(index);
  facts_ = index_->facts();
  starts_ = index_->starts();
  text_.set_digest(facts_.text);
  return true;
}

void ListLines::read_lines() {
  const std::string_view all = text_.text();
  std::vector<std::uint64_t>& starts = own_starts_;
  starts.reserve(static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n')) + 1);
  std::int64_t number = 0;
  for_each_line(all, [&](std::size_t start, std::string_view line) {
    ++number;
    if (is_skipped(line)) return;
    if (std::memchr(line.data(), 0, line.size()) != nullptr) {
      fail(text_.name(), number, "contains a zero byte, but a list is a text in UTF-8; convert the file");
    }
    check(line_at(start), number);
    starts.push_back(start);
  });
  starts_ = starts;
  if (starts_.empty()) throw DataError(text_.name(), "contains no samples; a list has lines of the form 'PATH LABEL'");
}

void ListLines::check(const ListLine& line, std::int64_t number) {
  if (options_.target == ListTarget::none) return;
  if (line.path.empty()) {
    const bool has_masks = options_.target == ListTarget::masks;
    fail(text_.name(), number,
         "'" + std::string(line.label) +
             (has_masks ? "' has no mask; write 'PATH MASK'"
                        : "' has no label; write 'PATH LABEL', or set data.unlabeled = true"));
  }
  if (options_.target == ListTarget::masks) return;
  if (options_.target == ListTarget::numbers) return check_numbers(line, number);
  if (line.label == kNoLabels) {
    facts_.has_several = true;
    return;
  }
  for_each_word(line.label, [&](std::string_view word) { check_class(word, line, number); });
  facts_.has_several = facts_.has_several || line.label.find(',') != std::string_view::npos;
}

void ListLines::check_numbers(const ListLine& line, std::int64_t number) {
  for_each_word(line.label, [&](std::string_view word) {
    if (parsed<double>(word)) return;
    fail(text_.name(), number,
         "'" + std::string(word) + "' is not a finite number, which data.target = real requires; correct the label");
  });
  if (own_starts_.empty()) return;
  const std::int64_t wanted = words_in_label(line_at(own_starts_.front()).label);
  const std::int64_t found = words_in_label(line.label);
  if (found == wanted) return;
  fail(text_.name(), number,
       "the label has " + std::to_string(found) + (found == 1 ? " number" : " numbers") + ", but that of the first " +
           "image has " + std::to_string(wanted) + "; each image needs as many");
}

void ListLines::check_class(std::string_view word, const ListLine& line, std::int64_t number) {
  const auto label = parsed<std::int64_t>(word);
  if (!label) {
    const std::string hint = parsed<double>(line.label) ? "; for real numbers, set data.target = real"
                                                        : "; write 'PATH LABEL' with an integer as the label";
    fail(text_.name(), number, "the label '" + std::string(line.label) + "' is not an integer" + hint);
  }
  const std::int64_t limit = options_.classes > 0 ? options_.classes : kMaxClasses;
  if (*label < 0 || *label >= limit) {
    const std::string reason =
        options_.classes > 0 ? " (" + options_.rule + " = " + std::to_string(options_.classes) + ")" : "";
    fail(text_.name(), number,
         "the label " + std::to_string(*label) + " is outside [0, " + std::to_string(limit - 1) + "]" + reason +
             "; correct the label");
  }
  facts_.max_label = std::max(facts_.max_label, *label);
}

ListLine ListLines::line_at(std::size_t start) const {
  const std::string_view line = without_end_blanks(whole_line(text_.text(), start));
  if (options_.target == ListTarget::none) return {.path = line, .label = {}};
  std::size_t end = line.size();
  const bool has_tabs = options_.target == ListTarget::masks && line.find('\t') != std::string_view::npos;
  while (end > 0 && (has_tabs ? line[end - 1] != '\t' : !is_blank(line[end - 1]))) --end;
  return {.path = without_end_blanks(line.substr(0, end)), .label = line.substr(end)};
}

void ListLines::check_unchanged() const {
  text_.check_unchanged();
  if (index_) index_->check();
}

std::int64_t ListLines::classes() const noexcept {
  if (options_.target != ListTarget::classes) return 0;
  return options_.classes > 0 ? options_.classes : facts_.max_label + 1;
}

std::uint64_t ListLines::digest(std::int64_t classes) const {
  if (index_ && facts_.classes == classes) return facts_.lines_digest;
  std::uint64_t hash = hash_of({static_cast<std::uint64_t>(size()), static_cast<std::uint64_t>(classes)});
  for (std::int64_t i = 0; i < size(); ++i) {
    const ListLine each = line(i);
    hash = hash_of({hash, hash_of_text(each.path), hash_of_text(each.label)});
  }
  return hash;
}

ListLine ListLines::line(std::int64_t index) const {
  if (index < 0 || index >= size()) {
    throw std::out_of_range("line " + std::to_string(index) + " of a list of " + std::to_string(size()));
  }
  return line_at(starts_[static_cast<std::size_t>(index)]);
}

std::int64_t ListLines::label(std::int64_t index) const { return parsed<std::int64_t>(line(index).label).value_or(-1); }

std::vector<std::int64_t> ListLines::labels(std::int64_t index) const {
  std::vector<std::int64_t> labels;
  const std::string_view text = line(index).label;
  if (text == kNoLabels) return labels;
  for_each_word(text, [&](std::string_view word) { labels.push_back(parsed<std::int64_t>(word).value_or(-1)); });
  return labels;
}

std::vector<double> ListLines::numbers(std::int64_t index) const {
  std::vector<double> numbers;
  for_each_word(line(index).label, [&](std::string_view word) { numbers.push_back(parsed<double>(word).value_or(0)); });
  return numbers;
}

std::int64_t ListLines::numbers_per_line() const {
  return options_.target == ListTarget::numbers ? words_in_label(line(0).label) : 0;
}

std::vector<std::string> read_class_names(const std::string& path) {
  const MappedFile file(path, "data.class_names");
  std::vector<std::string> names =
      plain_lines({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  file.check();
  for (std::string& name : names) name = utf8_name(name);
  const auto empty = std::find(names.begin(), names.end(), "");
  if (empty != names.end()) {
    throw DataError(path, "line " + std::to_string(empty - names.begin() + 1) +
                              " is empty; the file must contain one class name per line");
  }
  if (names.empty()) throw DataError(path, "contains no class names; it must contain one per line");
  return names;
}

}  // namespace lockstep::data
