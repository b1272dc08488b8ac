// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/hdf5_types.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

using checkpoints::checked;
using checkpoints::Handle;

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 24;  // limit of an attribute, and of names

// --- element types ---

constexpr std::array<std::pair<H5T_class_t, const char*>, 8> kRefusedKinds = {{
    {H5T_STRING, "texts (kind string)"},
    {H5T_COMPOUND, "records of several numbers (kind compound), as complex numbers are, too"},
    {H5T_VLEN, "lists of different lengths (kind vlen)"},
    {H5T_REFERENCE, "references to other objects (kind reference)"},
    {H5T_OPAQUE, "bytes without a meaning (kind opaque)"},
    {H5T_ARRAY, "arrays (kind array)"},
    {H5T_BITFIELD, "sets of bits (kind bitfield)"},
    {H5T_TIME, "times (kind time)"},
}};

bool is_big_endian(hid_t type) {
  const H5T_order_t order = H5Tget_order(type);
  if (order == H5T_ORDER_VAX || order == H5T_ORDER_MIXED) throw DataError("the byte order of its elements is unknown");
  return order == H5T_ORDER_BE && H5Tget_size(type) > 1;
}

NumberType integer_type(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (!std::has_single_bit(bytes) || bytes > 8) {
    throw DataError("its elements are integers of " + std::to_string(bytes) + " bytes; 1, 2, 4 and 8 are supported");
  }
  const bool is_unsigned = H5Tget_sign(type) == H5T_SGN_NONE;
  return {.kind = is_unsigned ? NumberKind::unsigned_integer : NumberKind::signed_integer,
          .bytes = bytes,
          .is_big_endian = is_big_endian(type)};
}

/// Whether a type of two bytes is that of IEEE; bfloat16 is another one.
bool is_half(hid_t type) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  checked(H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits), "H5Tget_fields");
  return sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 && mantissa_bits == 10;
}

NumberType real_type(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  const bool is_known = bytes == 4 || bytes == 8 || (bytes == 2 && is_half(type));
  if (!is_known) {
    throw DataError("its elements are floating-point numbers of " + std::to_string(bytes) +
                    " bytes that are neither float16 nor float32 or float64");
  }
  return {.kind = NumberKind::real, .bytes = bytes, .is_big_endian = is_big_endian(type)};
}

Handle half_type() {
  Handle type(H5Tcopy(H5T_NATIVE_FLOAT), H5Tclose, "H5Tcopy");
  checked(H5Tset_fields(type.id(), 15, 10, 5, 0, 10), "H5Tset_fields");
  checked(H5Tset_precision(type.id(), 16), "H5Tset_precision");
  checked(H5Tset_size(type.id(), 2), "H5Tset_size");
  checked(H5Tset_ebias(type.id(), 15), "H5Tset_ebias");
  return type;
}

// --- attributes ---

/// Frees what HDF5 allocated for elements of variable length.
class VariableElements {
 public:
  VariableElements(hid_t type, hid_t space, void* elements) : type_(type), space_(space), elements_(elements) {}
  VariableElements(const VariableElements&) = delete;
  VariableElements& operator=(const VariableElements&) = delete;
  ~VariableElements() { H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, elements_); }

 private:
  hid_t type_;
  hid_t space_;
  void* elements_;
};

template <class Number>
std::vector<Number> read_numbers(hid_t attribute, hid_t memory, std::size_t count) {
  std::vector<Number> numbers(count);
  checked(H5Aread(attribute, memory, numbers.data()), "H5Aread");
  return numbers;
}

/// @param read  reads all elements as a type in memory to a place
template <class Read>
std::vector<std::string> read_variable_texts(const Read& read, hid_t type, hid_t space, std::size_t count) {
  const Handle memory(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(memory.id(), H5T_VARIABLE), "H5Tset_size");
  checked(H5Tset_cset(memory.id(), H5Tget_cset(type)), "H5Tset_cset");
  std::vector<char*> pointers(count, nullptr);
  read(memory.id(), pointers.data());
  const VariableElements owner(memory.id(), space, pointers.data());
  std::vector<std::string> texts;
  for (const char* const pointer : pointers) texts.emplace_back(pointer == nullptr ? "" : pointer);
  return texts;
}

