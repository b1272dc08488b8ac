// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/netcdf_layout.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "arrays/hdf5_types.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "checkpoints/format/transfer.hpp"
#include "core/system/process.hpp"

namespace lockstep::arrays {

namespace {

using checkpoints::checked;
using checkpoints::Handle;
using checkpoints::HdfSession;
using checkpoints::MemoryFile;

constexpr unsigned kKeepsOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
constexpr hsize_t kElementAlignment = 64;

/// The type in the file.
hid_t file_type(const NumberType& type) {
  const std::array<hid_t, 4> sizes_signed = {H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE};
  const std::array<hid_t, 4> sizes_unsigned = {H5T_STD_U8LE, H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE};
  if (type.kind == NumberKind::real) {
    if (type.bytes == 4) return H5T_IEEE_F32LE;
    if (type.bytes == 8) return H5T_IEEE_F64LE;
    throw DataError("netCDF has no type " + name_of(type));
  }
  const auto size = static_cast<std::size_t>(type.bytes == 1 ? 0 : type.bytes == 2 ? 1 : type.bytes == 4 ? 2 : 3);
  return type.kind == NumberKind::signed_integer ? sizes_signed[size] : sizes_unsigned[size];
}

/// A text of a fixed length, as the netCDF library writes it.
Handle fixed_text_type(std::size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(type.id(), std::max<std::size_t>(length, 1)), "H5Tset_size");
  checked(H5Tset_cset(type.id(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

Handle scalar_space() { return {H5Screate(H5S_SCALAR), H5Sclose, "H5Screate"}; }

Handle list_space(std::size_t count) {
  const hsize_t size = count;
  return {H5Screate_simple(1, &size, nullptr), H5Sclose, "H5Screate_simple"};
}

void add_attribute(hid_t object, const std::string& name, hid_t type, const Handle& space, hid_t memory,
                   const void* value) {
  const Handle attribute(H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         "H5Acreate2");
  if (value != nullptr) checked(H5Awrite(attribute.id(), memory, value), "H5Awrite");
}

void add_text(hid_t object, const std::string& name, const std::string& text) {
  const Handle type = fixed_text_type(text.size());
  if (text.empty()) {  // HDF5 has no text of length 0
    add_attribute(object, name, type.id(), Handle(H5Screate(H5S_NULL), H5Sclose, "H5Screate"), type.id(), nullptr);
    return;
  }
  // C's type ends with NUL, so that a text without it has another padding.
  checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "H5Tset_strpad");
  add_attribute(object, name, type.id(), scalar_space(), type.id(), text.data());
}

/// A text that ends with NUL, as HDF5's own attributes of dimension scales.
void add_scale_text(hid_t object, const std::string& name, const std::string& text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(type.id(), text.size() + 1), "H5Tset_size");
  add_attribute(object, name, type.id(), scalar_space(), type.id(), text.c_str());
}

void add_texts(hid_t object, const std::string& name, const std::vector<std::string>& texts) {
  if (texts.size() == 1) return add_text(object, name, texts.front());
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(type.id(), H5T_VARIABLE), "H5Tset_size");
  checked(H5Tset_cset(type.id(), H5T_CSET_UTF8), "H5Tset_cset");
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  add_attribute(object, name, type.id(), list_space(texts.size()), type.id(), pointers.data());
}

void add_value(hid_t object, const std::string& name, const AttributeValue& value) {
  const auto add_numbers = [&](hid_t type, hid_t memory, const auto& numbers) {
    add_attribute(object, name, type, list_space(numbers.size()), memory, numbers.data());
  };
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    if (!texts->empty()) add_texts(object, name, *texts);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
    // Classic readers know no integers of 64 bits.
    const bool is_short = std::ranges::all_of(*integers, [](std::int64_t number) {
      return number >= std::numeric_limits<std::int32_t>::min() && number <= std::numeric_limits<std::int32_t>::max();
    });
    if (!integers->empty()) add_numbers(is_short ? H5T_STD_I32LE : H5T_STD_I64LE, H5T_NATIVE_INT64, *integers);
  } else if (const auto* positive = std::get_if<std::vector<std::uint64_t>>(&value)) {
    if (!positive->empty()) add_numbers(H5T_STD_U64LE, H5T_NATIVE_UINT64, *positive);
  } else {
    const auto& numbers = std::get<std::vector<double>>(value);
    if (!numbers.empty()) add_numbers(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, numbers);
  }
}

// --- dimension scales, as HDF5's library H5DS writes them ---

/// An entry of REFERENCE_LIST: an array that uses the scale, and the number of its axis.
struct ScaleUse {
  hobj_ref_t array = 0;
  std::int32_t axis = 0;
};

Handle scale_use_type(bool is_in_memory) {
  Handle type(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUse)), H5Tclose, "H5Tcreate");
  checked(H5Tinsert(type.id(), "dataset", offsetof(ScaleUse, array), H5T_STD_REF_OBJ), "H5Tinsert");
  checked(H5Tinsert(type.id(), "dimension", offsetof(ScaleUse, axis), is_in_memory ? H5T_NATIVE_INT32 : H5T_STD_I32LE),
          "H5Tinsert");
  return type;
}

