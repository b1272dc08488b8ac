// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "checkpoints/foreign/foreign_hdf5.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "checkpoints/format/names.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kMaxAttributes = 64;
constexpr std::size_t kMaxSoftLinks = 8;

[[noreturn]] void fail_hdf5(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) {
  throw CheckpointError(message).as(fault);
}
[[noreturn]] void refuse_hdf5(const std::string& message) { fail_hdf5(message, CheckpointFault::refused); }

/// A link's name as a part of a path; names that encode_name made stay as they are.
std::string part_of_link(const std::string& name) {
  const std::string fault = "it has a link with a malformed name, " + in_quotes(name);
  if (name.empty() || name.size() > kMaxPartBytes || !is_utf8(name)) refuse_hdf5(fault);
  std::string part = name;
  try {
    if (encode_name(decode_name(name)) != name) part = encode_name(name);
  } catch (const CheckpointError&) {
    part = encode_name(name);
  }
  if (!is_part(part)) refuse_hdf5(fault);
  return part;
}

/// Whether the superblock (behind the signature, of version 3) says that a program has the file open for writing.
bool is_marked_open(std::span<const std::byte> content) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1A\n";
  constexpr std::size_t kVersion = 8, kFlags = 11;
  for (std::size_t position = 0; position + kFlags < content.size(); position = position == 0 ? 512 : 2 * position) {
    const bool is_here = std::memcmp(content.data() + position, kSignature.data(), kSignature.size()) == 0;
    if (is_here) return content[position + kVersion] == std::byte{3} && content[position + kFlags] != std::byte{0};
  }
  return false;
}

class Hdf5Walker {
 public:
  Hdf5Walker(const ByteSource& source, ChildOutput& output)
      : output_(output), expansion_(source), file_bytes_(source.size()) {}

  void walk(std::span<const std::byte> content) {
    if (is_marked_open(content)) {
      fail_hdf5("it is marked as open for writing: another program is writing it, or ended without closing it");
    }
    MemoryFile memory(content);
    const Handle access = memory.access_list();
    const Handle file(H5Fopen("archive", H5F_ACC_RDONLY, access.id()), H5Fclose, "H5Fopen");
    walk_object(file.id(), "/", "/", 0);
  }
  const std::string& object() const noexcept { return object_; }

 private:
  void walk_object(hid_t parent, const std::string& name, const std::string& path, std::size_t depth) {
    object_ = path;
    if (++objects_ > kMaxObjects) refuse_hdf5("there are more than a million objects");
    if (depth > kMaxDepth) refuse_hdf5("it is nested more than 32 groups deep");
    const Handle access(H5Pcreate(H5P_LINK_ACCESS), H5Pclose, "H5Pcreate");
    checked(H5Pset_nlinks(access.id(), kMaxSoftLinks), "H5Pset_nlinks");
    const Handle object(H5Oopen(parent, name.c_str(), access.id()), H5Oclose, "H5Oopen");
    H5O_info_t info{};
    checked(H5Oget_info2(object.id(), &info, H5O_INFO_BASIC), "H5Oget_info2");
    const auto [known, is_new] = known_.emplace(info.addr, path);
    switch (H5Iget_type(object.id())) {
      case H5I_GROUP:
        if (!is_new) refuse_hdf5("it is a second link to the group " + known->second);
        return write_group(object.id(), path, depth);
      case H5I_DATASET:
        if (is_new) return write_array(object.id(), path);
        return write_alias(path, known->second);
      default:
        fail_hdf5("it is neither a group nor an array");
    }
  }

  void write_group(hid_t group, const std::string& path, std::size_t depth) {
    put(Hdf5Event::group, path);
    write_attributes(group, path);
    for (const std::string& child : children(group)) {
      object_ = path;
      const std::string part = part_of_link(child);
      walk_object(group, child, (path == "/" ? "" : path) + "/" + part, depth + 1);
    }
  }

  /// "'name' to 'file'", of an external link.
  static std::string target_of(hid_t group, const char* name, std::size_t bytes) {
    std::vector<char> value(std::min(bytes, kMaxAttributeBytes) + 1);
    const char* file = "";
    const bool is_told = H5Lget_val(group, name, value.data(), value.size() - 1, H5P_DEFAULT) >= 0 &&
                         H5Lunpack_elink_val(value.data(), value.size() - 1, nullptr, &file, nullptr) >= 0;
    return in_quotes(name) + (is_told ? " to " + in_quotes(file) : "");
  }