template <class Read>
std::vector<std::string> read_texts(const Read& read, hid_t type, hid_t space, std::size_t count) {
  if (H5Tis_variable_str(type) > 0) return read_variable_texts(read, type, space, count);
  const std::size_t length = H5Tget_size(type);
  std::string all(count * length, '\0');
  read(type, all.data());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    std::string text = all.substr(i * length, length);
    text.resize(std::min(text.find('\0'), text.size()));
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) text.resize(text.find_last_not_of(' ') + 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

/// The number of elements; none if they need more memory than names should.
std::optional<std::size_t> short_count(hid_t type, hid_t space) {
  const hssize_t count = checked(H5Sget_simple_extent_npoints(space), "H5Sget_simple_extent_npoints");
  const std::size_t bytes = std::max<std::size_t>(H5Tget_size(type), 1);
  if (static_cast<std::size_t>(count) > kMaxTextBytes / bytes) return std::nullopt;
  return static_cast<std::size_t>(count);
}

/// None if it is neither a number nor a text, or without a value.
std::optional<AttributeValue> read_attribute(hid_t object, const std::string& name) {
  const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "H5Aopen");
  const Handle type(H5Aget_type(attribute.id()), H5Tclose, "H5Aget_type");
  const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
  if (H5Sget_simple_extent_type(space.id()) == H5S_NULL) return std::nullopt;
  const auto count = short_count(type.id(), space.id());
  if (!count || *count == 0) return std::nullopt;
  const auto read = [&](hid_t memory, void* place) { checked(H5Aread(attribute.id(), memory, place), "H5Aread"); };
  switch (H5Tget_class(type.id())) {
    case H5T_STRING:
      return read_texts(read, type.id(), space.id(), *count);
    case H5T_FLOAT:
      return read_numbers<double>(attribute.id(), H5T_NATIVE_DOUBLE, *count);
    case H5T_INTEGER:
      if (H5Tget_size(type.id()) > 8) return std::nullopt;
      if (H5Tget_sign(type.id()) == H5T_SGN_NONE) {
        return read_numbers<std::uint64_t>(attribute.id(), H5T_NATIVE_UINT64, *count);
      }
      return read_numbers<std::int64_t>(attribute.id(), H5T_NATIVE_INT64, *count);
    case H5T_ENUM:
      return read_numbers<std::int64_t>(attribute.id(), H5T_NATIVE_INT64, *count);
    default:
      return std::nullopt;
  }
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* data) noexcept -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  checked(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Aiterate2");
  return names;
}

// --- names of axes ---

std::string name_of_reference(hid_t set, const hobj_ref_t& reference, ReferenceNames& known) {
  const auto [place, is_new] = known.try_emplace(reference);
  if (!is_new) return place->second;
  const hid_t id = H5Rdereference2(set, H5P_DEFAULT, H5R_OBJECT, &reference);
  if (id < 0) return "";
  const Handle object(id, H5Oclose, "H5Rdereference2");
  std::array<char, 4096> name{};
  if (H5Iget_name(object.id(), name.data(), name.size()) > 0) place->second = last_part(name.data());
  return place->second;
}

