// SPDX-License-Identifier: BSD-3-Clause
// Files of HDF5, netCDF-4, npy and npz: numbers as they are stored, and as they are decoded.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "arrays/array_file.hpp"
#include "arrays/decompressors.hpp"
#include "arrays/packing.hpp"
#include "arrays/time_axis.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "fields.hpp"

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;

using arrays::ArrayFile;
using arrays::ArrayInfo;
using arrays::NumberKind;
using arrays::Slab;

// "decoded relative 2.5e-7 when read as float32": twice the rounding to the nearest float32.
constexpr Tolerance kDecoded = {.relative = 2.5e-7};
// "fractions of a year 1e-9"
constexpr Tolerance kFraction = {.absolute = 1e-9};

std::vector<std::byte> read_part(const ArrayFile& file, const ArrayInfo& info, const Slab& slab) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_of(slab)) * info.type.bytes);
  file.read(info, slab, bytes);
  return bytes;
}

// --- one array ---

NumberKind kind_of(const std::string& word, NumberKind of_bool) {
  const std::map<std::string, NumberKind> kinds = {{"float", NumberKind::real},
                                                   {"integer", NumberKind::signed_integer},
                                                   {"unsigned", NumberKind::unsigned_integer},
                                                   {"bool", of_bool}};
  return kinds.at(word);
}

void expect_type(const ArrayInfo& info, const Json& stored) {
  require_known_fields(stored, {"kind", "bytes", "order"});
  // HDF5 has no bool: it is an enumeration of signed or unsigned integers.
  const NumberKind of_bool = info.type.kind == NumberKind::real ? NumberKind::unsigned_integer : info.type.kind;
  EXPECT_EQ(info.type.kind, kind_of(stored.at("kind"), of_bool));
  EXPECT_EQ(info.type.bytes, stored.at("bytes").get<std::size_t>());
  EXPECT_EQ(info.type.is_big_endian, stored.at("order") == "big");
}

void expect_storage(const ArrayInfo& info, const Json& set) {
  if (set.contains("layout")) {
    // HDF5 calls an array contiguous that lies in an external file.
    EXPECT_EQ(info.storage.layout == "external" ? "contiguous" : info.storage.layout, set.at("layout"));
  }
  if (set.contains("chunks") && !set.at("chunks").is_null()) {
    EXPECT_EQ(info.storage.chunk, set.at("chunks").get<std::vector<std::int64_t>>());
  }
  if (!set.contains("filters")) return;
  std::vector<std::string> names;
  for (const Json& filter : set.at("filters")) names.push_back(filter.at("name"));
  EXPECT_EQ(info.storage.filters, names);
}

/// @param value  a text, a list of texts, {"dtype", "value"} or {"dtype", "values"}
void expect_attribute(const ArrayInfo& info, const std::string& name, const Json& value) {
  SCOPED_TRACE("attribute " + name);
  if (value.is_string()) {
    EXPECT_EQ(arrays::texts_of(info.attributes, name), std::vector<std::string>{value.get<std::string>()});
    return;
  }
  if (value.is_array()) {
    EXPECT_EQ(arrays::texts_of(info.attributes, name), value.get<std::vector<std::string>>());
    return;
  }
  require_known_fields(value, {"dtype", "value", "values"});
  const Json list = value.contains("values") ? value.at("values") : Json::array({value.at("value")});
  std::vector<double> expected;
  for (const Json& element : list) expected.push_back(element.is_boolean() ? element.get<bool>() : number(element));
  expect_close(arrays::numbers_of(info.attributes, name), expected, {}, "attribute " + name);
}