  /// Names of the links below a group, in order of creation where that is known.
  static std::vector<std::string> children(hid_t group) {
    struct Links {
      std::vector<std::string> names;
      std::string fault;
    } links;
    const auto visit = [](hid_t in, const char* name, const H5L_info_t* info, void* data) -> herr_t {
      auto& found = *static_cast<Links*>(data);
      if (info->type == H5L_TYPE_EXTERNAL) {
        found.fault = "it is an external link, " + target_of(in, name, info->u.val_size) + "; this is not allowed";
      } else if (info->type != H5L_TYPE_HARD && info->type != H5L_TYPE_SOFT) {
        found.fault = "it is a user-defined link, " + in_quotes(name) + "; this is not allowed";
      }
      if (found.names.size() > kMaxObjects) found.fault = "it has too many links";
      if (!found.fault.empty()) return 1;
      found.names.emplace_back(name);
      return 0;
    };
    const Handle list(H5Gget_create_plist(group), H5Pclose, "H5Gget_create_plist");
    unsigned order = 0;
    checked(H5Pget_link_creation_order(list.id(), &order), "H5Pget_link_creation_order");
    const H5_index_t index = (order & H5P_CRT_ORDER_TRACKED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
    checked(H5Literate(group, index, H5_ITER_INC, nullptr, visit, &links), "H5Literate");
    if (!links.fault.empty()) refuse_hdf5(links.fault);
    return std::move(links.names);
  }

  // --- arrays ---

  void write_array(hid_t set, const std::string& path) {
    const Handle type(H5Dget_type(set), H5Tclose, "H5Dget_type");
    const DType dtype = dtype_of(type.id());
    const std::vector<std::int64_t> shape = shape_of(set);
    const auto nbytes = nbytes_of(dtype, shape);
    if (!nbytes) fail_hdf5("its shape overflows 63 bits, or has more than 32 dimensions");
    require_stored_here(set, *nbytes);
    expansion_.take(path, *nbytes);
    const std::shared_ptr<std::byte> memory = allocate_aligned(*nbytes);
    if (*nbytes != 0) {
      checked(H5Dread(set, types_.of(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, memory.get()), "H5Dread");
    }
    put(Hdf5Event::array, path);
    output_.write_number(static_cast<std::uint64_t>(dtype));
    output_.write_number(shape.size());
    for (const std::int64_t dimension : shape) output_.write_number(static_cast<std::uint64_t>(dimension));
    output_.write_number(*nbytes);
    output_.write({memory.get(), *nbytes});
    arrays_.emplace(path, true);
    write_attributes(set, path);
  }

  void write_alias(const std::string& path, const std::string& known) {
    if (!arrays_.contains(known)) refuse_hdf5("it is " + known + ", which contains it");
    put(Hdf5Event::alias, path);
    output_.write_text(known);
  }

  DType dtype_of(hid_t type) const {
    const std::pair<hid_t, DType> turned[] = {{H5T_IEEE_F32BE, DType::float32}, {H5T_IEEE_F64BE, DType::float64},
                                              {H5T_STD_I8BE, DType::int8},      {H5T_STD_I16BE, DType::int16},
                                              {H5T_STD_I32BE, DType::int32},    {H5T_STD_I64BE, DType::int64},
                                              {H5T_STD_U8BE, DType::uint8}};
    for (const auto& [known, dtype] : turned) {
      if (H5Tequal(type, known) > 0) return dtype;
    }
    return types_.dtype_of(type);
  }

  /// Checks before a byte is read: everything lies in this file, unpacked by filters that cannot do harm.
  void require_stored_here(hid_t set, std::uint64_t nbytes) const {
    const Handle list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist");
    require_own_storage(list.id());
    const H5D_layout_t layout = H5Pget_layout(list.id());
    if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT) fail_hdf5("its layout is unknown");
    const int filters = checked(H5Pget_nfilters(list.id()), "H5Pget_nfilters");
    for (int i = 0; i < filters; ++i) {
      unsigned flags = 0;
      std::size_t values = 0;
      unsigned config = 0;
      const auto number = static_cast<unsigned>(i);
      const H5Z_filter_t filter =
          checked(H5Pget_filter2(list.id(), number, &flags, &values, nullptr, 0, nullptr, &config), "H5Pget_filter2");
      if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32) {
        refuse_hdf5("it is compressed with filter " + std::to_string(filter) +
                    "; only deflate, shuffle and fletcher32 are supported");
      }
    }
    const std::uint64_t stored = H5Dget_storage_size(set);
    if (stored > file_bytes_) {
      fail_hdf5("its uncompressed size would be " + std::to_string(stored) + ", more than the " +
                std::to_string(file_bytes_) + " of the file");
    }
    const bool fits = layout == H5D_CHUNKED ? filters != 0 || stored >= nbytes : stored == nbytes;
    if (!fits) {
      fail_hdf5("its shape needs " + std::to_string(nbytes) + " bytes, but " + std::to_string(stored) + " are stored");
    }
  }