/// The dimension scales of a data set: a list of references for each axis, of which the first one counts.
void add_scale_names(hid_t set, std::vector<std::string>& axes, ReferenceNames& known) {
  if (H5Aexists(set, "DIMENSION_LIST") <= 0) return;
  const Handle attribute(H5Aopen(set, "DIMENSION_LIST", H5P_DEFAULT), H5Aclose, "H5Aopen");
  const Handle type(H5Aget_type(attribute.id()), H5Tclose, "H5Aget_type");
  const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
  const bool is_list = H5Tget_class(type.id()) == H5T_VLEN &&
                       H5Sget_simple_extent_npoints(space.id()) == static_cast<hssize_t>(axes.size());
  if (!is_list) return;
  const Handle element(H5Tget_super(type.id()), H5Tclose, "H5Tget_super");
  if (H5Tequal(element.id(), H5T_STD_REF_OBJ) <= 0) return;
  std::vector<hvl_t> lists(axes.size(), hvl_t{0, nullptr});
  checked(H5Aread(attribute.id(), type.id(), lists.data()), "H5Aread");
  const VariableElements owner(type.id(), space.id(), lists.data());
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (lists[axis].len == 0) continue;
    hobj_ref_t reference{};
    std::memcpy(&reference, lists[axis].p, sizeof reference);
    axes[axis] = name_of_reference(set, reference, known);
  }
}

}  // namespace

NumberType number_type_of(hid_t stored_type) {
  const H5T_class_t kind = H5Tget_class(stored_type);
  if (kind == H5T_INTEGER) return integer_type(stored_type);
  if (kind == H5T_FLOAT) return real_type(stored_type);
  if (kind == H5T_ENUM) {
    const Handle base(H5Tget_super(stored_type), H5Tclose, "H5Tget_super");
    return integer_type(base.id());
  }
  const auto* const row = std::ranges::find(kRefusedKinds, kind, &std::pair<H5T_class_t, const char*>::first);
  throw DataError("its elements are " +
                  (row == kRefusedKinds.end() ? "of an unknown kind, " + std::to_string(kind) : row->second) +
                  ", not numbers; choose another variable, or convert it");
}

Handle memory_type(const NumberType& type) {
  const std::array<hid_t, 4> sizes_signed = {H5T_NATIVE_INT8, H5T_NATIVE_INT16, H5T_NATIVE_INT32, H5T_NATIVE_INT64};
  const std::array<hid_t, 4> sizes_unsigned = {H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32,
                                               H5T_NATIVE_UINT64};
  if (type.kind == NumberKind::real) {
    if (type.bytes == 2) return half_type();
    return {H5Tcopy(type.bytes == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE), H5Tclose, "H5Tcopy"};
  }
  const auto size = static_cast<std::size_t>(std::countr_zero(type.bytes));
  return {H5Tcopy(type.kind == NumberKind::signed_integer ? sizes_signed[size] : sizes_unsigned[size]), H5Tclose,
          "H5Tcopy"};
}

Attributes attributes_of_object(hid_t object) {
  Attributes attributes;
  for (const std::string& name : attribute_names(object)) {
    if (auto value = read_attribute(object, name)) attributes.emplace(name, std::move(*value));
  }
  return attributes;
}

std::vector<std::string> texts_of_set(hid_t set) {
  const Handle type(H5Dget_type(set), H5Tclose, "H5Dget_type");
  const Handle space(H5Dget_space(set), H5Sclose, "H5Dget_space");
  const bool is_text = H5Tget_class(type.id()) == H5T_STRING && H5Sget_simple_extent_type(space.id()) != H5S_NULL;
  if (!is_text) return {};
  const auto count = short_count(type.id(), space.id());
  if (!count) throw DataError("its texts have more than 16 MiB");
  const auto read = [&](hid_t memory, void* place) {
    checked(H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, place), "H5Dread");
  };
  return read_texts(read, type.id(), space.id(), *count);
}

std::vector<std::string> axis_names(hid_t set, const ArrayInfo& array, const std::string& own_name,
                                    ReferenceNames& known) {
  std::vector<std::string> axes(array.shape.size());
  add_scale_names(set, axes, known);
  const std::vector<std::string> labels = texts_of(array.attributes, "DIMENSION_LABELS");
  for (std::size_t axis = 0; axis < std::min(axes.size(), labels.size()); ++axis) {
    if (axes[axis].empty()) axes[axis] = labels[axis];
  }
  const bool is_scale = texts_of(array.attributes, "CLASS") == std::vector<std::string>{"DIMENSION_SCALE"};
  if (is_scale && axes.size() == 1 && axes[0].empty()) axes[0] = own_name;
  return axes;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace lockstep::arrays