/// A part with a start and a step on each axis that is long enough, against the whole array.
void expect_part(const ArrayFile& file, const ArrayInfo& info, const std::string& whole_bytes) {
  Slab slab = whole(info);
  for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
    if (info.shape[axis] < 3) continue;
    slab.start[axis] = 1;
    slab.step[axis] = axis % 2 == 0 ? 2 : 1;
    slab.count[axis] = (info.shape[axis] - 2) / slab.step[axis] + 1;
  }
  const std::vector<std::byte> part = read_part(file, info, slab);
  const std::size_t bytes = info.type.bytes;
  for (std::int64_t i = 0; i < size_of(slab); ++i) {
    std::int64_t rest = i, element = 0, stride = 1;
    for (std::size_t axis = info.shape.size(); axis-- > 0;) {
      element += (slab.start[axis] + rest % slab.count[axis] * slab.step[axis]) * stride;
      rest /= slab.count[axis];
      stride *= info.shape[axis];
    }
    const char* const expected = whole_bytes.data() + static_cast<std::size_t>(element) * bytes;
    if (std::memcmp(part.data() + static_cast<std::size_t>(i) * bytes, expected, bytes) == 0) continue;
    ADD_FAILURE() << info.path << ": element " << i << " of the part is not element " << element;
    return;
  }
}

/// The type in memory of the numbers of a data set. HDF5 has no native float16.
checkpoints::Handle native_type(hid_t set) {
  const checkpoints::Handle stored(H5Dget_type(set), H5Tclose, "H5Dget_type");
  if (H5Tget_class(stored.id()) != H5T_FLOAT || H5Tget_size(stored.id()) != 2) {
    return {H5Tget_native_type(stored.id(), H5T_DIR_ASCEND), H5Tclose, "H5Tget_native_type"};
  }
  checkpoints::Handle type(H5Tcopy(stored.id()), H5Tclose, "H5Tcopy");
  checkpoints::checked(H5Tset_order(type.id(), H5T_ORDER_LE), "H5Tset_order");
  return type;
}

std::vector<std::byte> read_with_hdf5(const std::string& path, const ArrayInfo& info, const Slab& slab) {
  const checkpoints::HdfSession session;
  const checkpoints::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "H5Fopen");
  const checkpoints::Handle set(H5Dopen2(file.id(), info.path.c_str(), H5P_DEFAULT), H5Dclose, "H5Dopen2");
  const checkpoints::Handle space(H5Dget_space(set.id()), H5Sclose, "H5Dget_space");
  const checkpoints::Handle type = native_type(set.id());
  const std::vector<hsize_t> start(slab.start.begin(), slab.start.end()), count(slab.count.begin(), slab.count.end()),
      step(slab.step.begin(), slab.step.end());
  if (!start.empty()) {
    H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), step.data(), count.data(), nullptr);
  }
  const auto size = static_cast<hsize_t>(size_of(slab));
  const checkpoints::Handle memory(H5Screate_simple(1, &size, nullptr), H5Sclose, "H5Screate_simple");
  std::vector<std::byte> bytes(size * H5Tget_size(type.id()));
  checkpoints::checked(H5Dread(set.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, bytes.data()), "H5Dread");
  return bytes;
}

/// Parts with different starts and steps, read by Lockstep and by HDF5. HDF5 looks for external files elsewhere.
void expect_equal_to_hdf5(const ArrayFile& file, const ArrayInfo& info) {
  if (info.storage.layout == "external" || size_of(whole(info)) == 0) return;
  for (const std::int64_t start : {0, 1, 4}) {
    for (const std::int64_t step : {1, 2, 5}) {
      Slab slab = whole(info);
      for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
        slab.start[axis] = std::min(start, info.shape[axis] - 1);
        slab.step[axis] = step;
        slab.count[axis] = (info.shape[axis] - 1 - slab.start[axis]) / step + 1;
      }
      EXPECT_TRUE(read_part(file, info, slab) == read_with_hdf5(file.path(), info, slab)) << start << " " << step;
    }
  }
}

std::size_t count_gaps(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::count_if(values, [](double value) { return std::isnan(value); }));
}

void expect_decoded(const std::string& path, const ArrayInfo& info, const std::vector<std::byte>& bytes,
                    const Json& expected, const std::string& what) {
  const std::vector<double> values = stored_values(expected);
  const arrays::Packing packing = packing_of(path, info);
  std::vector<double> wide(values.size());
  decode(packing, bytes, wide);
  expect_close(wide, values, {}, what + " as double");
  std::vector<float> narrow(values.size());
  decode(packing, bytes, narrow);
  expect_close({narrow.begin(), narrow.end()}, values, kDecoded, what + " as float");
}

