// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/hdf5_storage.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "arrays/chunk_filters.hpp"
#include "arrays/hdf5_types.hpp"
#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

namespace fs = std::filesystem;
using checkpoints::checked;
using checkpoints::Handle;

constexpr int kMaxVirtualDepth = 8;
constexpr std::size_t kNameBytes = 4096;
constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 32;  // a limit of HDF5

// --- filters ---

struct FilterRow {
  H5Z_filter_t number;
  const char* name;
  bool is_available;
};

constexpr std::array<FilterRow, 14> kFilters = {{
    {H5Z_FILTER_DEFLATE, "deflate", true},
    {H5Z_FILTER_SHUFFLE, "shuffle", true},
    {H5Z_FILTER_FLETCHER32, "fletcher32", true},
    {H5Z_FILTER_SZIP, "szip", true},
    {H5Z_FILTER_NBIT, "nbit", true},
    {H5Z_FILTER_SCALEOFFSET, "scaleoffset", true},
    {kLzf, "lzf", true},
    {kZstd, "zstd", true},
    {kBitshuffle, "bitshuffle", true},
    {307, "bzip2", false},
    {32001, "blosc", false},
    {32004, "lz4", false},
    {32013, "zfp", false},
    {32026, "blosc2", false},
}};

/// HDF5 calls it for each chunk that it reads itself: of virtual data sets, and of elements that it converts.
template <H5Z_filter_t kNumber>
std::size_t run_filter(unsigned flags, std::size_t count, const unsigned values[], std::size_t bytes,
                       std::size_t* buffer_bytes, void** buffer) noexcept {
  if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;  // Lockstep writes no such files
  const std::span<const std::byte> from(static_cast<const std::byte*>(*buffer), bytes);
  void* memory = nullptr;
  try {
    const SetFilter filter = {.number = kNumber, .values = {values, values + count}};
    const auto size = decoded_size(filter, from);
    if (!size || *size == 0 || *size > kMaxChunkBytes) return 0;
    if (kNumber == kLzf && (count <= 2 || *size != values[2])) return 0;
    memory = H5allocate_memory(*size, false);
    if (memory != nullptr && decode_filter(filter, from, {static_cast<std::byte*>(memory), *size})) {
      H5free_memory(*buffer);
      *buffer = memory;
      *buffer_bytes = *size;
      return *size;
    }
  } catch (const std::exception&) {  // no memory
  }
  if (memory != nullptr) H5free_memory(memory);
  return 0;
}

void register_filter(H5Z_filter_t number, const char* name, H5Z_func_t run) {
  H5Z_class2_t filter{};
  filter.version = H5Z_CLASS_T_VERS;
  filter.id = number;
  filter.decoder_present = 1;
  filter.name = name;
  filter.filter = run;
  if (H5Zregister(&filter) < 0) throw DataError(std::string("HDF5 does not accept the filter ") + name);
}

SetFilter filter_of(hid_t list, unsigned position, std::string& name_in_file) {
  std::array<unsigned, 32> values{};
  std::array<char, 128> name{};
  unsigned flags = 0, config = 0;
  std::size_t count = values.size();
  const H5Z_filter_t number =
      checked(H5Pget_filter2(list, position, &flags, &count, values.data(), name.size() - 1, name.data(), &config),
              "H5Pget_filter2");
  name_in_file = name.data();
  return {.number = number, .values = {values.begin(), values.begin() + std::min(count, values.size())}};
}

[[noreturn]] void refuse_filter(H5Z_filter_t number, const std::string& name) {
  throw DataError("filter " + std::to_string(number) + (name.empty() ? "" : " (" + utf8_text(name) + ")") +
                  " is not available; convert a copy: h5repack -f GZIP=4 IN OUT, with the plug-in of the filter");
}

/// h5py states the size of a chunk, which HDF5 relies on.
void check_lzf(const SetFilter& filter, std::uint64_t chunk_bytes) {
  if (filter.values.size() >= 3 && filter.values[2] == chunk_bytes) return;
  throw DataError("it is damaged: its filter lzf does not state that a chunk has " + std::to_string(chunk_bytes) +
                  " bytes");
}

void set_filters(hid_t list, std::uint64_t chunk_bytes, SetStorage& storage) {
  const int count = checked(H5Pget_nfilters(list), "H5Pget_nfilters");
  for (int i = 0; i < count; ++i) {
    std::string name;
    SetFilter filter = filter_of(list, static_cast<unsigned>(i), name);
    const auto* const row = std::ranges::find(kFilters, filter.number, &FilterRow::number);
    if (row == kFilters.end()) refuse_filter(filter.number, name);
    const bool is_own = filter.number == kLzf || filter.number == kZstd || filter.number == kBitshuffle;
    const bool is_available = row->is_available && (is_own ? can_decode(filter) : H5Zfilter_avail(filter.number) > 0);
    if (!is_available) refuse_filter(filter.number, row->name);
    if (filter.number == kLzf) check_lzf(filter, chunk_bytes);
    storage.info.filters.emplace_back(row->name);
    storage.filters.push_back(std::move(filter));
  }
}