hobj_ref_t reference_to(hid_t file, const std::string& name) {
  hobj_ref_t reference = 0;
  checked(H5Rcreate(&reference, file, name.c_str(), H5R_OBJECT, -1), "H5Rcreate");
  return reference;
}

void add_dimension_list(hid_t array, std::vector<hobj_ref_t> scales) {
  const Handle type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose, "H5Tvlen_create");
  std::vector<hvl_t> lists;
  for (hobj_ref_t& scale : scales) lists.push_back({.len = 1, .p = &scale});
  add_attribute(array, "DIMENSION_LIST", type.id(), list_space(lists.size()), type.id(), lists.data());
}

// --- checks ---

std::int64_t size_of_dimension(const NetcdfContents& contents, const NetcdfVariable& variable,
                               const std::string& name) {
  const auto found = std::ranges::find(contents.dimensions, name, &NetcdfDimension::name);
  if (found == contents.dimensions.end()) {
    throw DataError("the variable '" + variable.name + "' has the dimension '" + name + "', which does not exist");
  }
  return found->size;
}

std::vector<hsize_t> shape_of_variable(const NetcdfContents& contents, const NetcdfVariable& variable) {
  std::vector<hsize_t> shape;
  for (const std::string& name : variable.dimensions) {
    shape.push_back(static_cast<hsize_t>(size_of_dimension(contents, variable, name)));
  }
  return shape;
}

std::uint64_t elements_of(const std::vector<hsize_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<std::uint64_t>());
}

void require_valid(const NetcdfContents& contents) {
  std::set<std::string> names;
  const auto require_name = [](const std::string& name) {
    if (name.empty() || name != netcdf_name(name)) throw DataError("netCDF does not allow the name '" + name + "'");
  };
  for (const NetcdfDimension& dimension : contents.dimensions) {
    require_name(dimension.name);
    if (!names.insert(dimension.name).second) throw DataError("two dimensions have the name '" + dimension.name + "'");
    if (dimension.size < 1) throw DataError("the dimension '" + dimension.name + "' is empty");
  }
  std::set<std::string> variables;
  for (const NetcdfVariable& variable : contents.variables) {
    require_name(variable.name);
    if (!variables.insert(variable.name).second) {
      throw DataError("two variables have the name '" + variable.name + "'");
    }
    const bool is_coordinate = variable.dimensions == std::vector<std::string>{variable.name};
    if (!is_coordinate && names.contains(variable.name)) {
      throw DataError("the variable '" + variable.name + "' has the name of a dimension, but is not its coordinate");
    }
    const std::uint64_t elements = elements_of(shape_of_variable(contents, variable));
    if (variable.values.empty() || variable.values.size() == elements) continue;
    throw DataError("the variable '" + variable.name + "' has " + std::to_string(variable.values.size()) +
                    " values instead of " + std::to_string(elements));
  }
}