void expect_set(const ArrayFile& file, const Json& set, const Json& readings, bool is_hdf5) {
  require_known_fields(
      set, {"path", "stored", "shape", "chunks", "unlimited", "layout", "filters", "attributes", "dimensions", "raw",
            "decoded", "missing", "xarray_dtype", "xarray_same_missing", "xarray_largest_difference", "fortran_order"});
  const std::string path = set.at("path");
  SCOPED_TRACE("array " + path);
  const ArrayInfo info = file.find(path);
  EXPECT_EQ(info.path, path);
  EXPECT_EQ(info.shape, set.at("shape").get<std::vector<std::int64_t>>());
  if (set.contains("stored")) expect_type(info, set.at("stored"));
  expect_storage(info, set);
  if (set.contains("attributes")) {
    for (const auto& [name, value] : set.at("attributes").items()) expect_attribute(info, name, value);
  }
  if (set.contains("dimensions")) {
    EXPECT_EQ(info.axes, set.at("dimensions").get<std::vector<std::string>>());
  }
  const StoredArray raw = stored_array(set.at("raw"));
  const std::vector<std::byte> bytes = read_part(file, info, whole(info));
  ASSERT_EQ(bytes.size(), raw.bytes.size());
  EXPECT_TRUE(std::memcmp(bytes.data(), raw.bytes.data(), bytes.size()) == 0) << "the stored numbers differ";
  expect_part(file, info, raw.bytes);
  if (!path.empty() && is_hdf5) expect_equal_to_hdf5(file, info);
  if (set.contains("decoded")) {
    expect_decoded(file.path(), info, bytes, set.at("decoded"), path);
    std::vector<double> values(static_cast<std::size_t>(size_of(whole(info))));
    decode(packing_of(file.path(), info), bytes, values);
    EXPECT_EQ(count_gaps(values), set.at("missing").get<std::size_t>());
  }
  for (const Json& reading : readings) {
    if (reading.at("path") == path) expect_decoded(file.path(), info, bytes, reading.at("xarray"), path);
  }
}

// --- one file ---

std::string error_of(const auto& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

/// Fails unless `message` is an error that contains all words.
void expect_error(const std::string& message, const Json& words, const std::string& what) {
  EXPECT_FALSE(message.empty()) << what << ": there is no error";
  for (const std::string word : words) EXPECT_NE(message.find(word), std::string::npos) << what << ": " << message;
}

void read_everything(const std::string& path) {
  const auto file = arrays::open_arrays(path);
  for (const std::string& name : file->names()) {
    const ArrayInfo info = file->find(name);
    read_part(*file, info, whole(info));
  }
}

void expect_refusals(const ArrayFile& file, const Json& refused) {
  for (const Json& entry : refused) {
    require_known_fields(entry, {"path", "must_name", "kind"});
    const std::string path = entry.at("path");
    const std::string message = error_of([&] { file.find(path); });
    expect_error(message, entry.at("must_name"), path);
    EXPECT_TRUE(message.starts_with(file.path() + ": ")) << message;
  }
}

/// Whether an array that may be refused is; then by a message that names the words.
bool is_refused(const ArrayFile& file, const Json& one, const Json& set) {
  const bool has_words = one.contains("must_name");
  const bool may_be_refused = one.at("verdict") == "either" && (!has_words || !set.at("filters").empty());
  if (!may_be_refused) return false;
  const std::string message = error_of([&] { file.find(set.at("path")); });
  if (message.empty()) return false;
  for (const Json& filter : set.at("filters")) {
    const bool is_own = filter.at("name") == "zstd" || filter.at("name") == "bitshuffle";
    EXPECT_FALSE(is_own && arrays::has_lz4_and_zstd()) << message;
  }
  if (has_words) expect_error(message, one.at("must_name"), set.at("path"));
  if (one.contains("may_name")) expect_error(message, Json::array({one.at("may_name")}), set.at("path"));
  return true;
}

void expect_integers(const ArrayFile& file, const Json& entries) {
  for (const Json& entry : entries) {
    require_known_fields(entry, {"path", "as"});
    EXPECT_EQ(name_of(file.find(entry.at("path")).type), entry.at("as"));
  }
}

/// The paths that a test knows, and no path twice.
void expect_names(const ArrayFile& file, const Json& sets) {
  const std::vector<std::string> names = file.names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  for (const Json& set : sets) {
    EXPECT_TRUE(std::ranges::binary_search(names, set.at("path").get<std::string>())) << set.at("path");
  }
}

}  // namespace

