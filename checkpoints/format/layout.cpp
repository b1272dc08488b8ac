// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/layout.hpp"

#include <lockstep/core/error.hpp>

#include <map>
#include <utility>

#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr unsigned kKeepOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

/// Every allocation starts on 64 bytes, so that an array in a buffer of the file is aligned for any use.
constexpr hsize_t kArrayAlignment = 64;

/// Fixed length, padded with NUL; HDF5 knows no string of length 0.
Handle text_type(std::size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(type.id(), length == 0 ? 1 : length), "H5Tset_size");
  checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "H5Tset_strpad");
  checked(H5Tset_cset(type.id(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

/// A file space strategy makes HDF5 add an object to the superblock, for which it has no list but the default one of
/// groups; that would give it the time of day.
class NoTimeInSuperblock {
 public:
  NoTimeInSuperblock() {
    checked(H5Pget_obj_track_times(H5P_GROUP_CREATE_DEFAULT, &kept_), "H5Pget_obj_track_times");
    checked(H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, false), "H5Pset_obj_track_times");
  }
  NoTimeInSuperblock(const NoTimeInSuperblock&) = delete;
  NoTimeInSuperblock& operator=(const NoTimeInSuperblock&) = delete;
  ~NoTimeInSuperblock() { H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, kept_); }

 private:
  hbool_t kept_ = false;
};

class LayoutWriter {
 public:
  LayoutWriter(MemoryFile& memory, const Archive& archive, std::uint64_t front_bytes)
      : archive_(archive),
        file_(create(memory, front_bytes)),
        scalar_(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate"),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "H5Pcreate"),
        group_list_(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "H5Pcreate"),
        array_list_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate") {
    checked(H5Pset_char_encoding(links_.id(), H5T_CSET_UTF8), "H5Pset_char_encoding");
    checked(H5Pset_link_creation_order(group_list_.id(), kKeepOrder), "H5Pset_link_creation_order");
    checked(H5Pset_obj_track_times(group_list_.id(), false), "H5Pset_obj_track_times");
    checked(H5Pset_layout(array_list_.id(), H5D_CONTIGUOUS), "H5Pset_layout");
    checked(H5Pset_alloc_time(array_list_.id(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    checked(H5Pset_fill_time(array_list_.id(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    checked(H5Pset_obj_track_times(array_list_.id(), false), "H5Pset_obj_track_times");
  }

  std::vector<ArrayLocation> write() {
    write_attributes(Handle(H5Gopen2(file_.id(), "/", H5P_DEFAULT), H5Gclose, "H5Gopen2").id(), "/");
    for (const std::string& path : archive_.group_paths()) write_group(path);
    std::vector<ArrayLocation> places;
    std::map<std::string, std::size_t> index_of;
    for (const std::string& path : archive_.array_paths()) {
      const std::string& first = archive_.first_path_of(path);
      index_of[path] = places.size();
      places.push_back(first.empty() ? write_array(path) : write_link(path, places[index_of.at(first)]));
      if (!first.empty()) places.back().first = index_of.at(first);
    }
    file_.close("H5Fclose");
    return places;
  }

 private:
  static Handle create(MemoryFile& memory, std::uint64_t front_bytes) {
    const Handle access = memory.access_list();
    checked(H5Pset_alignment(access.id(), 1, kArrayAlignment), "H5Pset_alignment");
    const Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    checked(H5Pset_userblock(list.id(), front_bytes), "H5Pset_userblock");
    // Alignment leaves gaps, and to look through all of them for every new array takes quadratic time.
    checked(H5Pset_file_space_strategy(list.id(), H5F_FSPACE_STRATEGY_NONE, false, 1), "H5Pset_file_space_strategy");
    checked(H5Pset_link_creation_order(list.id(), kKeepOrder), "H5Pset_link_creation_order");
    checked(H5Pset_obj_track_times(list.id(), false), "H5Pset_obj_track_times");
    const NoTimeInSuperblock no_time;
    return {H5Fcreate("archive", H5F_ACC_TRUNC, list.id(), access.id()), H5Fclose, "H5Fcreate"};
  }

  void write_group(const std::string& path) {
    const Handle group(H5Gcreate2(file_.id(), path.c_str(), links_.id(), group_list_.id(), H5P_DEFAULT), H5Gclose,
                       "H5Gcreate2");
    write_attributes(group.id(), path);
  }

  ArrayLocation write_array(const std::string& path) {
    const Array& array = archive_.array(path);
    const std::vector<hsize_t> shape(array.shape.begin(), array.shape.end());
    const Handle space(
        shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
        H5Sclose, "H5Screate_simple");
    const Handle set(H5Dcreate2(file_.id(), path.c_str(), types_.of(array.dtype), space.id(), links_.id(),
                                array_list_.id(), H5P_DEFAULT),
                     H5Dclose, "H5Dcreate2");
    write_text(set.id(), kDTypeAttribute, std::string(name_of(array.dtype)));
    write_attributes(set.id(), path);
    ArrayLocation place{.path = path, .nbytes = array.bytes.size(), .dtype = array.dtype, .shape = array.shape};
    if (array.bytes.empty()) return place;
    place.offset = H5Dget_offset(set.id());
    if (place.offset == HADDR_UNDEF) throw_hdf("H5Dget_offset");
    return place;
  }

  ArrayLocation write_link(const std::string& path, ArrayLocation place) {
    checked(H5Lcreate_hard(file_.id(), place.path.c_str(), file_.id(), path.c_str(), links_.id(), H5P_DEFAULT),
            "H5Lcreate_hard");
    place.path = path;
    return place;
  }

  void write_attributes(hid_t object, const std::string& path) {
    for (const auto& [name, value] : archive_.attributes_of(path)) {
      if (const auto* text = std::get_if<std::string>(&value)) {
        write_text(object, name, *text);
      } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        write_attribute(object, name, H5T_STD_I64LE, integer);
      } else {
        write_attribute(object, name, H5T_IEEE_F64LE, &std::get<double>(value));
      }
    }
  }

  void write_text(hid_t object, const std::string& name, const std::string& text) {
    write_attribute(object, name, text_type(text.size()).id(), text.c_str());
  }

  void write_attribute(hid_t object, const std::string& name, hid_t type, const void* value) {
    const Handle attribute(H5Acreate2(object, name.c_str(), type, scalar_.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                           "H5Acreate2");
    checked(H5Awrite(attribute.id(), type, value), "H5Awrite");
  }

  const Archive& archive_;
  FileTypes types_;
  Handle file_;
  Handle scalar_;
  Handle links_;
  Handle group_list_;
  Handle array_list_;
};

// --- reading ---

class LayoutReader {
 public:
  LayoutReader(const std::string& path, const std::vector<ArrayLocation>& places) : places_(places) {
    for (const ArrayLocation& place : places) place_of_.emplace(place.path, &place);
    archive_.set_origin(path);
  }

  Archive read(MemoryFile& metadata, const std::vector<std::span<std::byte>>& bytes,
               const std::shared_ptr<const void>& owner) {
    check(metadata);
    for (std::size_t i = 0; i < places_.size(); ++i) {  // the order is that of the archive that was written
      const ArrayLocation& place = places_[i];
      object_ = place.path;
      const auto found = arrays_.find(place.path);
      const bool is_left_out = bytes[place.first == kNoArray ? i : place.first].data() == nullptr;
      if (is_left_out) continue;
      if (place.first == kNoArray) {
        Array& array = found->second.array;
        array.bytes = bytes[i];
        array.owner = owner;
        archive_.put(place.path, std::move(array));
      } else {
        archive_.link(place.path, places_[place.first].path);
      }
      for (auto& [name, value] : found->second.attributes) archive_.set(place.path, name, std::move(value));
    }
    return std::move(archive_);
  }

  void check(MemoryFile& metadata) {
    read_objects(metadata);
    for (const ArrayLocation& place : places_) {
      object_ = place.path;
      if (!arrays_.contains(place.path)) fail("it is in the index, but missing in the file");
    }
  }

  Archive read_groups(MemoryFile& metadata) {
    reads_arrays_ = false;
    read_objects(metadata);
    return std::move(archive_);
  }

  /// The object being read, for messages.
  const std::string& object() const noexcept { return object_; }

 private:
  struct Found {
    Array array;
    std::map<std::string, Attribute> attributes;
  };

  [[noreturn]] static void fail(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) {
    throw CheckpointError(message).as(fault);
  }

  void read_objects(MemoryFile& memory) {
    const Handle access = memory.access_list();
    const Handle file(H5Fopen("archive", H5F_ACC_RDONLY, access.id()), H5Fclose, "H5Fopen");
    read_object(file.id(), "/", "/", 0);
  }

  void read_object(hid_t parent, const std::string& name, const std::string& path, std::size_t depth) {
    object_ = path;
    if (++objects_ > kMaxObjects)
      fail("there are more than " + std::to_string(kMaxObjects) + " objects", CheckpointFault::refused);
    if (depth > kMaxDepth)
      fail("it is nested more than " + std::to_string(kMaxDepth) + " groups deep, or in a cycle",
           CheckpointFault::refused);
    const Handle object(H5Oopen(parent, name.c_str(), H5P_DEFAULT), H5Oclose, "H5Oopen");
    const H5I_type_t kind = H5Iget_type(object.id());
    if (kind != H5I_GROUP && kind != H5I_DATASET) fail("it is neither a group nor an array");
    auto attributes = read_attributes(object.id());
    if (kind == H5I_DATASET) {
      arrays_.emplace(path, Found{read_array(object.id(), path), std::move(attributes)});
      return;
    }
    archive_.add_group(path);
    for (auto& [key, value] : attributes) archive_.set(path, key, std::move(value));
    for (const std::string& child : children(object.id())) {
      const std::string below = path == "/" ? path + child : path + "/" + child;
      if (reads_arrays_ || !place_of_.contains(below)) read_object(object.id(), child, below, depth + 1);
    }
  }

  /// Names of the links below a group, in order of creation.
  std::vector<std::string> children(hid_t group) {
    struct Links {
      std::vector<std::string> names;
      const char* fault = nullptr;
    } links;
    const auto visit = [](hid_t, const char* name, const H5L_info_t* info, void* data) -> herr_t {
      auto& found = *static_cast<Links*>(data);
      if (info->type != H5L_TYPE_HARD) found.fault = "it is a soft or external link; this is not allowed";
      if (!is_part(name)) found.fault = "it has a link with a malformed name";
      if (found.names.size() > kMaxObjects) found.fault = "it has too many links";
      if (found.fault != nullptr) return 1;
      found.names.emplace_back(name);
      return 0;
    };
    checked(H5Literate(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, nullptr, visit, &links), "H5Literate");
    if (links.fault != nullptr) fail(links.fault, CheckpointFault::refused);
    return std::move(links.names);
  }

  /// Reads without its bytes. HDF5 is never requested them: they are where `places_` says, which was checked.
  Array read_array(hid_t set, const std::string& path) {
    const auto place = place_of_.find(path);
    if (place == place_of_.end()) fail("it is not in the index");
    const auto [offset, nbytes] = std::pair(place->second->offset, place->second->nbytes);
    if (nbytes == 0 || H5Dget_offset(set) != offset) require_contiguous(set);
    if (nbytes != 0 && H5Dget_offset(set) != offset) fail("its offset differs from the index");
    const Handle type(H5Dget_type(set), H5Tclose, "H5Dget_type");
    Array array{.dtype = types_.dtype_of(type.id()), .shape = shape_of(set), .bytes = {}, .owner = nullptr};
    if (nbytes_of(array.dtype, array.shape) != nbytes) fail("its shape does not fit its bytes");
    if (array.dtype != place->second->dtype || array.shape != place->second->shape) {
      fail("its type or shape differs from the index");
    }
    return array;
  }

  /// Says why an array does not lie in one stretch of the file.
  static void require_contiguous(hid_t set) {
    const Handle list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist");
    require_own_storage(list.id());
    if (H5Pget_layout(list.id()) != H5D_CONTIGUOUS) fail("it is not stored contiguously");
  }

  static std::map<std::string, Attribute> read_attributes(hid_t object) {
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* data) -> herr_t {
      static_cast<std::vector<std::string>*>(data)->emplace_back(name);
      return 0;
    };
    checked(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Aiterate2");
    std::map<std::string, Attribute> attributes;
    for (const std::string& name : names) {
      if (name != kDTypeAttribute) attributes.emplace(name, read_attribute(object, name));
    }
    return attributes;
  }

  static Attribute read_attribute(hid_t object, const std::string& name) {
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "H5Aopen");
    const Handle type(H5Aget_type(attribute.id()), H5Tclose, "H5Aget_type");
    const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
    if (!is_part(name) || H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
      fail("its attribute '" + name + "' is malformed");
    }
    if (H5Tequal(type.id(), H5T_STD_I64LE) > 0) {
      std::int64_t value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "H5Aread");
      return value;
    }
    if (H5Tequal(type.id(), H5T_IEEE_F64LE) > 0) {
      double value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), "H5Aread");
      return value;
    }
    const std::size_t size = H5Tget_size(type.id());
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 || size > kMaxAttributeBytes) {
      fail("its attribute '" + name + "' has a type that is not supported");
    }
    std::string text(size, '\0');
    checked(H5Aread(attribute.id(), type.id(), text.data()), "H5Aread");
    text.resize(std::min(text.find('\0'), size));
    return text;
  }

  FileTypes types_;
  const std::vector<ArrayLocation>& places_;
  std::map<std::string, const ArrayLocation*> place_of_;
  std::map<std::string, Found> arrays_;
  Archive archive_;
  std::string object_ = "/";
  std::size_t objects_ = 0;
  bool reads_arrays_ = true;
};

/// Reads with a new reader, and gives an error its file and object.
template <class Read>
auto read_with(const std::string& path, const std::vector<ArrayLocation>& places, const Read& read) {
  const HdfSession session;
  LayoutReader reader(path, places);
  try {
    return read(reader);
  } catch (const CheckpointError& error) {
    throw CheckpointError(path, reader.object(), error.what()).as(error.fault());
  } catch (const std::logic_error& error) {  // Archive refuses it: such a file was not written by Lockstep
    throw CheckpointError(path, reader.object(), std::string("it is malformed: ") + error.what());
  }
}

}  // namespace

Layout lay_out(const Archive& archive, std::uint64_t front_bytes) {
  const HdfSession session;
  Layout layout{std::make_unique<MemoryFile>(), {}};
  layout.places = LayoutWriter(*layout.metadata, archive, front_bytes).write();
  return layout;
}

Archive read_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places,
                  const std::vector<std::span<std::byte>>& bytes, const std::shared_ptr<const void>& owner) {
  return read_with(path, places, [&](LayoutReader& reader) { return reader.read(metadata, bytes, owner); });
}

void check_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places) {
  read_with(path, places, [&](LayoutReader& reader) { reader.check(metadata); });
}

Archive read_tree_groups(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places) {
  return read_with(path, places, [&](LayoutReader& reader) { return reader.read_groups(metadata); });
}

}  // namespace lockstep::checkpoints