/// Writes the metadata, and the values that are there, to a file in memory.
class NetcdfImageWriter {
 public:
  NetcdfImageWriter(const NetcdfContents& contents, MemoryFile& memory)
      : contents_(contents),
        file_(create(memory)),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "H5Pcreate"),
        arrays_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate"),
        labels_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate") {
    checked(H5Pset_char_encoding(links_.id(), H5T_CSET_UTF8), "H5Pset_char_encoding");
    for (const Handle* list : {&arrays_, &labels_}) {
      checked(H5Pset_layout(list->id(), H5D_CONTIGUOUS), "H5Pset_layout");
      checked(H5Pset_obj_track_times(list->id(), false), "H5Pset_obj_track_times");
      checked(H5Pset_attr_creation_order(list->id(), kKeepsOrder), "H5Pset_attr_creation_order");
    }
    checked(H5Pset_alloc_time(arrays_.id(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    checked(H5Pset_fill_time(arrays_.id(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    checked(H5Pset_alloc_time(labels_.id(), H5D_ALLOC_TIME_LATE), "H5Pset_alloc_time");
  }

  /// @return  the positions of the elements that are written later, by variable
  std::map<std::string, std::uint64_t> write() {
    const std::string properties = "version=2,lockstep=" + lockstep::version() + ",hdf5=" + checkpoints::hdf5_version();
    add_text(file_.id(), "_NCProperties", properties);
    for (const auto& [name, value] : contents_.attributes) add_value(file_.id(), name, value);
    for (const NetcdfDimension& dimension : contents_.dimensions) write_dimension(dimension);
    for (const NetcdfVariable& variable : contents_.variables) {
      if (!is_coordinate(variable)) write_variable(variable, -1);
    }
    for (const auto& [scale, uses] : uses_) write_uses(scale, uses);
    file_.close("H5Fclose");
    return offsets_;
  }

 private:
  static Handle create(MemoryFile& memory) {
    const Handle access = memory.access_list();
    checked(H5Pset_alignment(access.id(), kElementAlignment, kElementAlignment), "H5Pset_alignment");
    checked(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), "H5Pset_libver_bounds");
    const Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    checked(H5Pset_link_creation_order(list.id(), kKeepsOrder), "H5Pset_link_creation_order");
    checked(H5Pset_attr_creation_order(list.id(), kKeepsOrder), "H5Pset_attr_creation_order");
    checked(H5Pset_obj_track_times(list.id(), false), "H5Pset_obj_track_times");
    return {H5Fcreate("netcdf", H5F_ACC_TRUNC, list.id(), access.id()), H5Fclose, "H5Fcreate"};
  }

  bool is_coordinate(const NetcdfVariable& variable) const {
    return variable.dimensions == std::vector<std::string>{variable.name};
  }

  void write_dimension(const NetcdfDimension& dimension) {
    const std::int32_t number = next_dimension_++;
    for (const NetcdfVariable& variable : contents_.variables) {
      if (variable.name == dimension.name) return write_variable(variable, number);
    }
    // An array without elements, whose only purpose is its length.
    const Handle set(
        H5Dcreate2(file_.id(), dimension.name.c_str(), H5T_IEEE_F32BE,
                   list_space(static_cast<std::size_t>(dimension.size)).id(), links_.id(), labels_.id(), H5P_DEFAULT),
        H5Dclose, "H5Dcreate2");
    std::array<char, 80> label{};
    std::snprintf(label.data(), label.size(), "This is a netCDF dimension but not a netCDF variable.%10lld",
                  static_cast<long long>(dimension.size));
    write_scale(set.id(), label.data(), number);
  }

  static void write_scale(hid_t set, const std::string& label, std::int32_t number) {
    add_scale_text(set, "CLASS", "DIMENSION_SCALE");
    add_scale_text(set, "NAME", label);
    add_attribute(set, "_Netcdf4Dimid", H5T_STD_I32LE, scalar_space(), H5T_NATIVE_INT32, &number);
  }

  /// @param number  that of the dimension whose coordinates the variable has; -1 = none
  void write_variable(const NetcdfVariable& variable, std::int32_t number) {
    const std::vector<hsize_t> shape = shape_of_variable(contents_, variable);
    const Handle space = shape.empty() ? scalar_space()
                                       : Handle(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                                                H5Sclose, "H5Screate_simple");
    const Handle list(H5Pcopy(arrays_.id()), H5Pclose, "H5Pcopy");
    const double gap = std::numeric_limits<double>::quiet_NaN();
    if (variable.has_gaps) {
      checked(H5Pset_fill_value(list.id(), H5T_NATIVE_DOUBLE, &gap), "H5Pset_fill_value");
    }
    const hid_t type = file_type(variable.type);
    const Handle set(
        H5Dcreate2(file_.id(), variable.name.c_str(), type, space.id(), links_.id(), list.id(), H5P_DEFAULT), H5Dclose,
        "H5Dcreate2");
    if (number >= 0) write_scale(set.id(), variable.name, number);
    if (variable.has_gaps) add_attribute(set.id(), "_FillValue", type, list_space(1), H5T_NATIVE_DOUBLE, &gap);
    for (const auto& [name, value] : variable.attributes) add_value(set.id(), name, value);
    if (number < 0 && !variable.dimensions.empty()) {
      std::vector<hobj_ref_t> scales;
      for (std::size_t axis = 0; axis < variable.dimensions.size(); ++axis) {
        const std::string& scale = variable.dimensions[axis];
        scales.push_back(reference_to(file_.id(), scale));
        uses_[scale].push_back(
            {.array = reference_to(file_.id(), variable.name), .axis = static_cast<std::int32_t>(axis)});
      }
      add_dimension_list(set.id(), scales);
    }
    if (!variable.values.empty()) {
      checked(H5Dwrite(set.id(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, variable.values.data()), "H5Dwrite");
      return;
    }
    const haddr_t offset = H5Dget_offset(set.id());
    if (offset == HADDR_UNDEF) checkpoints::throw_hdf("H5Dget_offset");
    offsets_[variable.name] = offset;
  }

  void write_uses(const std::string& scale, const std::vector<ScaleUse>& uses) {
    const Handle set(H5Dopen2(file_.id(), scale.c_str(), H5P_DEFAULT), H5Dclose, "H5Dopen2");
    add_attribute(set.id(), "REFERENCE_LIST", scale_use_type(false).id(), list_space(uses.size()),
                  scale_use_type(true).id(), uses.data());
  }

  const NetcdfContents& contents_;
  Handle file_;
  Handle links_;
  Handle arrays_;
  Handle labels_;
  std::int32_t next_dimension_ = 0;
  std::map<std::string, std::uint64_t> offsets_;
  std::map<std::string, std::vector<ScaleUse>> uses_;
};

}  // namespace

class NetcdfLayout::Impl {
 public:
  explicit Impl(const NetcdfContents& contents) {
    require_valid(contents);
    const HdfSession session;
    offsets_ = NetcdfImageWriter(contents, memory_).write();
    for (const NetcdfVariable& variable : contents.variables) {
      const auto found = offsets_.find(variable.name);
      if (found == offsets_.end()) continue;
      later_[found->second] = elements_of(shape_of_variable(contents, variable)) * variable.type.bytes;
    }
  }

  const MemoryFile& memory() const noexcept { return memory_; }
  const std::map<std::string, std::uint64_t>& offsets() const noexcept { return offsets_; }
  const std::map<std::uint64_t, std::uint64_t>& later() const noexcept { return later_; }

 private:
  MemoryFile memory_;
  std::map<std::string, std::uint64_t> offsets_;
  std::map<std::uint64_t, std::uint64_t> later_;  ///< position and bytes of elements that are written later
};

NetcdfLayout::NetcdfLayout(const NetcdfContents& contents) : impl_(std::make_unique<Impl>(contents)) {}

NetcdfLayout::~NetcdfLayout() = default;

std::uint64_t NetcdfLayout::size() const { return impl_->memory().end(); }

std::uint64_t NetcdfLayout::offset_of(const std::string& variable) const { return impl_->offsets().at(variable); }

void NetcdfLayout::for_each_piece(
    const std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>& write) const {
  constexpr std::uint64_t kMaxPiece = 1 << 20;
  std::vector<std::byte> piece;
  std::uint64_t position = 0;
  const auto write_until = [&](std::uint64_t end) {
    while (position < end) {
      piece.resize(static_cast<std::size_t>(std::min(end - position, kMaxPiece)));
      impl_->memory().read(position, piece);
      write(position, piece);
      position += piece.size();
    }
  };
  for (const auto& [offset, bytes] : impl_->later()) {
    write_until(offset);
    position = offset + bytes;
  }
  write_until(size());
}

std::string netcdf_name(const std::string& wanted) {
  std::string name;
  for (const char c : wanted) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    name += is_control || c == '/' ? '_' : c;
  }
  while (!name.empty() && name.back() == ' ') name.pop_back();
  const auto is_start = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  if (name.empty() || !is_start(name.front())) name.insert(0, 1, '_');
  return name;
}

}  // namespace lockstep::arrays