fs::path field_file(const std::string& path) {
  const std::size_t border = path.find('/');
  if (border == std::string::npos) return golden("fields/" + path);
  static std::map<std::string, fs::path> folders;
  const auto [folder, is_new] = folders.try_emplace(path.substr(0, border));
  if (is_new) folder->second = golden("fields/" + folder->first);
  return folder->second / path.substr(border + 1);
}

StoredArray stored_array(const Json& entry) {
  require_known_fields(entry, {"npy", "dtype", "shape"});
  const std::string file = entry.at("npy");
  const std::string bytes = read_golden("fields/" + file);
  constexpr std::size_t kHead = 10;
  if (bytes.size() < kHead || !bytes.starts_with("\x93NUMPY\x01")) throw std::runtime_error(file + " is no npy file");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t begin = kHead + byte(8) + 256 * byte(9);
  const std::string header = bytes.substr(kHead, begin - kHead);
  const bool is_plain = header.find("'>") == std::string::npos && header.find("False") != std::string::npos;
  if (!is_plain) throw std::runtime_error(file + " is not little-endian and row-major");
  return {.dtype = entry.at("dtype"), .shape = entry.at("shape"), .bytes = bytes.substr(begin)};
}

std::vector<double> stored_values(const Json& entry) {
  const StoredArray array = stored_array(entry);
  const auto values_as = [&]<class Value>(Value value) {
    std::vector<double> values;
    for (std::size_t i = 0; i + sizeof value <= array.bytes.size(); i += sizeof value) {
      std::memcpy(&value, array.bytes.data() + i, sizeof value);
      values.push_back(static_cast<double>(value));
    }
    return values;
  };
  if (array.dtype == "float64") return values_as(double{});
  if (array.dtype == "float32") return values_as(float{});
  if (array.dtype == "int64") return values_as(std::int64_t{});
  throw std::runtime_error("numbers of type " + array.dtype + " are not read");
}

void run_files_case(const Json& one) {
  require_known_fields(one, {"name", "file", "container", "verdict", "note", "datasets", "refused", "may_read",
                             "must_name", "may_name", "readings", "channel_names"});
  const std::string path = field_file(one.at("file"));
  if (one.at("verdict") == "refuse") {
    const std::string message = error_of([&] { read_everything(path); });
    expect_error(message, one.at("must_name"), path);
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return;
  }
  const auto file = arrays::open_arrays(path);
  EXPECT_EQ(file->path(), path);
  expect_names(*file, one.at("datasets"));
  for (const Json& set : one.at("datasets")) {
    if (!is_refused(*file, one, set)) {
      expect_set(*file, set, one.value("readings", Json::array()), one.at("container") == "hdf5");
    }
  }
  expect_refusals(*file, one.value("refused", Json::array()));
  expect_integers(*file, one.value("may_read", Json::array()));
  if (!one.contains("channel_names")) return;
  EXPECT_EQ(file->texts("channel"), one.at("channel_names").get<std::vector<std::string>>());
}

void check_times() {
  if (!fs::exists(golden("fields/files.json"))) GTEST_SKIP() << "no reference data in " << root();
  for (const Json& entry : load("fields/files.json").at("times")) {
    SCOPED_TRACE(entry.dump());
    require_known_fields(entry, {"units", "calendar", "value", "date", "fraction_of_year"});
    const arrays::TimeUnit unit = arrays::parse_time_unit(entry.at("units"), entry.at("calendar"));
    const double value = number(entry.at("value"));
    const arrays::Date date = date_of(unit, value);
    const std::vector<double> fields = {static_cast<double>(date.year),   static_cast<double>(date.month),
                                        static_cast<double>(date.day),    static_cast<double>(date.hour),
                                        static_cast<double>(date.minute), date.second};
    EXPECT_EQ(fields, entry.at("date").get<std::vector<double>>());
    EXPECT_TRUE(is_close(fraction_of_year(unit, value), number(entry.at("fraction_of_year")), kFraction));
  }
}

}  // namespace lockstep::testing::reference