  // --- attributes ---

  void write_attributes(hid_t object, const std::string& path) {
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* data) -> herr_t {
      auto& found = *static_cast<std::vector<std::string>*>(data);
      found.emplace_back(name);
      return found.size() > kMaxAttributes ? 1 : 0;
    };
    checked(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Aiterate2");
    if (names.size() > kMaxAttributes) fail_hdf5("it has more than 64 attributes");
    for (const std::string& name : names) {
      const bool is_ours = name == kDTypeAttribute && path != "/" && arrays_.contains(path);
      if (!is_ours && is_utf8(name) && is_part(name)) write_attribute(object, path, name);
    }
  }

  /// Only a single number or a text of fixed length: whatever else there may be is left out, unread.
  void write_attribute(hid_t object, const std::string& path, const std::string& name) {
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "H5Aopen");
    const Handle type(H5Aget_type(attribute.id()), H5Tclose, "H5Aget_type");
    const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
    const H5S_class_t extent = H5Sget_simple_extent_type(space.id());
    if (extent == H5S_NULL || H5Sget_simple_extent_npoints(space.id()) != 1) return;
    const std::size_t size = H5Tget_size(type.id());
    const H5T_class_t kind = H5Tget_class(type.id());
    if (kind == H5T_STRING && H5Tis_variable_str(type.id()) == 0 && size <= kMaxAttributeBytes) {
      write_text(attribute.id(), type.id(), path, name);
    } else if (kind == H5T_INTEGER && size <= sizeof(std::int64_t)) {
      std::int64_t value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "H5Aread");
      put(Hdf5Event::integer, path);
      output_.write_text(name);
      output_.write_number(static_cast<std::uint64_t>(value));
    } else if (kind == H5T_FLOAT && size <= sizeof(double)) {
      double value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), "H5Aread");
      put(Hdf5Event::real, path);
      output_.write_text(name);
      output_.write_number(std::bit_cast<std::uint64_t>(value));
    }
  }

  void write_text(hid_t attribute, hid_t type, const std::string& path, const std::string& name) {
    std::string text(H5Tget_size(type), '\0');
    checked(H5Aread(attribute, type, text.data()), "H5Aread");
    text.resize(std::min(text.find('\0'), text.size()));
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) text.resize(text.find_last_not_of(' ') + 1);
    if (!is_utf8(text)) return;
    put(Hdf5Event::text, path);
    output_.write_text(name);
    output_.write_text(text);
  }

  void put(Hdf5Event event, const std::string& path) {
    output_.write_number(static_cast<std::uint64_t>(event));
    output_.write_text(path);
  }

  ChildOutput& output_;
  Expansion expansion_;
  std::uint64_t file_bytes_;
  FileTypes types_;
  std::map<haddr_t, std::string> known_;  ///< path of each object
  std::map<std::string, bool> arrays_;
  std::string object_ = "/";
  std::size_t objects_ = 0;
};

/// Nothing leads through an external link any more; what it points to can be reported.
void block_external_links() {
  H5L_class_t blocked{};
  blocked.version = H5L_LINK_CLASS_T_VERS;
  blocked.id = H5L_TYPE_EXTERNAL;
  blocked.trav_func = [](auto...) -> hid_t { return H5I_INVALID_HID; };
  blocked.query_func = [](const char*, const void* value, std::size_t bytes, void* out, std::size_t room) -> ssize_t {
    if (out != nullptr) std::memcpy(out, value, std::min(bytes, room));
    return static_cast<ssize_t>(bytes);
  };
  checked(H5Lregister(&blocked), "H5Lregister");
}

void write_failure(const std::string& object, const std::string& message, CheckpointFault fault, ChildOutput& output) {
  output.write_number(static_cast<std::uint64_t>(Hdf5Event::failure));
  output.write_text(object);
  output.write_text(message);
  output.write_number(static_cast<std::uint64_t>(fault));
}

}  // namespace

void walk_hdf5(const ByteSource& source, std::span<const std::byte> content, ChildOutput& output) {
  const HdfSession session;
  block_external_links();
  H5PLset_loading_state(0);
  Hdf5Walker walker(source, output);
  try {
    walker.walk(content);
    output.write_number(static_cast<std::uint64_t>(Hdf5Event::end));
  } catch (const CheckpointError& error) {
    const std::string prefix = error.path().empty() ? "" : error.path() + ": " + error.object() + ": ";
    write_failure(walker.object(), std::string(error.what()).substr(prefix.size()), error.fault(), output);
  } catch (const std::bad_alloc&) {
    write_failure(walker.object(), "parsing it needs too much memory", CheckpointFault::refused, output);
  }
}

}  // namespace lockstep::checkpoints