// --- other files ---

/// A file that `owner` names, where HDF5 looks for it: beside `owner`, also beside the file that this is a symbolic
/// link to. An absolute name stands for itself, or for a file of that name beside `owner`.
fs::path beside(const std::string& owner, const std::string& name) {
  std::error_code error;
  const fs::path given = name, here = fs::path(owner).parent_path();
  std::vector<fs::path> places = {here / given, fs::weakly_canonical(owner, error).parent_path() / given};
  if (given.is_absolute()) places.push_back(here / given.filename());
  const auto place = std::ranges::find_if(places, [&](const fs::path& path) { return fs::exists(path, error); });
  return place == places.end() ? places.front() : *place;
}

bool has_external_files(hid_t set) {
  const Handle list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist");
  return checked(H5Pget_external_count(list.id()), "H5Pget_external_count") > 0;
}

void check_external_files(hid_t list, int count, const std::string& owner) {
  for (int i = 0; i < count; ++i) {
    std::array<char, kNameBytes> name{};
    off_t offset = 0;
    hsize_t bytes = 0;
    checked(H5Pget_external(list, static_cast<unsigned>(i), name.size() - 1, name.data(), &offset, &bytes),
            "H5Pget_external");
    const fs::path file = fs::path(owner).parent_path() / name.data();
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    if (error) throw DataError("its numbers are in the file " + file.string() + ", which cannot be read");
    const auto begin = static_cast<std::uintmax_t>(offset);
    const bool is_whole = bytes == H5F_UNLIMITED || (begin <= size && bytes <= size - begin);
    if (!is_whole) {
      throw DataError("its numbers are in the file " + file.string() + ", which has only " + std::to_string(size) +
                      " bytes; " + std::to_string(bytes) + " from byte " + std::to_string(begin) + " on are needed");
    }
  }
}

SetStorage storage_at_depth(hid_t set, const NumberType& type, int depth);

/// One source of a virtual data set.
struct VirtualSource {
  std::string file;  ///< "." = the file itself
  std::string set;

  auto operator<=>(const VirtualSource&) const = default;
};

/// A name of a block of sources, in which "%b" stands for the number of the block and "%%" for "%": that of block 0.
std::string first_block(const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_mark = name[i] == '%' && i + 1 < name.size();
    if (is_mark && name[i + 1] == 'b') result += '0';
    if (is_mark && name[i + 1] == '%') result += '%';
    if (is_mark && (name[i + 1] == 'b' || name[i + 1] == '%')) {
      ++i;
    } else {
      result += name[i];
    }
  }
  return result;
}

template <class Get>
std::string text_from(const Get& get, const char* call) {
  const ssize_t length = checked(get(nullptr, std::size_t{0}), call);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  checked(get(text.data(), text.size()), call);
  text.pop_back();
  return text;
}

std::set<VirtualSource> virtual_sources(hid_t list) {
  std::size_t count = 0;
  checked(H5Pget_virtual_count(list, &count), "H5Pget_virtual_count");
  std::set<VirtualSource> sources;
  for (std::size_t i = 0; i < count; ++i) {
    const auto get_file = [&](char* text, std::size_t bytes) { return H5Pget_virtual_filename(list, i, text, bytes); };
    const auto get_set = [&](char* text, std::size_t bytes) { return H5Pget_virtual_dsetname(list, i, text, bytes); };
    sources.insert({first_block(text_from(get_file, "H5Pget_virtual_filename")),
                    first_block(text_from(get_set, "H5Pget_virtual_dsetname"))});
  }
  return sources;
}

void check_source_set(hid_t file, const std::string& name, int depth) {
  const hid_t id = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (id < 0) throw DataError("there is no data set '" + utf8_text(name) + "'");
  const Handle set(id, H5Dclose, "H5Dopen2");
  const Handle type(H5Dget_type(set.id()), H5Tclose, "H5Dget_type");
  const SetStorage storage = storage_at_depth(set.id(), number_type_of(type.id()), depth + 1);
  if (storage.info.layout == "external") throw DataError("its numbers are in an external file, which is not supported");
}

/// HDF5 reads sources that are missing as the fill value, and reports no error.
void check_source(hid_t set, const std::string& owner, const VirtualSource& source, int depth) {
  if (depth >= kMaxVirtualDepth) throw DataError("virtual data sets refer to one another too deeply");
  const std::string path = source.file == "." ? owner : beside(owner, source.file).string();
  try {
    if (source.file == ".") {
      const Handle file(H5Iget_file_id(set), H5Fclose, "H5Iget_file_id");
      return check_source_set(file.id(), source.set, depth);
    }
    std::error_code error;
    if (!fs::exists(path, error)) throw DataError("this file does not exist");
    const Handle file = open_to_read(path);
    check_source_set(file.id(), source.set, depth);
  } catch (const Error& failure) {
    throw DataError("it is a virtual data set, and its source '" + utf8_text(source.set) + "' in " + utf8_text(path) +
                    " cannot be read: " + failure.what());
  }
}

// --- layouts ---

/// Whether the elements in the file are those in memory, but for the order of their bytes.
bool has_plain_elements(hid_t set, const NumberType& type) {
  const Handle stored(H5Dget_type(set), H5Tclose, "H5Dget_type");
  Handle plain = memory_type(type);
  if (type.bytes > 1) {
    checked(H5Tset_order(plain.id(), type.is_big_endian ? H5T_ORDER_BE : H5T_ORDER_LE), "H5Tset_order");
  }
  if (H5Tget_class(stored.id()) != H5T_ENUM) return H5Tequal(stored.id(), plain.id()) > 0;
  const Handle base(H5Tget_super(stored.id()), H5Tclose, "H5Tget_super");
  return H5Tequal(base.id(), plain.id()) > 0;
}

/// The fill value of a data set, as it is stored.
std::vector<std::byte> fill_of(hid_t set, hid_t list, const NumberType& type) {
  std::vector<std::byte> fill(type.bytes);
  H5D_fill_value_t state = H5D_FILL_VALUE_UNDEFINED;
  checked(H5Pfill_value_defined(list, &state), "H5Pfill_value_defined");
  if (state == H5D_FILL_VALUE_UNDEFINED) return fill;
  const Handle stored(H5Dget_type(set), H5Tclose, "H5Dget_type");
  checked(H5Pget_fill_value(list, stored.id(), fill.data()), "H5Pget_fill_value");
  return fill;
}

void set_chunk(hid_t set, hid_t list, const NumberType& type, SetStorage& storage) {
  std::array<hsize_t, H5S_MAX_RANK> chunk{};
  const int rank = checked(H5Pget_chunk(list, H5S_MAX_RANK, chunk.data()), "H5Pget_chunk");
  storage.info.layout = "chunked";
  storage.info.chunk = {chunk.begin(), chunk.begin() + rank};
  set_filters(list, chunk_bytes_of(storage.info.chunk, type), storage);
  if (has_plain_elements(set, type) && can_undo(storage.filters)) storage.fill = fill_of(set, list, type);
}

void set_contiguous(hid_t set, hid_t list, const NumberType& type, SetStorage& storage) {
  const int files = checked(H5Pget_external_count(list), "H5Pget_external_count");
  if (files > 0) {
    storage.info.layout = "external";
    return check_external_files(list, files, file_of(set));
  }
  storage.info.layout = "contiguous";
  const haddr_t offset = H5Dget_offset(set);
  if (offset != HADDR_UNDEF && has_plain_elements(set, type)) storage.offset = offset;
}

SetStorage storage_at_depth(hid_t set, const NumberType& type, int depth) {
  const Handle list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist");
  SetStorage storage;
  switch (H5Pget_layout(list.id())) {
    case H5D_COMPACT:
      storage.info.layout = "compact";
      return storage;
    case H5D_CONTIGUOUS:
      set_contiguous(set, list.id(), type, storage);
      return storage;
    case H5D_CHUNKED:
      set_chunk(set, list.id(), type, storage);
      return storage;
    case H5D_VIRTUAL:
      storage.info.layout = "virtual";
      for (const VirtualSource& source : virtual_sources(list.id())) check_source(set, file_of(set), source, depth);
      return storage;
    default:
      throw DataError("its layout in the file is unknown");
  }
}

}  // namespace

std::uint64_t chunk_bytes_of(const std::vector<std::int64_t>& chunk, const NumberType& type) {
  std::uint64_t bytes = type.bytes;
  for (const std::int64_t length : chunk) bytes *= static_cast<std::uint64_t>(length);  // HDF5 allows at most 4 GiB
  return bytes;
}

void register_filters() {
  static const bool is_done = [] {
    register_filter(kLzf, "lzf", run_filter<kLzf>);
    register_filter(kZstd, "zstd", run_filter<kZstd>);
    register_filter(kBitshuffle, "bitshuffle", run_filter<kBitshuffle>);
    return true;
  }();
  static_cast<void>(is_done);
}

Handle open_to_read(const std::string& path) {
  const Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  checked(H5Pset_fapl_sec2(list.id()), "H5Pset_fapl_sec2");
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, list.id()), H5Fclose, "H5Fopen"};
}

std::optional<Handle> open_set_to_read(hid_t file, const std::string& name) {
  const auto open = [&](hid_t list) -> std::optional<Handle> {
    const hid_t set = H5Dopen2(file, name.c_str(), list);
    if (set < 0) return std::nullopt;
    return Handle(set, H5Dclose, "H5Dopen2");
  };
  std::optional<Handle> set = open(H5P_DEFAULT);
  if (!set || !has_external_files(set->id())) return set;
  set.reset();
  const Handle list(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, "H5Pcreate");
  checked(H5Pset_efile_prefix(list.id(), "${ORIGIN}"), "H5Pset_efile_prefix");
  return open(list.id());
}

SetStorage storage_of(hid_t set, const NumberType& type) { return storage_at_depth(set, type, 0); }

std::string file_of(hid_t object) {
  const auto get = [&](char* text, std::size_t bytes) { return H5Fget_name(object, text, bytes); };
  return text_from(get, "H5Fget_name");
}

}  // namespace lockstep::arrays
